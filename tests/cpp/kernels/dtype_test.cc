// float16 and bfloat16 conversion, exhaustively, against the formats' definitions.
#include <gtest/gtest.h>

#include <cmath>

#include "compare.h"
#include "kernels/math/convert.h"

namespace kernelbox::testing {
namespace {

template <class Half>
constexpr DType kDTypeOf = std::is_same_v<Half, Float16> ? DType::kFloat16 : DType::kBFloat16;

template <class Half>
class HalfTest : public ::testing::Test {};
using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, EveryValueReadsAsDefined) {
  for (int bits = 0; bits < 65536; ++bits) {
    TypeParam half;
    half.bits = static_cast<uint16_t>(bits);
    const double value = static_cast<double>(static_cast<float>(half));
    const double expected = HalfValue(kDTypeOf<TypeParam>, half.bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(TypeParam(static_cast<float>(half)).bits, half.bits);
  }
}

// Between each two neighbours: the middle, and the floats and doubles next to it on both sides.
TYPED_TEST(HalfTest, RoundsAtEveryBoundary) {
  constexpr DType kDType = kDTypeOf<TypeParam>;
  for (int bits = 0; bits < 0x7fff; ++bits) {
    const double low = HalfValue(kDType, static_cast<uint16_t>(bits));
    double high = HalfValue(kDType, static_cast<uint16_t>(bits + 1));
    if (std::isnan(high)) break;
    if (std::isinf(high)) high = low + (low - HalfValue(kDType, static_cast<uint16_t>(bits - 1)));
    const double middle = low + (high - low) / 2;
    const float middle32 = static_cast<float>(middle);
    for (float x : {middle32, std::nextafter(middle32, 0.0F), std::nextafter(middle32, INFINITY)}) {
      for (float sign : {1.0F, -1.0F}) {
        const double value = static_cast<double>(sign * x);
        ASSERT_EQ(TypeParam(sign * x).bits, HalfBits(kDType, value)) << value;
      }
    }
    for (double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300)}) {
      ASSERT_EQ(math::Convert<TypeParam>(x).bits, HalfBits(kDType, x)) << x;
      ASSERT_EQ(math::Convert<TypeParam>(-x).bits, HalfBits(kDType, -x)) << x;
    }
  }
}

TYPED_TEST(HalfTest, KeepsNaNAndSign) {
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu, 0x7f802000u}) {
    const float nan = internal::FloatOf(bits);
    const TypeParam half(nan);
    EXPECT_TRUE(std::isnan(static_cast<float>(half)));
    EXPECT_EQ(half.bits >> 15, bits >> 31);
  }
}

TEST(Convert, IntegersRoundOnceToHalves) {
  // 2^40 + 2^32 is a tie between bfloat16 numbers; one more must go up, though float32 cannot
  // tell the two apart.
  const int64_t tie = (int64_t{1} << 40) + (int64_t{1} << 32);
  for (int64_t value : {tie, tie + 1, tie - 1, -tie, -tie - 1, INT64_MAX, INT64_MIN,
                        (int64_t{257} << 54) + 1, (int64_t{1} << 53) + 1}) {
    // Exact enough: long double holds every int64.
    const long double exact = static_cast<long double>(value);
    const double down = HalfValue(DType::kBFloat16, math::Convert<BFloat16>(value).bits);
    const double next = std::ldexp(1.0, std::ilogb(down) - 7);
    EXPECT_LE(std::abs(static_cast<long double>(down) - exact), next / 2) << value;
  }
  EXPECT_EQ(math::Convert<BFloat16>(tie).bits, HalfBits(DType::kBFloat16, 0x1p40));
  EXPECT_EQ(math::Convert<BFloat16>(tie + 1).bits, HalfBits(DType::kBFloat16, 0x1.02p40));
  EXPECT_EQ(math::Convert<Float16>(int64_t{65519}).bits, HalfBits(DType::kFloat16, 65504));
  EXPECT_EQ(math::Convert<Float16>(int64_t{65520}).bits, HalfBits(DType::kFloat16, INFINITY));
}

}  // namespace
}  // namespace kernelbox::testing
