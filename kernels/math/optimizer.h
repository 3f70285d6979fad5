// One element's update by an optimizer: torch.optim's formulas, in its order of operations.
// S is float or double.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/portable.h"

namespace kernelbox::math {

struct SgdOptions {
  double momentum, dampening, weight_decay;
  bool nesterov, maximize;
};

// torch.optim.SGD.
template <class S>
struct SgdRule {
  S lr, momentum, undampened, weight_decay;
  bool nesterov, maximize, first;

  // `steps_done` counts the steps before this one: the first sets the momentum buffer to the
  // gradient.
  KB_HOST_DEVICE SgdRule(const SgdOptions& o, double learning_rate, int64_t steps_done)
      : lr(static_cast<S>(learning_rate)),
        momentum(static_cast<S>(o.momentum)),
        undampened(static_cast<S>(1 - o.dampening)),
        weight_decay(static_cast<S>(o.weight_decay)),
        nesterov(o.nesterov),
        maximize(o.maximize),
        first(steps_done == 0) {}

  KB_HOST_DEVICE void Apply(S& param, S grad, S& buffer) const {
    if (maximize) grad = -grad;
    if (weight_decay != S(0)) grad += weight_decay * param;
    if (momentum != S(0)) {
      buffer = first ? grad : momentum * buffer + undampened * grad;
      grad = nesterov ? grad + momentum * buffer : buffer;
    }
    param -= lr * grad;
  }
};

struct AdamWOptions {
  double beta1, beta2, eps, weight_decay;
  bool amsgrad, maximize;
};

// torch.optim.AdamW. The bias corrections are computed in double, once a step.
template <class S>
struct AdamWRule {
  S decay, grad_share, beta2, square_share, step_size, root_of_correction, eps;
  bool amsgrad, maximize;

  // `steps_done` counts the steps before this one.
  KB_HOST_DEVICE AdamWRule(const AdamWOptions& o, double lr, int64_t steps_done)
      : decay(static_cast<S>(1 - lr * o.weight_decay)),
        grad_share(static_cast<S>(1 - o.beta1)),
        beta2(static_cast<S>(o.beta2)),
        square_share(static_cast<S>(1 - o.beta2)),
        eps(static_cast<S>(o.eps)),
        amsgrad(o.amsgrad),
        maximize(o.maximize) {
    const double step = static_cast<double>(steps_done) + 1;
    step_size = static_cast<S>(lr / (1 - std::pow(o.beta1, step)));
    root_of_correction = static_cast<S>(std::sqrt(1 - std::pow(o.beta2, step)));
  }

  KB_HOST_DEVICE void Apply(S& param, S grad, S& average, S& square, S& largest_square) const {
    if (maximize) grad = -grad;
    param *= decay;
    average += grad_share * (grad - average);
    square = beta2 * square + square_share * grad * grad;
    S denominator = square;
    if (amsgrad) {
      // torch.maximum: NaN wins.
      if (square > largest_square || square != square) largest_square = square;
      denominator = largest_square;
    }
    param -= step_size * average / (std::sqrt(denominator) / root_of_correction + eps);
  }
};

}  // namespace kernelbox::math
