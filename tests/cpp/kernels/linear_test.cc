#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "compare.h"
#include "kernels/attributes.h"

namespace kernelbox::testing {
namespace {

constexpr double kSteepest = 1.13;  // no activation's slope is larger

double Activated(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return z <= 0 ? 0 : z;
    case Activation::kGelu:
      return z * 0.5 * std::erfc(-z / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    default:
      return z;
  }
}

double Slope(Activation activation, double z) {
  const double h = 1e-6;
  if (activation == Activation::kRelu) return z > 0 ? 1 : 0;
  if (activation == Activation::kNone) return 1;
  return (Activated(activation, z + h) - Activated(activation, z - h)) / (2 * h);
}

const Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                   Activation::kGeluTanh};

struct Case {
  Array x, weight, bias;
  bool has_bias;
  Activation activation;
  int64_t m, n, k;

  std::vector<double> x_values = x.Values();
  std::vector<double> weight_values = Array(x.dtype, weight.shape, weight.Values()).Values();

  double X(int64_t row, int64_t column) const {
    return x_values[static_cast<size_t>(row * k + column)];
  }
  // The weight as the product sees it: in x's dtype.
  double W(int64_t row, int64_t column) const {
    return weight_values[static_cast<size_t>(row * k + column)];
  }
  LayerCall Call() const {
    LayerCall call("Linear");
    call.With("x", x).With("weight", weight).Set("activation", activation);
    return has_bias ? call.With("bias", bias) : call;
  }
};

template <class Check>
void ForEachCase(Check check) {
  Random random(51);
  for (DType dtype : ComputedDTypes()) {
    for (const auto& [rows, n, k] : {std::tuple<Shape, int64_t, int64_t>{{3}, 5, 7},
                                     {{}, 4, 8},
                                     {{1}, 1, 1},
                                     {{2, 3, 5}, 31, 33},
                                     {{40}, 128, 96},
                                     {{65}, 33, 127},
                                     {{31}, 8, 513},
                                     {{0}, 5, 7},
                                     {{5}, 0, 7},
                                     {{5}, 7, 0},
                                     {{2, 0}, 0, 0},
                                     {{16}, 1030, 9}}) {
      for (Activation activation : kActivations) {
        for (bool has_bias : {false, true}) {
          for (bool master : {false, true}) {
            if (master && (dtype == DType::kFloat32 || dtype == DType::kFloat64)) continue;
            const DType weight_dtype = master ? DType::kFloat32 : dtype;
            Shape x_shape = rows;
            x_shape.push_back(k);
            Case c{random.Normal(dtype, x_shape),
                   random.Normal(weight_dtype, {n, k}, 0.4),
                   random.Normal(weight_dtype, {n}),
                   has_bias,
                   activation,
                   CountOf(rows),
                   n,
                   k};
            SCOPED_TRACE(std::string(NameOf(dtype)) + (master ? " master" : "") + " m " +
                         std::to_string(c.m) + " n " + std::to_string(n) + " k " +
                         std::to_string(k) + " activation " +
                         std::to_string(static_cast<int>(activation)));
            check(c);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// A sum of k products in any order is off by at most k roundings of the sum of their sizes. In 16
// bits y comes from a rounded pre-activation, and the bias may be added to a rounded product.
TEST(Linear, IsCloseToTheFormula) {
  ForEachCase([](const Case& c) {
    std::vector<double> pre;
    std::vector<double> y;
    std::vector<double> scale;
    std::vector<double> stored;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const double bias = c.has_bias ? Rounded(c.x.dtype, c.bias[j]) : 0;
        double sum = bias;
        double size = std::abs(bias);
        for (int64_t l = 0; l < c.k; ++l) {
          sum += c.X(i, l) * c.W(j, l);
          size += std::abs(c.X(i, l) * c.W(j, l));
        }
        pre.push_back(sum);
        y.push_back(Activated(c.activation, sum));
        scale.push_back(size * kSteepest);
        stored.push_back((std::abs(sum) + std::abs(bias)) * Epsilon(c.x.dtype) * kSteepest);
      }
    }
    const double steps = static_cast<double>(c.k) / 4 + 8;
    for (bool ask : {false, true}) {
      for (bool misaligned : {false, true}) {
        LayerCall call = c.Call();
        if (ask) call.Ask("pre_activation");
        const Result result = call.Misaligned(misaligned).Run();
        ASSERT_TRUE(result.status.ok()) << result.status.expected << result.status.given;
        ExpectClose(result["y"], y, steps, scale, stored);
        if (!ask) continue;
        if (c.activation == Activation::kNone) {
          EXPECT_EQ(result["pre_activation"].shape, Shape{0});
        } else {
          ExpectClose(result["pre_activation"], pre, steps, scale, stored);
        }
      }
    }
  });
}

TEST(Linear, BackwardIsCloseToTheFormula) {
  ForEachCase([](const Case& c) {
    Random random(52);
    LayerCall call = c.Call().Ask("pre_activation");
    const Result forward = call.Run();
    ASSERT_TRUE(forward.status.ok());
    const Array d_y = random.Normal(c.x.dtype, forward["y"].shape);
    LayerCall backward = BackwardOf(call, forward, {{"d_y", d_y}});
    std::vector<double> d_pre;
    for (int64_t i = 0; i < c.m * c.n; ++i) {
      const double z = c.activation == Activation::kNone ? 0 : forward["pre_activation"][i];
      d_pre.push_back(d_y[i] * Slope(c.activation, z));
    }
    // Sums of `terms` products, d_pre times `other`; d_pre is stored in x's dtype in between.
    struct Sums {
      std::vector<double> value, scale, stored;
      void Add(size_t at, double d, double size, double other) {
        value[at] += d * other;
        scale[at] += size * std::abs(other);
      }
    };
    const auto sums = [](int64_t count) {
      const std::vector<double> zeros(static_cast<size_t>(count));
      return Sums{zeros, zeros, zeros};
    };
    Sums d_x = sums(c.m * c.k);
    Sums d_weight = sums(c.n * c.k);
    Sums d_bias = sums(c.n);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const double d = d_pre[static_cast<size_t>(i * c.n + j)];
        const double size = std::abs(d_y[i * c.n + j]) * kSteepest;
        d_bias.Add(static_cast<size_t>(j), d, size, 1);
        for (int64_t l = 0; l < c.k; ++l) {
          d_x.Add(static_cast<size_t>(i * c.k + l), d, size, c.W(j, l));
          d_weight.Add(static_cast<size_t>(j * c.k + l), d, size, c.X(i, l));
        }
      }
    }
    for (Sums* s : {&d_x, &d_weight, &d_bias}) {
      for (double size : s->scale) s->stored.push_back(size * Epsilon(c.x.dtype));
      s->stored.erase(s->stored.begin(),
                      s->stored.begin() + static_cast<std::ptrdiff_t>(s->scale.size()));
    }
    for (bool misaligned : {false, true}) {
      const Result result = backward.Misaligned(misaligned).Run();
      ASSERT_TRUE(result.status.ok()) << result.status.field << result.status.expected;
      // The numeric slope is good to 1e-9, which float64 must be forgiven.
      const double steps =
          c.x.dtype == DType::kFloat64 ? 1e7 : static_cast<double>(c.m + c.n) / 4 + 24;
      ExpectClose(result["d_x"], d_x.value, steps, d_x.scale, d_x.stored);
      EXPECT_EQ(result["d_weight"].dtype, c.weight.dtype);
      ExpectClose(result["d_weight"], d_weight.value, steps, d_weight.scale, d_weight.stored);
      if (!c.has_bias) continue;
      EXPECT_EQ(result["d_bias"].dtype, c.weight.dtype);
      ExpectClose(result["d_bias"], d_bias.value, steps, d_bias.scale, d_bias.stored);
    }
  });
}

TEST(Linear, BackwardIsTheDerivative) {
  Random random(53);
  for (Activation activation : kActivations) {
    CheckGradient(LayerCall("Linear")
                      .With("x", random.Normal(DType::kFloat64, {4, 3}))
                      .With("weight", random.Normal(DType::kFloat64, {5, 3}))
                      .With("bias", random.Normal(DType::kFloat64, {5}))
                      .Ask("pre_activation")
                      .Set("activation", activation),
                  "y", {"x", "weight", "bias"});
  }
}

// A NaN in x must reach y through every fused activation.
TEST(Linear, KeepsNaN) {
  for (DType dtype : ComputedDTypes()) {
    for (Activation activation : kActivations) {
      for (bool has_bias : {false, true}) {
        Array x(dtype, {16, 64}, 0.5);
        x.Set(3 * 64 + 5, NAN);
        LayerCall call("Linear");
        call.With("x", x)
            .With("weight", Array(dtype, {32, 64}, 0.25))
            .Set("activation", activation);
        if (has_bias) call.With("bias", Array(dtype, {32}, 1.0));
        const Result result = call.Run();
        for (int64_t i = 0; i < 16 * 32; ++i) {
          EXPECT_EQ(std::isnan(result["y"][i]), i / 32 == 3)
              << NameOf(dtype) << " activation " << static_cast<int>(activation) << " by "
              << result.kernel;
        }
      }
    }
  }
}

// Gradients that are not asked for are not computed.
TEST(Linear, BackwardOfOneGradientAtATime) {
  Random random(54);
  LayerCall all("LinearBackward");
  all.With("x", random.Normal(DType::kFloat32, {6, 3}))
      .With("weight", random.Normal(DType::kFloat32, {4, 3}))
      .With("bias", random.Normal(DType::kFloat32, {4}))
      .With("d_y", random.Normal(DType::kFloat32, {6, 4}));
  LayerCall every = all;
  const Result expected = every.Ask("d_x").Ask("d_weight").Ask("d_bias").Run();
  for (const char* field : {"d_x", "d_weight", "d_bias"}) {
    LayerCall one = all;
    const Result result = one.Ask(field).Run();
    EXPECT_EQ(result.fields.size(), 1u);
    ExpectSame(result[field], expected[field]);
  }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  LayerCall call("Linear");
  call.With("x", Array(DType::kFloat32, {2, 3}, 1.0))
      .With("weight", Array(DType::kFloat32, {5, 4}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidShape, "weight", "[out_features, 3]", "[5, 4]");
  call.With("weight", Array(DType::kFloat32, {3}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidShape, "weight", "", "[3]");
  call.With("weight", Array(DType::kFloat16, {5, 3}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidDType, "weight", "float32", "float16");
  call.With("weight", Array(DType::kFloat32, {5, 3}, 1.0));
  ExpectError(call.With("bias", Array(DType::kFloat32, {3}, 1.0)).Infer(), Reason::kInvalidShape,
              "bias", "[5]", "[3]");
  ExpectError(call.With("bias", Array(DType::kBFloat16, {5}, 1.0)).Infer(), Reason::kInvalidDType,
              "bias", "float32", "bfloat16");
  call.Without("bias");
  ExpectError(call.Set("activation", 9).Infer(), Reason::kInvalidAttribute, "activation");
  call.Set("activation", Activation::kNone).With("x", Array::Scalar(DType::kFloat32, 1));
  ExpectError(call.Infer(), Reason::kInvalidShape, "x", "at least 1 dimension", "[]");
  call.With("x", Array::Ints({3}, {1, 2, 3}));
  ExpectError(call.Infer(), Reason::kInvalidDType, "x");
  call.With("x", Array(DType::kFloat16, {2, 3}, 1.0))
      .With("weight", Array(DType::kBFloat16, {5, 3}, 1.0));
  ExpectError(call.Infer(), Reason::kInvalidDType, "weight", "float16 or float32", "bfloat16");

  LayerCall backward("LinearBackward");
  backward.With("x", Array(DType::kFloat32, {2, 3}, 1.0))
      .With("weight", Array(DType::kFloat32, {5, 3}, 1.0))
      .With("d_y", Array(DType::kFloat32, {2, 4}, 1.0));
  ExpectError(backward.Infer(), Reason::kInvalidShape, "d_y", "[2, 5]", "[2, 4]");
  backward.With("d_y", Array(DType::kFloat32, {2, 5}, 1.0));
  ExpectError(backward.Ask("d_bias").Infer(), Reason::kMissingField, "bias", "d_bias");
  backward.Without("d_bias").Set("activation", Activation::kRelu);
  ExpectError(backward.Infer(), Reason::kMissingField, "pre_activation", "activation");
  backward.With("pre_activation", Array(DType::kFloat32, {5, 2}, 1.0));
  ExpectError(backward.Infer(), Reason::kInvalidShape, "pre_activation", "[2, 5]", "[5, 2]");
}

}  // namespace
}  // namespace kernelbox::testing
