// Softmax in one pass over a row.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// log(sum of exp(x)) as elements come in: Milakov and Gimelshein, "Online normalizer calculation
// for softmax", arXiv:1805.02867. Partial states merge, in any grouping that is kept fixed.
template <class S>
struct LogSumExp {
  S max = -std::numeric_limits<S>::infinity();
  S sum = 0;  // of exp(x - max)

  // What exponents are taken relative to: the maximum, but 0 while all x are -infinity, whose
  // difference from itself would be NaN.
  KB_HOST_DEVICE static S Shift(S max) {
    return max == -std::numeric_limits<S>::infinity() ? S(0) : max;
  }

  // Takes in N elements; pad with -infinity.
  template <int N>
  KB_HOST_DEVICE void Add(const S (&x)[N]) {
    S new_max = max;
    for (int k = 0; k < N; ++k) new_max = x[k] > new_max ? x[k] : new_max;
    const S shift = Shift(new_max);
    sum *= std::exp(max - shift);
    for (int k = 0; k < N; ++k) sum += std::exp(x[k] - shift);
    max = new_max;
  }

  KB_HOST_DEVICE void Merge(const LogSumExp& other) {
    const S new_max = other.max > max ? other.max : max;
    const S shift = Shift(new_max);
    sum = sum * std::exp(max - shift) + other.sum * std::exp(other.max - shift);
    max = new_max;
  }

  KB_HOST_DEVICE S Value() const { return Shift(max) + std::log(sum); }
};

}  // namespace kernelbox::math
