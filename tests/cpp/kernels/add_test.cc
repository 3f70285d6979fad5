#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"

namespace kernelbox::testing {
namespace {

// NumPy's broadcasting, one index at a time.
class Broadcast {
 public:
  Broadcast(const Shape& a, const Shape& b) {
    const size_t rank = std::max(a.size(), b.size());
    for (size_t d = 0; d < rank; ++d) {
      const int64_t a_dim = Dim(a, d, rank);
      const int64_t b_dim = Dim(b, d, rank);
      shape.push_back(a_dim == 1 ? b_dim : a_dim);
    }
  }

  // The element of an array of shape `small` that element i of the result goes with.
  int64_t Source(int64_t i, const Shape& small) const {
    int64_t source = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const int64_t index = i % shape[d];
      i /= shape[d];
      const int64_t dim = Dim(small, d, shape.size());
      if (dim != 1) source += index * stride;
      stride *= dim;
    }
    return source;
  }

  Shape shape;

 private:
  static int64_t Dim(const Shape& own, size_t d, size_t rank) {
    return d < rank - own.size() ? 1 : own[d - (rank - own.size())];
  }
};

std::vector<std::pair<Shape, Shape>> Shapes() {
  return {{{}, {}},
          {{1}, {}},
          {{4099}, {4099}},
          {{4099}, {}},
          {{}, {33}},
          {{257, 33}, {33}},
          {{33}, {257, 33}},
          {{257, 33}, {257, 1}},
          {{257, 1}, {1, 33}},
          {{2, 3, 4}, {3, 1}},
          {{7, 1, 5}, {1, 9, 1}},
          {{2, 1, 3, 1, 5}, {1, 4, 1, 6, 1}},
          {{1, 1, 1, 1, 1, 1, 1, 2}, {2, 1, 1, 1, 1, 1, 1, 1}},
          {{0, 3}, {1, 3}},
          {{3}, {0, 3}},
          {{2, 0}, {2, 1}},
          {{5000, 3}, {1, 3}},
          {{3, 5000}, {3, 1}},
          {{5000, 3}, {5000, 1}},
          {{1, 70, 1}, {70, 1, 70}}};
}

TEST(Add, BroadcastsAsNumPy) {
  Random random(41);
  for (DType dtype : ComputedDTypes()) {
    for (const auto& [a_shape, b_shape] : Shapes()) {
      for (double alpha : {1.0, -0.3}) {
        const Array a = random.Normal(dtype, a_shape);
        const Array b = random.Normal(dtype, b_shape);
        const Broadcast broadcast(a_shape, b_shape);
        std::vector<double> expected;
        std::vector<double> scale;
        for (int64_t i = 0; i < CountOf(broadcast.shape); ++i) {
          const double left = a[broadcast.Source(i, a_shape)];
          const double right = alpha * b[broadcast.Source(i, b_shape)];
          expected.push_back(left + right);
          scale.push_back(std::abs(left) + std::abs(right));
        }
        for (bool misaligned : {false, true}) {
          SCOPED_TRACE(std::string(NameOf(dtype)) + " rank " + std::to_string(a_shape.size()));
          const Result result = LayerCall("Add")
                                    .With("a", a)
                                    .With("b", b)
                                    .Set("alpha", alpha)
                                    .Misaligned(misaligned)
                                    .Run();
          ASSERT_TRUE(result.status.ok());
          EXPECT_EQ(result["y"].shape, broadcast.shape);
          ExpectClose(result["y"], expected, 2, scale);  // alpha's rounding and the product's
        }
      }
    }
  }
}

// The sums of d_y, whatever the pattern.
TEST(Add, BackwardSumsOverWhatWasBroadcast) {
  Random random(42);
  for (DType dtype : ComputedDTypes()) {
    for (const auto& [a_shape, b_shape] : Shapes()) {
      const Broadcast broadcast(a_shape, b_shape);
      LayerCall call("AddBackward");
      const Array d_y = random.Normal(dtype, broadcast.shape);
      call.With("a", Array(dtype, a_shape, 0.0))
          .With("b", Array(dtype, b_shape, 0.0))
          .With("d_y", d_y)
          .Ask("d_a")
          .Ask("d_b")
          .Set("alpha", -0.3);
      const auto sums = [&](const Shape& shape, double factor, std::vector<double>* scale) {
        std::vector<double> result(static_cast<size_t>(CountOf(shape)));
        scale->assign(result.size(), 0);
        for (int64_t i = 0; i < d_y.Count(); ++i) {
          const auto at = static_cast<size_t>(broadcast.Source(i, shape));
          result[at] += factor * d_y[i];
          (*scale)[at] += std::abs(factor * d_y[i]);
        }
        return result;
      };
      for (bool misaligned : {false, true}) {
        SCOPED_TRACE(std::string(NameOf(dtype)) + " rank " + std::to_string(a_shape.size()) +
                     " of " + std::to_string(d_y.Count()));
        const Result result = call.Misaligned(misaligned).Run();
        ASSERT_TRUE(result.status.ok());
        std::vector<double> scale;
        // Sums run over 64 elements at most before they go to a double.
        const std::vector<double> d_a = sums(a_shape, 1, &scale);
        ExpectClose(result["d_a"], d_a, 16, scale);
        const std::vector<double> d_b = sums(b_shape, -0.3, &scale);
        ExpectClose(result["d_b"], d_b, 16, scale);
      }
    }
  }
}

// A million ones and small numbers: a plain float32 sum would lose the small ones.
TEST(Add, LongSumsStayAccurate) {
  const int64_t count = 1 << 20;
  Array d_y(DType::kFloat32, {count}, 1e-3);
  d_y.Set(0, 1e6);
  const double exact = 1e6 + (count - 1) * d_y[1];
  const Result result = LayerCall("AddBackward")
                            .With("a", Array(DType::kFloat32, {count}, 0.0))
                            .With("b", Array(DType::kFloat32, {}, 0.0))
                            .With("d_y", d_y)
                            .Ask("d_b")
                            .Run();
  EXPECT_FALSE(result.Has("d_a"));
  EXPECT_NEAR(result["d_b"][0], exact, 0.2);  // 1e6 + 1e-3 rounds by 0.03 within its run
}

TEST(Add, IntegersAreExactAndWrap) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    const int64_t largest = dtype == DType::kInt32 ? INT32_MAX : INT64_MAX;
    const Array a = Array::Ints({4}, {1, largest, -5, 7}, dtype);
    const Array b = Array::Ints({4}, {2, 1, 3, 0}, dtype);
    EXPECT_EQ(LayerCall("Add").With("a", a).With("b", b).Run()["y"].Integers(),
              (std::vector<int64_t>{3, -largest - 1, -2, 7}));
    EXPECT_EQ(LayerCall("Add").With("a", a).With("b", b).Set("alpha", -2.0).Run()["y"].Integers(),
              (std::vector<int64_t>{-3, largest - 2, -11, 7}));
  }
}

TEST(Add, BackwardIsTheDerivative) {
  Random random(43);
  CheckGradient(LayerCall("Add")
                    .With("a", random.Normal(DType::kFloat64, {3, 1, 5}))
                    .With("b", random.Normal(DType::kFloat64, {4, 1}))
                    .Set("alpha", 1.7),
                "y", {"a", "b"});
}

TEST(Add, RefusesWhatDoesNotFit) {
  LayerCall call("Add");
  call.With("a", Array(DType::kFloat32, {2, 3}, 1.0));
  ExpectError(call.With("b", Array(DType::kFloat16, {2, 3}, 1.0)).Infer(), Reason::kInvalidDType,
              "b", "float32", "float16");
  ExpectError(call.With("b", Array(DType::kFloat32, {2}, 1.0)).Infer(), Reason::kInvalidShape, "b",
              "[2, 3]", "[2]");
  ExpectError(call.With("b", Array(DType::kFloat32, {0, 3}, 1.0)).Infer(), Reason::kInvalidShape,
              "b");
  call.With("a", Array(DType::kUInt8, {2}, 1.0)).With("b", Array(DType::kUInt8, {2}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidDType, "a", "int64", "uint8");
  call.With("a", Array::Ints({2}, {1, 2})).With("b", Array::Ints({2}, {1, 2}));
  for (double alpha : {0.5, 1e30, static_cast<double>(NAN)}) {
    ExpectError(call.Set("alpha", alpha).Infer(), Reason::kInvalidAttribute, "alpha", "an integer");
  }
  LayerCall backward("AddBackward");
  backward.With("a", Array(DType::kFloat32, {2, 3}, 1.0))
      .With("b", Array(DType::kFloat32, {3}, 1.0))
      .With("d_y", Array(DType::kFloat32, {3}, 1.0));
  ExpectError(backward.Infer(), Reason::kInvalidShape, "d_y", "[2, 3]", "[3]");
  backward.With("a", Array::Ints({3}, {1, 2, 3}));
  ExpectError(backward.Infer(), Reason::kInvalidDType, "a");
}

}  // namespace
}  // namespace kernelbox::testing
