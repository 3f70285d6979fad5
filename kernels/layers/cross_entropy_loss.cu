// CrossEntropyLoss: y = mean or sum over rows of w_t (log(sum_c exp(x_c)) - x_t), with label
// smoothing as in kernels/math/cross_entropy.h. Backward: d_x = d_y w_t (softmax(x) - onehot(t)).
// The mean divides by the sum of w_t over the rows that count; none is NaN, as in torch.
#include "kernels/attributes.h"
#include "kernels/engine.h"
#include "kernels/layer.h"
#include "kernels/loss_rows.h"
#include "kernels/workspace.h"

#ifdef __CUDACC__
#include "kernels/device/cross_entropy.h"
#endif

namespace kernelbox {
namespace {

struct CrossEntropyLoss {
  static constexpr bool kHasDataErrors = true;
  In x, target;
  OptionalIn weight;
  Out y;
  OptionalOut log_sum_exp, total_weight;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
};

struct CrossEntropyLossBackward {
  static constexpr bool kHasDataErrors = true;
  In x, target;
  OptionalIn weight;
  In log_sum_exp, total_weight, d_y;
  Out d_x;
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
};

// Checks what both directions take and gives `y` the forward's dtype and shape.
template <class A>
Status InferLoss(A& a, Tensor& y) {
  KB_RETURN_IF_ERROR(CheckEnum("reduction", a.reduction, Reduction::kMean, Reduction::kSum));
  KB_RETURN_IF_ERROR(CheckRange("label_smoothing", a.label_smoothing, 0, 1));
  KB_RETURN_IF_ERROR(CheckClassTargets(a.x, a.target));
  const DType dtype = a.x.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (a.weight) {
    KB_RETURN_IF_ERROR(CheckDType("weight", a.weight, dtype));
    KB_RETURN_IF_ERROR(CheckShape("weight", a.weight, {ClassRows(a.x).classes}));
  }
  y.Set(dtype, a.target.shape, a.reduction == Reduction::kNone ? a.target.rank : 0);
  return Status::Ok();
}

Status Infer(CrossEntropyLoss& a) {
  KB_RETURN_IF_ERROR(InferLoss(a, a.y));
  a.log_sum_exp.Set(a.y.dtype, a.target.shape, a.target.rank);
  a.total_weight.Set(a.y.dtype, {});
  return Status::Ok();
}

Status Infer(CrossEntropyLossBackward& a) {
  Tensor y;
  KB_RETURN_IF_ERROR(InferLoss(a, y));
  KB_RETURN_IF_ERROR(CheckDType("log_sum_exp", a.log_sum_exp, y.dtype));
  KB_RETURN_IF_ERROR(CheckLike("log_sum_exp", a.log_sum_exp, "target", a.target));
  KB_RETURN_IF_ERROR(CheckDType("total_weight", a.total_weight, y.dtype));
  KB_RETURN_IF_ERROR(CheckShape("total_weight", a.total_weight, {}));
  KB_RETURN_IF_ERROR(CheckDType("d_y", a.d_y, y.dtype));
  KB_RETURN_IF_ERROR(CheckLike("d_y", a.d_y, "y", y));
  a.d_x.SetLike(a.x);
  return Status::Ok();
}

// The workspace of forward: each row's loss and weight, and partial sums of the two.
struct Scratch {
  void* row_loss;
  void* row_weight;
  void* partial;
  size_t bytes;

  Scratch(const CrossEntropyLoss& a, void* base) {
    Arena arena(base);
    const size_t row_bytes = static_cast<size_t>(ClassRows(a.x).rows) * SizeOf(a.y.dtype);
    row_loss = arena.Take(row_bytes);
    row_weight = arena.Take(row_bytes);
    partial = arena.Take(kPartialSums * 2 * sizeof(double));
    bytes = arena.Used();
    if (a.reduction == Reduction::kNone) row_loss = a.y.data;
  }
};

size_t Workspace(const CrossEntropyLoss& a, const Device&) { return Scratch(a, nullptr).bytes; }
// The sum of the class weights.
size_t Workspace(const CrossEntropyLossBackward&, const Device&) { return sizeof(double); }

// Fails for the first target out of range.
Status CheckTargets(const ClassTargets& targets, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    if (targets.Class(row) == ClassTargets::kOutOfRange) return TargetOutOfRange(targets, row);
  }
  return Status::Ok();
}

template <class T>
LossRow<Accumulator<T>> CpuRow(const LossInput<T>& in, int64_t row) {
  using S = Accumulator<T>;
  constexpr int kN = 8;
  const T* x = in.x + in.rows.Start(row);
  RowSums<S> sums;
  for (int64_t first = 0; first < in.rows.classes; first += kN) {
    const int64_t valid = std::min<int64_t>(kN, in.rows.classes - first);
    S values[kN] = {};
    for (int64_t k = 0; k < valid; ++k) {
      values[k] = static_cast<S>(x[(first + k) * in.rows.inner]);
    }
    sums.Add(in, first, valid, values);
  }
  return in.Finish(row, sums);
}

Status Cpu(const CrossEntropyLoss& a, Context& context) {
  const ClassRows rows(a.x);
  const ClassTargets targets(a.target, rows.classes, a.ignore_index);
  KB_RETURN_IF_ERROR(CheckTargets(targets, rows.rows));
  const Scratch scratch(a, context.workspace);
  return DispatchFloating(a.x.dtype, [&]<class T>(TypeTag<T>) {
    using S = Accumulator<T>;
    const LossInput<T> in(a, rows, targets);
    S* loss = static_cast<S*>(scratch.row_loss);
    S* weight = static_cast<S*>(scratch.row_weight);
    S* log_sum_exp = a.log_sum_exp ? a.log_sum_exp.Data<S>() : nullptr;
    cpu::ParallelFor(
        rows.rows,
        [&](int64_t row) {
          const LossRow<S> result = CpuRow(in, row);
          loss[row] = result.loss;
          weight[row] = result.weight;
          if (log_sum_exp != nullptr) log_sum_exp[row] = result.log_sum_exp;
        },
        cpu::kGrain / 8 / (rows.classes + 1));
    const double total_weight = cpu::SumStrided(weight, rows.rows, 1);
    if (a.total_weight) *a.total_weight.Data<S>() = static_cast<S>(total_weight);
    if (a.reduction == Reduction::kNone) return Status::Ok();
    const double sum = cpu::SumStrided(loss, rows.rows, 1);
    *a.y.Data<S>() = static_cast<S>(a.reduction == Reduction::kMean ? sum / total_weight : sum);
    return Status::Ok();
  });
}

Status Cpu(const CrossEntropyLossBackward& a, Context&) {
  const ClassRows rows(a.x);
  const ClassTargets targets(a.target, rows.classes, a.ignore_index);
  KB_RETURN_IF_ERROR(CheckTargets(targets, rows.rows));
  return DispatchFloating(a.x.dtype, [&]<class T>(TypeTag<T>) {
    using S = Accumulator<T>;
    const LossInput<T> in(a, rows, targets);
    const LossGradient<T> gradient(a);
    const double weights = in.weight == nullptr ? static_cast<double>(rows.classes)
                                                : cpu::SumStrided(in.weight, rows.classes, 1);
    T* d_x = a.d_x.Data<T>();
    cpu::ParallelFor(
        rows.rows,
        [&](int64_t row) {
          const int64_t start = rows.Start(row);
          const int64_t target = targets.Class(row);
          const auto element = gradient.Row(in, row, target, weights);
          for (int64_t c = 0; c < rows.classes; ++c) {
            const int64_t i = start + c * rows.inner;
            d_x[i] = target < 0 ? T(S(0))
                                : T(element(static_cast<S>(in.x[i]), c == target, in.Weight(c)));
          }
        },
        cpu::kGrain / 8 / (rows.classes + 1));
    return Status::Ok();
  });
}

#ifdef __CUDACC__
// Says what the target should have held, should a kernel report one out of range.
void DescribeFault(const ClassTargets& targets, Context& context) {
  snprintf(context.data_error_field, sizeof context.data_error_field, "target");
  FormatTargetRange(targets, context.data_error_expected, sizeof context.data_error_expected);
}

Status Cuda(const CrossEntropyLoss& a, Context& context) {
  const ClassRows rows(a.x);
  const ClassTargets targets(a.target, rows.classes, a.ignore_index);
  const Scratch scratch(a, context.workspace);
  DescribeFault(targets, context);
  return DispatchFloating32(a.x.dtype, [&]<class T>(TypeTag<T>) {
    const device::LossOutput<float> out{
        static_cast<float*>(scratch.row_loss), static_cast<float*>(scratch.row_weight),
        a.log_sum_exp ? a.log_sum_exp.Data<float>() : nullptr, context.data_error};
    KB_RETURN_IF_ERROR(device::LaunchLoss(context, LossInput<T>(a, rows, targets), out));
    return device::LaunchReduceLoss(context, rows.rows, out.loss, out.weight, scratch.partial,
                                    a.reduction == Reduction::kMean,
                                    a.reduction == Reduction::kNone ? nullptr : a.y.Data<float>(),
                                    a.total_weight ? a.total_weight.Data<float>() : nullptr);
  });
}

Status Cuda(const CrossEntropyLossBackward& a, Context& context) {
  const ClassRows rows(a.x);
  const ClassTargets targets(a.target, rows.classes, a.ignore_index);
  DescribeFault(targets, context);
  return DispatchFloating32(a.x.dtype, [&]<class T>(TypeTag<T>) {
    const LossInput<T> in(a, rows, targets);
    double* weights = static_cast<double*>(context.workspace);
    KB_RETURN_IF_ERROR(device::LaunchSumWeights(context, rows.classes, in.weight, weights));
    return device::LaunchLossBackward(context, in, LossGradient<T>(a), weights, a.d_x.Data<T>());
  });
}
#endif

KB_LAYER_WITH_WORKSPACE(CrossEntropyLoss, x, target, weight, y, log_sum_exp, total_weight,
                        ignore_index, reduction, label_smoothing);
KB_LAYER_WITH_WORKSPACE(CrossEntropyLossBackward, x, target, weight, log_sum_exp, total_weight, d_y,
                        d_x, ignore_index, reduction, label_smoothing);

}  // namespace
}  // namespace kernelbox
