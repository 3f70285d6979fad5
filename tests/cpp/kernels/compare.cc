#include "compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kernelbox::testing {

std::vector<DType> ComputedDTypes() {
  std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  if (TestedBackend() == Backend::kCpu) dtypes.push_back(DType::kFloat64);
  return dtypes;
}

void ExpectClose(const Array& got, const std::vector<double>& reference, double steps,
                 const std::vector<double>& scale, const std::vector<double>& extra) {
  ASSERT_EQ(static_cast<size_t>(got.Count()), reference.size());
  const double step =
      Epsilon(got.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32) * steps;
  int failures = 0;
  for (int64_t i = 0; i < got.Count() && failures < 5; ++i) {
    const double value = got[i];
    const double expected = reference[static_cast<size_t>(i)];
    if (std::isnan(expected)) {
      if (!std::isnan(value)) ++failures;
      EXPECT_TRUE(std::isnan(value)) << "element " << i << " is " << value << ", not NaN";
      continue;
    }
    const double size = scale.empty() ? std::abs(expected) : scale[static_cast<size_t>(i)];
    // The sum of both: what is off before rounding may be off by half a place more after it.
    const double allowed = (std::abs(expected) * Epsilon(got.dtype) / 2 + step * size) * 1.001 +
                           Tiniest(got.dtype) + (extra.empty() ? 0 : extra[static_cast<size_t>(i)]);
    const bool overflowed = std::isinf(Rounded(got.dtype, expected));
    const bool close =
        overflowed ? value == Rounded(got.dtype, expected) : std::abs(value - expected) <= allowed;
    if (!close) ++failures;
    EXPECT_TRUE(close) << "element " << i << " of " << NameOf(got.dtype) << " is " << value << ", "
                       << expected << " was expected, " << allowed << " off is allowed";
  }
}

void ExpectSame(const Array& got, const Array& expected) {
  EXPECT_EQ(got.dtype, expected.dtype);
  EXPECT_EQ(got.shape, expected.shape);
  EXPECT_EQ(got.bytes, expected.bytes);
}

void ExpectError(const Status& status, Reason reason, const std::string& field,
                 const std::string& expected, const std::string& given) {
  EXPECT_EQ(status.reason, reason);
  EXPECT_EQ(std::string(status.field), field);
  EXPECT_NE(std::string(status.expected).find(expected), std::string::npos)
      << "expected: " << status.expected;
  EXPECT_NE(std::string(status.given).find(given), std::string::npos) << "given: " << status.given;
  EXPECT_FALSE(status.ok());
}

void CheckGradient(const LayerCall& call, const std::string& output,
                   const std::vector<std::string>& inputs) {
  const Result forward = call.Run(Backend::kCpu);
  ASSERT_TRUE(forward.status.ok()) << forward.status.field << ": " << forward.status.expected;
  Random random(17);
  const Array gradient = random.Normal(DType::kFloat64, forward[output].shape);
  const Result backward = BackwardOf(call, forward, {{"d_" + output, gradient}}).Run(Backend::kCpu);
  ASSERT_TRUE(backward.status.ok()) << backward.status.field << ": " << backward.status.expected;
  const auto loss = [&](const LayerCall& at) {
    const Result result = at.Run(Backend::kCpu);
    double sum = 0;
    for (int64_t i = 0; i < gradient.Count(); ++i) sum += gradient[i] * result[output][i];
    return sum;
  };
  for (const std::string& input : inputs) {
    const Array& analytic = backward["d_" + input];
    for (int64_t i = 0; i < analytic.Count(); ++i) {
      LayerCall moved = call;
      const double x = moved[input][i];
      const double h = 1e-5;
      moved[input].Set(i, x + h);
      const double above = loss(moved);
      moved[input].Set(i, x - h);
      const double below = loss(moved);
      const double numeric = (above - below) / (2 * h);
      // Central differences are off by h^2 of the third derivative and 1e-16 / h of the value.
      EXPECT_NEAR(analytic[i], numeric, 1e-7 * (1 + std::abs(numeric)))
          << "d_" << input << " " << i;
    }
  }
}

std::vector<double> AwkwardNumbers() {
  const double infinity = std::numeric_limits<double>::infinity();
  return {0.0,  -0.0, 1.0,   -1.0, 0.5,   -0.5, 1e-7,  -1e-7,    3.0,       -3.0, 8.0,
          -8.0, 30.0, -30.0, 1e4,  -1e4,  6e-8, -6e-8, infinity, -infinity, NAN,  2.5,
          -2.5, 0.75, -0.75, 12.0, -12.0, 5.5,  -5.5,  100.0,    -100.0};
}

std::vector<int64_t> OddSizes() { return {0, 1, 2, 3, 7, 31, 33, 127, 257, 1021, 4099}; }

}  // namespace kernelbox::testing
