// Philox, Uniform and Normal.
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "kernels/math/philox.h"
#include "philox.h"

namespace kernelbox::testing {
namespace {

// The known answers published with the generator.
TEST(Philox, GivesTheKnownAnswers) {
  struct Vector {
    uint32_t counter[4], key[2], answer[4];
  };
  const Vector vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Vector& v : vectors) {
    const math::PhiloxBlock block = math::Philox4x32(
        {{v.counter[0], v.counter[1], v.counter[2], v.counter[3]}}, v.key[0], v.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(block.lanes[i], v.answer[i]);
  }
}

TEST(Philox, SeedIsTheKeyAndOffsetTheCounter) {
  const uint64_t seed = 0x123456789abcdef0;
  const uint64_t offset = 0xfffffffe;  // the counter's low word overflows
  const std::vector<uint32_t> words = PhiloxWords(seed, offset, 16);
  for (int64_t block = 0; block < 4; ++block) {
    const math::PhiloxBlock got = math::Rng{seed, offset}.Block(block);
    for (size_t lane = 0; lane < 4; ++lane) {
      EXPECT_EQ(got.lanes[lane], words[static_cast<size_t>(block) * 4 + lane]);
    }
  }
}

Array State() { return Array::Ints({2}, {-77, 0xfffffffe}); }

// The numbers in [0, 1) of a tensor's elements.
std::vector<double> Units(const Array& state, int64_t count, DType dtype) {
  std::vector<double> units;
  if (dtype != DType::kFloat64) {
    for (uint32_t word : PhiloxWords(state, count)) units.push_back((word >> 8) * 0x1p-24);
    return units;
  }
  const std::vector<uint32_t> words = PhiloxWords(state, count * 2);
  for (size_t i = 0; i < words.size(); i += 2) {
    const uint64_t wide = static_cast<uint64_t>(words[i + 1]) << 32 | words[i];
    units.push_back(static_cast<double>(wide >> 11) * 0x1p-53);
  }
  return units;
}

void ExpectAdvanced(const Array& after, const Array& before, int64_t blocks) {
  EXPECT_EQ(after.Integers()[0], before.Integers()[0]);
  EXPECT_EQ(after.Integers()[1], before.Integers()[1] + blocks);
}

int64_t BlocksOf(int64_t count, DType dtype) {
  const int64_t each = dtype == DType::kFloat64 ? 2 : 4;
  return (count + each - 1) / each;
}

TEST(Uniform, DrawsTheNumbersOfTheContract) {
  for (DType dtype : ComputedDTypes()) {
    for (int64_t count : OddSizes()) {
      const double low = -1.5;
      const double high = 0.75;
      const Result result = LayerCall("Uniform")
                                .With("rng_state", State())
                                .Set("shape", Shape{count})
                                .Set("dtype", dtype)
                                .Set("low", low)
                                .Set("high", high)
                                .Run();
      std::vector<double> expected = Units(State(), count, dtype);
      for (double& value : expected) value = low + (high - low) * value;
      const std::vector<double> scale(expected.size(), 1.5);
      // Exact but for the rounding, and for the step below `high` that it may not take.
      const std::vector<double> below_high(expected.size(), Epsilon(dtype) / 2);
      ExpectClose(result["y"], expected, dtype == DType::kFloat64 ? 2 : 0, scale, below_high);
      ExpectAdvanced(result["rng_state"], State(), BlocksOf(count, dtype));
    }
  }
}

// The largest 24-bit number rounds up to 1 in 16 bits, and 1 + it does in float32.
TEST(Uniform, StaysBelowHigh) {
  for (DType dtype : ComputedDTypes()) {
    for (double low : {0.0, 1.0, -1.0, -3.0}) {
      const double high = low + 1;
      const Result result = LayerCall("Uniform")
                                .With("rng_state", State())
                                .Set("shape", Shape{400000})
                                .Set("dtype", dtype)
                                .Set("low", low)
                                .Set("high", high)
                                .Run();
      double least = high;
      double most = low;
      double sum = 0;
      for (double value : result["y"].Values()) {
        least = std::min(least, value);
        most = std::max(most, value);
        sum += value;
      }
      EXPECT_GE(least, low);
      EXPECT_LT(most, high) << NameOf(dtype) << " from " << low;
      EXPECT_NEAR(sum / 400000, low + 0.5, 0.005);
    }
  }
}

TEST(Uniform, OfAnEmptyIntervalIsLow) {
  const Result result = LayerCall("Uniform")
                            .With("rng_state", State())
                            .Set("shape", Shape{5})
                            .Set("low", 2.5)
                            .Set("high", 2.5)
                            .Run();
  ExpectSame(result["y"], Array(DType::kFloat32, {5}, 2.5));
}

TEST(Normal, DrawsTheNumbersOfTheContract) {
  for (DType dtype : ComputedDTypes()) {
    for (int64_t count : OddSizes()) {
      const Result result = LayerCall("Normal")
                                .With("rng_state", State())
                                .Set("shape", Shape{count})
                                .Set("dtype", dtype)
                                .Set("mean", 0.5)
                                .Set("std", 2.0)
                                .Run();
      const std::vector<double> units = Units(State(), count + count % 2, dtype);
      std::vector<double> expected;
      std::vector<double> scale;
      for (int64_t i = 0; i < count; ++i) {
        const size_t pair = static_cast<size_t>(i / 2 * 2);
        const double radius = std::sqrt(-2 * std::log(1 - units[pair]));
        const double angle = 2 * M_PI * units[pair + 1];
        expected.push_back(0.5 + 2 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
        scale.push_back(0.5 + 2 * radius);
      }
      ExpectClose(result["y"], expected, dtype == DType::kFloat64 ? 8 : 0.001, scale);
      ExpectAdvanced(result["rng_state"], State(), BlocksOf(count, dtype));
    }
  }
}

TEST(Normal, HasTheMoments) {
  const int64_t count = 400000;
  const Result result =
      LayerCall("Normal").With("rng_state", State()).Set("shape", Shape{count}).Run();
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (double value : result["y"].Values()) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  // Five standard errors.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

// One seed, two halves: drawing 8 and then 8 is drawing 16.
TEST(RandomState, ContinuesWhereTheLastOpStopped) {
  for (const char* layer : {"Uniform", "Normal"}) {
    LayerCall call(layer);
    call.With("rng_state", State()).Set("shape", Shape{8});
    const Result first = call.Run();
    const Result second = call.With("rng_state", first["rng_state"]).Run();
    const Result both = call.With("rng_state", State()).Set("shape", Shape{16}).Run();
    std::vector<uint8_t> joined = first["y"].bytes;
    joined.insert(joined.end(), second["y"].bytes.begin(), second["y"].bytes.end());
    EXPECT_EQ(joined, both["y"].bytes);
  }
}

TEST(RandomState, IsTheSameOnBothBackends) {
  if (!CudaAvailable()) GTEST_SKIP() << "no CUDA device";
  for (const char* layer : {"Uniform", "Normal"}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      LayerCall call(layer);
      call.With("rng_state", State()).Set("shape", Shape{100003}).Set("dtype", dtype);
      ExpectSame(call.Run(Backend::kCuda)["y"], call.Run(Backend::kCpu)["y"]);
    }
  }
}

TEST(RandomFill, RefusesWhatDoesNotFit) {
  LayerCall uniform("Uniform");
  uniform.With("rng_state", State()).Set("shape", Shape{2});
  ExpectError(uniform.Set("low", NAN).Infer(), Reason::kInvalidAttribute, "low");
  ExpectError(uniform.Set("low", 2.0).Infer(), Reason::kInvalidAttribute, "high", "[2,");
  ExpectError(uniform.Set("high", INFINITY).Infer(), Reason::kInvalidAttribute, "high");
  uniform.Set("high", 70000.0).Set("dtype", DType::kFloat16);
  ExpectError(uniform.Infer(), Reason::kInvalidAttribute, "high", "65504", "70000");
  uniform.Set("dtype", DType::kInt64);
  ExpectError(uniform.Set("high", 3.0).Infer(), Reason::kInvalidAttribute, "dtype", "", "int64");
  uniform.Set("dtype", DType::kFloat64).Set("low", -1e308).Set("high", 1e308);
  ExpectError(uniform.Infer(), Reason::kInvalidAttribute, "high");

  LayerCall normal("Normal");
  normal.With("rng_state", State()).Set("shape", Shape{2});
  ExpectError(normal.Set("std", -1.0).Infer(), Reason::kInvalidAttribute, "std", "at least 0");
  ExpectError(normal.Set("std", NAN).Infer(), Reason::kInvalidAttribute, "std");
  ExpectError(normal.Set("std", 1.0).Set("mean", INFINITY).Infer(), Reason::kInvalidAttribute,
              "mean");
  normal.Set("mean", 0.0);
  ExpectError(normal.Set("shape", Shape{2, -1}).Infer(), Reason::kInvalidShape, "shape",
              "at least 0", "[2, -1]");
  ExpectError(normal.Set("shape", Shape(9, 1)).Infer(), Reason::kInvalidShape, "shape", "at most 8",
              "9 dimensions");
  ExpectError(normal.Set("shape", Shape{1 << 30, 1 << 30, 4}).Infer(), Reason::kSizeOverflow,
              "shape");
  EXPECT_TRUE(normal.Set("shape", Shape{1 << 30, 0, 1 << 30, 1 << 30}).Infer().ok());
  normal.Set("shape", Shape{2}).With("rng_state", Array::Ints({3}, {1, 2, 3}));
  ExpectError(normal.Infer(), Reason::kInvalidShape, "rng_state", "[2]", "[3]");
  normal.With("rng_state", Array(DType::kFloat32, {2}, 1.0));
  ExpectError(normal.Infer(), Reason::kInvalidDType, "rng_state", "int64", "float32");
}

}  // namespace
}  // namespace kernelbox::testing
