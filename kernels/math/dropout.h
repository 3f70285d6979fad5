// Dropout's rule for one element.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// Drops an element when its random word, divided by 2^32, is less than p; scales the others by
// 1 / (1 - p). A dropped element is 0 whatever it was.
struct DropoutRule {
  uint64_t threshold;
  double scale;

  // p in [0, 1].
  explicit DropoutRule(double p)
      : threshold(static_cast<uint64_t>(std::ceil(p * 0x1p32))), scale(p < 1 ? 1 / (1 - p) : 0) {}

  template <class S>
  KB_HOST_DEVICE S Apply(uint32_t word, S x) const {
    return word < threshold ? S(0) : x * static_cast<S>(scale);
  }
};

}  // namespace kernelbox::math
