// Distributions made from Philox blocks. All arithmetic is in double and rounded once, so that
// cpu and cuda draw the same numbers (up to the last bit of log, sin and cos, which a rounding to
// float hides).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/math/convert.h"
#include "kernels/math/philox.h"

namespace kernelbox::math {

// How many elements of type T one Philox block yields.
template <class T>
inline constexpr int kPerBlock = std::is_same_v<T, double> ? 2 : 4;

// Element k of a block as a number in [0, 1): 24 bits of lane k, or for double 53 bits of the
// 64-bit word whose low half is lane 2k and whose high half is lane 2k + 1.
template <class T>
KB_HOST_DEVICE double Unit(const PhiloxBlock& block, int k) {
  if constexpr (std::is_same_v<T, double>) {
    const uint64_t word =
        (static_cast<uint64_t>(block.lanes[2 * k + 1]) << 32) | block.lanes[2 * k];
    return static_cast<double>(word >> 11) * 0x1p-53;
  } else {
    return static_cast<double>(block.lanes[k] >> 8) * 0x1p-24;
  }
}

// Uniform in [low, low + range): low + range * u. `limit` is the largest T below low + range,
// which rounding must not pass.
template <class T>
struct UniformDraw {
  double low;
  double range;
  T limit;

  KB_HOST_DEVICE void operator()(const PhiloxBlock& block, T* y) const {
    for (int k = 0; k < kPerBlock<T>; ++k) {
      const T value = Convert<T>(std::fma(range, Unit<T>(block, k), low));
      y[k] = Convert<double>(value) > Convert<double>(limit) ? limit : value;
    }
  }
};

// Normal, by Box and Muller's transform of pairs (u1, u2) of a block's uniform numbers:
// sqrt(-2 log(1 - u1)) times cos(2 pi u2) and sin(2 pi u2). 1 - u1 is never 0.
template <class T>
struct NormalDraw {
  double mean;
  double std;

  KB_HOST_DEVICE void operator()(const PhiloxBlock& block, T* y) const {
    for (int k = 0; k < kPerBlock<T>; k += 2) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - Unit<T>(block, k)));
      const double angle = 6.283185307179586477 * Unit<T>(block, k + 1);
      y[k] = Convert<T>(std::fma(std, radius * std::cos(angle), mean));
      y[k + 1] = Convert<T>(std::fma(std, radius * std::sin(angle), mean));
    }
  }
};

}  // namespace kernelbox::math
