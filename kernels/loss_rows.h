// What the two backends of CrossEntropyLoss share: one row's inputs and results.
#pragma once

#include "kernels/attributes.h"
#include "kernels/class_rows.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/math/softmax.h"

namespace kernelbox {

template <class S>
struct LossRow {
  S loss;
  S weight;  // its share of the mean's divisor
  S log_sum_exp;
};

// A row's sums over its classes.
template <class S>
struct RowSums {
  math::LogSumExp<S> state;
  double weights = 0;     // of w_c; with label smoothing only
  double weighted_x = 0;  // of w_c x_c; likewise

  // Takes in the first `valid` of N logits x, those of classes c, c + 1, ... of a LossInput.
  template <class Input, int N>
  KB_HOST_DEVICE void Add(const Input& in, int64_t c, int64_t valid, S (&x)[N]) {
    for (int k = 0; k < N; ++k) {
      if (k >= valid) {
        x[k] = -std::numeric_limits<S>::infinity();
      } else if (in.smoothing != 0) {
        const double weight = static_cast<double>(in.Weight(c + k));
        weights += weight;
        weighted_x += weight * static_cast<double>(x[k]);
      }
    }
    state.Add(x);
  }
  KB_HOST_DEVICE void Merge(const RowSums& other) {
    state.Merge(other.state);
    weights += other.weights;
    weighted_x += other.weighted_x;
  }
};

// Logits of type T with their targets and class weights.
template <class T>
struct LossInput {
  using S = Accumulator<T>;
  ClassRows rows;
  ClassTargets targets;
  const T* x;
  const S* weight;  // of the classes; null: all 1
  double smoothing;

  template <class A>
  LossInput(const A& a, const ClassRows& class_rows, const ClassTargets& class_targets)
      : rows(class_rows),
        targets(class_targets),
        x(a.x.template Data<T>()),
        weight(a.weight ? a.weight.template Data<S>() : nullptr),
        smoothing(a.label_smoothing) {}

  KB_HOST_DEVICE S Weight(int64_t c) const { return weight == nullptr ? S(1) : weight[c]; }

  // The row's results, given the sums over its classes. A target out of range reads nothing.
  KB_HOST_DEVICE LossRow<S> Finish(int64_t row, const RowSums<S>& sums) const {
    const S log_sum_exp = sums.state.Value();
    const int64_t target = targets.Class(row);
    if (target < 0) return {S(0), S(0), log_sum_exp};
    const S target_x = static_cast<S>(x[rows.Start(row) + target * rows.inner]);
    const S target_weight = Weight(target);
    return {math::CrossEntropy(log_sum_exp, target_x, target_weight, smoothing, rows.classes,
                               sums.weights, sums.weighted_x),
            target_weight, log_sum_exp};
  }
};

// What comes in for backward besides the input.
template <class T>
struct LossGradient {
  using S = Accumulator<T>;
  const S* log_sum_exp;
  const S* total_weight;
  const S* d_y;
  Reduction reduction;

  template <class A>
  explicit LossGradient(const A& a)
      : log_sum_exp(a.log_sum_exp.template Data<S>()),
        total_weight(a.total_weight.template Data<S>()),
        d_y(a.d_y.template Data<S>()),
        reduction(a.reduction) {}

  // The gradient of a row's elements; of no use for a target below 0. `weights` is the sum of the
  // class weights.
  KB_HOST_DEVICE math::CrossEntropyGradient<S> Row(const LossInput<T>& in, int64_t row,
                                                   int64_t target, double weights) const {
    S scale = d_y[reduction == Reduction::kNone ? row : 0];
    if (reduction == Reduction::kMean) scale /= *total_weight;
    const S target_weight = target < 0 ? S(0) : in.Weight(target);
    return {log_sum_exp[row], scale, target_weight, in.smoothing, in.rows.classes, weights};
  }
};

// Most partial sums of losses and weights that cuda takes before the last.
inline constexpr int kPartialSums = 256;

}  // namespace kernelbox
