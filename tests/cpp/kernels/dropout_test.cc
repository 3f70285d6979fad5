#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "philox.h"

namespace kernelbox::testing {
namespace {

Array State() { return Array::Ints({2}, {42, 0xffffffff}); }

std::vector<double> Expected(const Array& x, const Array& state, double p) {
  const std::vector<uint32_t> words = PhiloxWords(state, x.Count());
  std::vector<double> values;
  for (int64_t i = 0; i < x.Count(); ++i) {
    const bool dropped = words[static_cast<size_t>(i)] * 0x1p-32 < p;
    values.push_back(dropped ? 0 : x[i] / (1 - p));
  }
  return values;
}

TEST(Dropout, FollowsTheContract) {
  Random random(21);
  for (DType dtype : ComputedDTypes()) {
    for (int64_t size : OddSizes()) {
      for (double p : {0.0, 0.1, 0.5, 0.9}) {
        for (bool misaligned : {false, true}) {
          SCOPED_TRACE(std::string(NameOf(dtype)) + " of " + std::to_string(size));
          const Array x = random.Normal(dtype, {size});
          LayerCall call("Dropout");
          call.With("x", x).With("rng_state", State()).Ask("rng_used").Set("p", p);
          const Result result = call.Misaligned(misaligned).Run();
          // The scale, rounded to float32, and the product.
          ExpectClose(result["y"], Expected(x, State(), p), 2);
          ExpectSame(result["rng_used"], State());
          EXPECT_EQ(result["rng_state"].Integers()[0], 42);
          EXPECT_EQ(result["rng_state"].Integers()[1], int64_t{0xffffffff} + (size + 3) / 4);
        }
      }
    }
  }
}

TEST(Dropout, BackwardDrawsTheSameMask) {
  for (DType dtype : ComputedDTypes()) {
    const Array x(dtype, {1021}, 1.0);
    LayerCall call("Dropout");
    call.With("x", x).With("rng_state", State()).Ask("rng_used").Set("p", 0.4);
    const Result forward = call.Run();
    // The state has moved on; backward goes by rng_used.
    const Result backward = BackwardOf(call, forward, {{"d_y", x}}).Run();
    ExpectSame(backward["d_x"], forward["y"]);
  }
}

TEST(Dropout, OfOneDropsAll) {
  // Even what is not finite: 0 * infinity would be NaN.
  const Array x(DType::kFloat32, {5}, {1, -2, INFINITY, NAN, 0});
  const Result result =
      LayerCall("Dropout").With("x", x).With("rng_state", State()).Set("p", 1.0).Run();
  ExpectSame(result["y"], Array(DType::kFloat32, {5}, 0.0));
  EXPECT_EQ(result["rng_state"].Integers()[1], int64_t{0xffffffff} + 2);
}

TEST(Dropout, OfNoneKeepsAll) {
  const Array x(DType::kFloat32, {5}, {1, -2, INFINITY, -INFINITY, 0});
  const Result result =
      LayerCall("Dropout").With("x", x).With("rng_state", State()).Set("p", 0.0).Run();
  ExpectSame(result["y"], x);
}

TEST(Dropout, CopiesWhenNotTraining) {
  Random random(22);
  for (DType dtype : ComputedDTypes()) {
    const Array x = random.Normal(dtype, {3, 11});
    LayerCall call("Dropout");
    call.With("x", x)
        .With("rng_state", State())
        .Ask("rng_used")
        .Set("p", 0.9)
        .Set("training", false);
    const Result forward = call.Run();
    ExpectSame(forward["y"], x);
    ExpectSame(forward["rng_state"], State());
    ExpectSame(forward["rng_used"], State());
    ExpectSame(BackwardOf(call, forward, {{"d_y", x}}).Run()["d_x"], x);
  }
}

TEST(Dropout, KeepsTheShareThatIsAsked) {
  const int64_t count = 200000;
  for (double p : {0.2, 0.5, 0.75}) {
    const Result result = LayerCall("Dropout")
                              .With("x", Array(DType::kFloat32, {count}, 1.0))
                              .With("rng_state", State())
                              .Set("p", p)
                              .Run();
    double kept = 0;
    for (double value : result["y"].Values()) kept += value != 0 ? 1 : 0;
    EXPECT_NEAR(kept / count, 1 - p, 5 * std::sqrt(p * (1 - p) / count));
  }
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  LayerCall call("Dropout");
  call.With("x", Array(DType::kFloat32, {2, 3, 4}, 1.0)).With("rng_state", State());
  for (double p : {-0.1, 1.1, static_cast<double>(NAN)}) {
    ExpectError(call.Set("p", p).Infer(), Reason::kInvalidAttribute, "p", "[0, 1]");
  }
  call.Set("p", 0.5);
  call["x"].layout = Layout::kChannelsLast;
  ExpectError(call.Infer(), Reason::kUnsupported, "x", "contiguous");
  call["x"].layout = Layout::kContiguous;
  call.With("rng_state", Array::Ints({2}, {1, 2}, DType::kInt32));
  ExpectError(call.Infer(), Reason::kInvalidDType, "rng_state", "int64", "int32");
  ExpectError(LayerCall("DropoutBackward")
                  .With("rng_used", State())
                  .With("d_y", Array::Ints({1}, {1}))
                  .Infer(),
              Reason::kInvalidDType, "d_y");
}

}  // namespace
}  // namespace kernelbox::testing
