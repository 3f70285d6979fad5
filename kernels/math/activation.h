// Pointwise activations and their derivatives, torch.nn's formulas. S is float or double.
#pragma once

#include <cmath>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// max(x, 0); NaN stays NaN.
template <class S>
KB_HOST_DEVICE S Relu(S x) {
  return x > S(0) || x != x ? x : S(0);
}

// d/dx: 1 above 0, else 0 (also at 0, as torch defines it).
template <class S>
KB_HOST_DEVICE S ReluBackward(S x, S d_y) {
  return x > S(0) || x != x ? d_y : S(0);
}

}  // namespace kernelbox::math
