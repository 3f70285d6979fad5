// Conversion between any two element types with one rounding, to nearest even.
#pragma once

#include <limits>
#include <type_traits>

#include "kernels/dtype.h"

namespace kernelbox::math {

// Cuts `value` to a float toward zero and sets the last bit if anything was lost ("round to odd").
// Rounding the result to 16 bits gives what rounding `value` itself would; rounding twice to
// nearest would not.
KB_HOST_DEVICE float OddFloat(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  uint32_t bits = kernelbox::internal::BitsOf(nearest);
  if ((value < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;
  return kernelbox::internal::FloatOf(bits | 1u);
}

// The same from an integer to a double.
KB_HOST_DEVICE double OddDouble(int64_t value) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (magnitude < (uint64_t{1} << 53)) return static_cast<double>(value);
  const uint64_t cut = (magnitude >> 11) | ((magnitude & 2047u) != 0 ? 1u : 0u);
  const double result = static_cast<double>(cut) * 2048.0;
  return value < 0 ? -result : result;
}

// Truncates; what does not fit saturates and NaN gives 0. `value` is a double or an int64_t.
template <class To, class From>
KB_HOST_DEVICE To SaturatingInteger(From value) {
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  if (value != value) return To(0);
  if (value <= static_cast<From>(kLow)) return kLow;
  if (value >= static_cast<From>(kHigh)) return kHigh;
  return static_cast<To>(value);
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class To, class From>
KB_HOST_DEVICE To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return Convert<To>(static_cast<uint8_t>(value.byte != 0 ? 1 : 0));
  } else if constexpr (kIsHalf<From>) {
    return Convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<uint8_t>(value != From(0) ? 1 : 0)};
  } else if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<From, float>) {
      return To(value);
    } else if constexpr (std::is_same_v<From, int64_t>) {
      return To(OddFloat(OddDouble(value)));
    } else {
      return To(OddFloat(static_cast<double>(value)));
    }
  } else if constexpr (std::is_integral_v<To>) {
    using Widest = std::conditional_t<std::is_integral_v<From>, int64_t, double>;
    return SaturatingInteger<To>(static_cast<Widest>(value));
  } else {
    return static_cast<To>(value);
  }
}

// As a functor, for Map.
template <class To>
struct ConvertTo {
  template <class From>
  KB_HOST_DEVICE To operator()(From value) const {
    return Convert<To>(value);
  }
};

}  // namespace kernelbox::math
