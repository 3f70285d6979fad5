// ReLU and GELU.
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "kernels/attributes.h"

namespace kernelbox::testing {
namespace {

double Cube(double x) { return x * x * x; }

double Gelu(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }

double GeluSlope(double x) {
  if (std::isinf(x)) return x > 0 ? 1 : 0;
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * Cube(x))));
}

double GeluTanhSlope(double x) {
  if (std::abs(x) > 20) return std::isnan(x) ? x : x > 0 ? 1 : 0;
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * Cube(x));
  const double cosh = std::cosh(u);
  return 0.5 * (1 + std::tanh(u)) +
         0.5 * x / (cosh * cosh) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

std::vector<double> Mapped(const Array& x, double (*f)(double)) {
  std::vector<double> values = x.Values();
  for (double& value : values) value = f(value);
  return values;
}

// f(x) * d_y.
std::vector<double> Mapped(const Array& x, double (*f)(double), const Array& d_y) {
  std::vector<double> values = Mapped(x, f);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= d_y[static_cast<int64_t>(i)];
  return values;
}

// Inputs of every odd size, aligned and not; the awkward numbers among them.
template <class Check>
void ForEachInput(Check check) {
  Random random(11);
  for (DType dtype : ComputedDTypes()) {
    const std::vector<double> awkward = AwkwardNumbers();
    for (int64_t size : OddSizes()) {
      Array x = random.Normal(dtype, {size}, 2);
      for (int64_t i = 0; i < size; i += 3) {
        x.Set(i, awkward[static_cast<size_t>(i / 3) % awkward.size()]);
      }
      for (bool misaligned : {false, true}) {
        SCOPED_TRACE(std::string(NameOf(dtype)) + " of " + std::to_string(size));
        check(x, random.Normal(dtype, {size}), misaligned);
      }
    }
  }
}

TEST(ReLU, IsExact) {
  ForEachInput([](const Array& x, const Array& d_y, bool misaligned) {
    const auto relu = [](double v) { return v <= 0 ? 0 : v; };
    const auto slope = [](double v) { return v <= 0 ? 0.0 : 1.0; };
    const Result y = LayerCall("ReLU").With("x", x).Misaligned(misaligned).Run();
    ExpectClose(y["y"], Mapped(x, relu), 0);
    const Result d_x =
        LayerCall("ReLUBackward").With("x", x).With("d_y", d_y).Misaligned(misaligned).Run();
    ExpectClose(d_x["d_x"], Mapped(x, slope, d_y), 0);
  });
}

// erfc in the tail magnifies the rounding of its argument z by 2 z^2.
TEST(GELU, IsCloseByErf) {
  ForEachInput([](const Array& x, const Array& d_y, bool misaligned) {
    const Result y = LayerCall("GELU").With("x", x).Misaligned(misaligned).Run();
    std::vector<double> scale;
    std::vector<double> slope_scale;
    for (int64_t i = 0; i < x.Count(); ++i) {
      scale.push_back(std::abs(Gelu(x[i])) * (1 + x[i] * x[i]));
      slope_scale.push_back(std::abs(d_y[i]) * 2);
    }
    ExpectClose(y["y"], Mapped(x, Gelu), 8, scale);
    const Result d_x =
        LayerCall("GELUBackward").With("x", x).With("d_y", d_y).Misaligned(misaligned).Run();
    ExpectClose(d_x["d_x"], Mapped(x, GeluSlope, d_y), 8, slope_scale);
  });
}

// 1 + tanh cancels below 0; what is left of the rounding is in proportion to x. In the slope the
// rounding of tanh is magnified by x times the inner derivative, until tanh is 1.
TEST(GELU, IsCloseByTanh) {
  ForEachInput([](const Array& x, const Array& d_y, bool misaligned) {
    const auto approximate = GeluApproximate::kTanh;
    const Result y =
        LayerCall("GELU").With("x", x).Set("approximate", approximate).Misaligned(misaligned).Run();
    std::vector<double> scale;
    std::vector<double> slope_scale;
    for (int64_t i = 0; i < x.Count(); ++i) {
      scale.push_back(std::abs(x[i]));
      slope_scale.push_back(std::abs(d_y[i]) * (1 + Cube(std::min(std::abs(x[i]), 8.0))));
    }
    ExpectClose(y["y"], Mapped(x, GeluTanh), 8, scale);
    const Result d_x = LayerCall("GELUBackward")
                           .With("x", x)
                           .With("d_y", d_y)
                           .Set("approximate", approximate)
                           .Misaligned(misaligned)
                           .Run();
    ExpectClose(d_x["d_x"], Mapped(x, GeluTanhSlope, d_y), 8, slope_scale);
  });
}

TEST(GELU, BackwardIsTheDerivative) {
  Random random(12);
  for (auto approximate : {GeluApproximate::kNone, GeluApproximate::kTanh}) {
    CheckGradient(LayerCall("GELU")
                      .With("x", random.Normal(DType::kFloat64, {3, 7}, 2))
                      .Set("approximate", approximate),
                  "y", {"x"});
  }
}

TEST(Pointwise, KeepsChannelsLast) {
  Random random(13);
  Array x = random.Normal(DType::kFloat32, {2, 3, 4, 5});
  x.layout = Layout::kChannelsLast;
  const Result result = LayerCall("ReLU").With("x", x).Run();
  EXPECT_EQ(result["y"].layout, Layout::kChannelsLast);
  LayerCall backward("ReLUBackward");
  backward.With("x", x).With("d_y", random.Normal(DType::kFloat32, {2, 3, 4, 5}));
  ExpectError(backward.Infer(), Reason::kUnsupported, "d_y", "layout of x");
}

TEST(Pointwise, RefusesWhatDoesNotFit) {
  for (const char* layer : {"ReLU", "GELU"}) {
    ExpectError(LayerCall(layer).With("x", Array::Ints({2}, {1, 2})).Infer(), Reason::kInvalidDType,
                "x", "float32", "int64");
    LayerCall backward(std::string(layer) + "Backward");
    backward.With("x", Array(DType::kFloat32, {2, 3}, 1.0));
    ExpectError(backward.With("d_y", Array(DType::kFloat16, {2, 3}, 1.0)).Infer(),
                Reason::kInvalidDType, "d_y", "float32", "float16");
    ExpectError(backward.With("d_y", Array(DType::kFloat32, {3, 2}, 1.0)).Infer(),
                Reason::kInvalidShape, "d_y", "[2, 3], the shape of x", "[3, 2]");
  }
  LayerCall gelu("GELU");
  gelu.With("x", Array(DType::kFloat32, {2}, 1.0)).Set("approximate", 3);
  ExpectError(gelu.Infer(), Reason::kInvalidAttribute, "approximate", "1 to 2", "3");
  EXPECT_TRUE(gelu.Set("approximate", 0).Infer().ok());
}

}  // namespace
}  // namespace kernelbox::testing
