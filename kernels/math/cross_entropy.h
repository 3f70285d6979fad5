// The cross entropy of one row of logits x with target class t, torch.nn.CrossEntropyLoss's
// formula with class weights w and label smoothing e over C classes:
//   (1 - e) w_t (lse - x_t) + e / C * sum_c w_c (lse - x_c),  lse = log(sum_c exp(x_c))
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// `weights` is sum_c w_c, `weighted_x` is sum_c w_c x_c; neither is looked at without smoothing.
template <class S>
KB_HOST_DEVICE S CrossEntropy(S log_sum_exp, S target_x, S target_weight, double smoothing,
                              int64_t classes, double weights, double weighted_x) {
  const S nll = target_weight * (log_sum_exp - target_x);
  if (smoothing == 0) return nll;
  const double uniform = static_cast<double>(log_sum_exp) * weights - weighted_x;
  return static_cast<S>((1 - smoothing) * static_cast<double>(nll) +
                        smoothing / static_cast<double>(classes) * uniform);
}

// Its derivative by x_c, times the incoming gradient: with p the softmax of x,
//   d_y ((1 - e) w_t (p_c - [c = t]) + e / C (p_c sum w - w_c))
template <class S>
struct CrossEntropyGradient {
  S log_sum_exp;
  S target_share;   // d_y (1 - e) w_t
  S uniform_share;  // d_y e / C
  S weights;        // sum of w

  KB_HOST_DEVICE CrossEntropyGradient(S lse, S d_y, S target_weight, double smoothing,
                                      int64_t classes, double sum_of_weights)
      : log_sum_exp(lse),
        target_share(d_y * static_cast<S>(1 - smoothing) * target_weight),
        uniform_share(d_y * static_cast<S>(smoothing / static_cast<double>(classes))),
        weights(static_cast<S>(sum_of_weights)) {}

  KB_HOST_DEVICE S operator()(S x, bool is_target, S class_weight) const {
    const S p = std::exp(x - log_sum_exp);
    const S direct = target_share * (is_target ? p - S(1) : p);
    return uniform_share == S(0) ? direct : direct + uniform_share * (p * weights - class_weight);
  }
};

}  // namespace kernelbox::math
