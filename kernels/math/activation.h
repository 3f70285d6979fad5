// Pointwise activations and their derivatives, torch.nn's formulas. S is float or double.
//
// Each is a type with Forward(x) and Backward(x, d_y), which is d_y * d/dx Forward(x); parameters
// are its members.
#pragma once

#include <cmath>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// max(x, 0); NaN stays NaN.
struct Relu {
  template <class S>
  KB_HOST_DEVICE S Forward(S x) const {
    return x > S(0) || x != x ? x : S(0);
  }
  // 1 above 0, else 0 (also at 0, as torch defines it).
  template <class S>
  KB_HOST_DEVICE S Backward(S x, S d_y) const {
    return x > S(0) || x != x ? d_y : S(0);
  }
};

// x * Phi(x), Phi the normal distribution function: Hendrycks and Gimpel, arXiv:1606.08415.
struct Gelu {
  // By erfc, which keeps its relative accuracy where 1 + erf would cancel.
  template <class S>
  KB_HOST_DEVICE static S Phi(S x) {
    return S(0.5) * std::erfc(x * S(-0.70710678118654752440));  // -1/sqrt(2)
  }
  template <class S>
  KB_HOST_DEVICE S Forward(S x) const {
    return x * Phi(x);
  }
  template <class S>
  KB_HOST_DEVICE S Backward(S x, S d_y) const {
    const S density = S(0.39894228040143267794) * std::exp(S(-0.5) * x * x);  // 1/sqrt(2 pi)
    return d_y * (density == S(0) ? Phi(x) : Phi(x) + x * density);  // infinity * 0 is 0 here
  }
};

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the approximation of the same paper.
struct GeluTanh {
  template <class S>
  KB_HOST_DEVICE static S Tanh(S x) {
    return std::tanh(S(0.79788456080286535588) * x * (S(1) + S(0.044715) * x * x));
  }
  template <class S>
  KB_HOST_DEVICE S Forward(S x) const {
    return S(0.5) * x * (S(1) + Tanh(x));
  }
  template <class S>
  KB_HOST_DEVICE S Backward(S x, S d_y) const {
    const S tanh = Tanh(x);
    const S slope = S(1) - tanh * tanh;
    const S inner = S(0.79788456080286535588) * (S(1) + S(3 * 0.044715) * x * x);
    return d_y * S(0.5) * (S(1) + tanh + (slope == S(0) ? S(0) : x * slope * inner));
  }
};

}  // namespace kernelbox::math
