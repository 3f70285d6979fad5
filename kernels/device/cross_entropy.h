// The kernels of CrossEntropyLoss.
//
// Rows whose classes lie side by side are read by a warp, or from kWideRow classes on by a block,
// in 16-byte packs, once. In spatial logits (N, C, d1, ...) neighbouring rows lie side by side: a
// thread takes a row and its warp reads along them.
#pragma once

#include "kernels/device/fault.h"
#include "kernels/device/group.h"
#include "kernels/loss_rows.h"

namespace kernelbox::device {

inline constexpr int64_t kWideRow = 2048;
inline constexpr int kRowThreads = 512;

// Where a row's results go.
template <class S>
struct LossOutput {
  S* loss;
  S* weight;
  S* log_sum_exp;  // may be null
  DataError* error;

  template <class T>
  __device__ void Store(const LossInput<T>& in, int64_t row, const RowSums<S>& sums) const {
    const LossRow<S> result = in.Finish(row, sums);
    loss[row] = result.loss;
    weight[row] = result.weight;
    if (log_sum_exp != nullptr) log_sum_exp[row] = result.log_sum_exp;
    if (in.targets.Class(row) == ClassTargets::kOutOfRange) {
      ReportFault(error, row, in.targets.Value(row));
    }
  }
};

template <class T, int kThreads>
__global__ void __launch_bounds__(kRowThreads)
    LossRowsKernel(const LossInput<T> in, const LossOutput<Accumulator<T>> out) {
  using S = Accumulator<T>;
  constexpr int kN = 16 / sizeof(T);
  // A block's rows leave the loop together: Reduce has barriers.
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.y); first < in.rows.rows;
       first += step) {
    const int64_t row = first + threadIdx.y;
    RowSums<S> sums;
    if (row < in.rows.rows) {
      const T* x = in.x + in.rows.Start(row);
      ForEachPack<kThreads>(x, in.rows.classes, [&](int64_t c, int64_t valid, bool aligned) {
        const auto pack = LoadPack<kN>(x + c, valid, aligned);
        S values[kN];
#pragma unroll
        for (int k = 0; k < kN; ++k) values[k] = static_cast<S>(pack.items[k]);
        sums.Add(in, c, valid, values);
      });
    }
    sums = Group<kThreads>::Reduce(sums, [](RowSums<S> a, const RowSums<S>& b) {
      a.Merge(b);
      return a;
    });
    if (row < in.rows.rows && threadIdx.x == 0) out.Store(in, row, sums);
  }
}

template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    LossColumnsKernel(const LossInput<T> in, const LossOutput<Accumulator<T>> out) {
  using S = Accumulator<T>;
  constexpr int kN = 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
       row < in.rows.rows; row += step) {
    const T* x = in.x + in.rows.Start(row);
    RowSums<S> sums;
    for (int64_t c = 0; c < in.rows.classes; c += kN) {
      const int64_t valid = min(static_cast<int64_t>(kN), in.rows.classes - c);
      S values[kN];
#pragma unroll
      for (int k = 0; k < kN; ++k) {
        values[k] = k < valid ? static_cast<S>(x[(c + k) * in.rows.inner]) : S(0);
      }
      sums.Add(in, c, valid, values);
    }
    out.Store(in, row, sums);
  }
}

template <class T, int kThreads>
__global__ void __launch_bounds__(kRowThreads)
    LossRowsBackwardKernel(const LossInput<T> in, const LossGradient<T> gradient,
                           const double* weights, T* d_x, DataError* error) {
  using S = Accumulator<T>;
  constexpr int kN = 16 / sizeof(T);
  const bool alike =
      (reinterpret_cast<uintptr_t>(in.x) - reinterpret_cast<uintptr_t>(d_x)) % 16 == 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.y) + threadIdx.y;
       row < in.rows.rows; row += step) {
    const int64_t start = in.rows.Start(row);
    const int64_t target = in.targets.Class(row);
    const auto element = gradient.Row(in, row, target, *weights);
    ForEachPack<kThreads>(
        in.x + start, in.rows.classes, [&](int64_t c, int64_t valid, bool aligned) {
          const auto x = LoadPack<kN>(in.x + start + c, valid, aligned);
          Pack<T, kN> out;
#pragma unroll
          for (int k = 0; k < kN; ++k) {
            const S class_weight = in.smoothing != 0 && k < valid ? in.Weight(c + k) : S(0);
            const S value = element(static_cast<S>(x.items[k]), c + k == target, class_weight);
            out.items[k] = T(target < 0 ? S(0) : value);
          }
          StorePack(d_x + start + c, valid, aligned && alike, out);
        });
    if (target == ClassTargets::kOutOfRange && threadIdx.x == 0) {
      ReportFault(error, row, in.targets.Value(row));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kElementwiseThreads)
    LossColumnsBackwardKernel(const LossInput<T> in, const LossGradient<T> gradient,
                              const double* weights, T* d_x, DataError* error) {
  using S = Accumulator<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
       row < in.rows.rows; row += step) {
    const int64_t start = in.rows.Start(row);
    const int64_t target = in.targets.Class(row);
    const auto element = gradient.Row(in, row, target, *weights);
#pragma unroll 4
    for (int64_t c = 0; c < in.rows.classes; ++c) {
      const int64_t i = start + c * in.rows.inner;
      const S class_weight = in.smoothing != 0 ? in.Weight(c) : S(0);
      const S value = element(static_cast<S>(in.x[i]), c == target, class_weight);
      d_x[i] = T(target < 0 ? S(0) : value);
    }
    if (target == ClassTargets::kOutOfRange) ReportFault(error, row, in.targets.Value(row));
  }
}

// Launches one of four kernels by the rows' shape: kernel(grid, threads) with the kernel's kind.
struct RowLaunch {
  enum Kind { kWarp, kBlock, kColumns } kind;
  dim3 threads;
  unsigned grid;

  RowLaunch(const ClassRows& rows, const Context& context) {
    if (rows.inner > 1) {
      kind = kColumns;
      threads = dim3(kElementwiseThreads);
      grid = GridFor(rows.rows, kElementwiseThreads, context);
    } else if (rows.classes < kWideRow) {
      kind = kWarp;
      threads = dim3(32, 8);
      grid = GridFor(rows.rows, 8, context);
    } else {
      kind = kBlock;
      threads = dim3(kRowThreads);
      grid = GridFor(rows.rows, 1, context);
    }
  }
};

template <class T>
Status LaunchLoss(const Context& context, const LossInput<T>& in,
                  const LossOutput<Accumulator<T>>& out) {
  if (in.rows.rows == 0) return Status::Ok();
  const RowLaunch launch(in.rows, context);
  const auto kernel = launch.kind == RowLaunch::kColumns ? &LossColumnsKernel<T>
                      : launch.kind == RowLaunch::kWarp  ? &LossRowsKernel<T, 32>
                                                         : &LossRowsKernel<T, kRowThreads>;
  kernel<<<launch.grid, launch.threads, 0, context.stream>>>(in, out);
  return LaunchStatus();
}

template <class T>
Status LaunchLossBackward(const Context& context, const LossInput<T>& in,
                          const LossGradient<T>& gradient, const double* weights, T* d_x) {
  if (in.rows.rows == 0 || in.rows.classes == 0) return Status::Ok();
  const RowLaunch launch(in.rows, context);
  const auto kernel = launch.kind == RowLaunch::kColumns ? &LossColumnsBackwardKernel<T>
                      : launch.kind == RowLaunch::kWarp  ? &LossRowsBackwardKernel<T, 32>
                                                         : &LossRowsBackwardKernel<T, kRowThreads>;
  kernel<<<launch.grid, launch.threads, 0, context.stream>>>(in, gradient, weights, d_x,
                                                             context.data_error);
  return LaunchStatus();
}

// Sums of two arrays, in double.
struct TwoSums {
  double a = 0;
  double b = 0;

  __device__ TwoSums operator+(const TwoSums& other) const { return {a + other.a, b + other.b}; }
};

inline constexpr int kSumThreads = 256;

// Each block's share of the sums of two arrays of `count`.
template <class S>
__global__ void __launch_bounds__(kSumThreads)
    PartialSumsKernel(int64_t count, const S* a, const S* b, TwoSums* partial) {
  TwoSums sums;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSumThreads;
  for (int64_t i = blockIdx.x * kSumThreads + threadIdx.x; i < count; i += step) {
    sums = sums + TwoSums{static_cast<double>(a[i]), static_cast<double>(b[i])};
  }
  sums = Group<kSumThreads>::Reduce(sums, [](const TwoSums& x, const TwoSums& y) { return x + y; });
  if (threadIdx.x == 0) partial[blockIdx.x] = sums;
}

// y = the loss, reduced (unless null); total_weight = the mean's divisor (unless null).
template <class S>
__global__ void __launch_bounds__(kSumThreads)
    FinishLossKernel(int blocks, const TwoSums* partial, bool mean, S* y, S* total_weight) {
  TwoSums sums;
  for (int i = threadIdx.x; i < blocks; i += kSumThreads) sums = sums + partial[i];
  sums = Group<kSumThreads>::Reduce(sums, [](const TwoSums& p, const TwoSums& q) { return p + q; });
  if (threadIdx.x != 0) return;
  if (y != nullptr) *y = static_cast<S>(mean ? sums.a / sums.b : sums.a);
  if (total_weight != nullptr) *total_weight = static_cast<S>(sums.b);
}

template <class S>
Status LaunchReduceLoss(const Context& context, int64_t rows, const S* loss, const S* weight,
                        void* partial, bool mean, S* y, S* total_weight) {
  const int64_t wanted = (rows + 4 * kSumThreads - 1) / (4 * kSumThreads);
  const int blocks = static_cast<int>(wanted < kPartialSums ? wanted : kPartialSums);
  TwoSums* sums = static_cast<TwoSums*>(partial);
  if (blocks > 0) {
    PartialSumsKernel<<<blocks, kSumThreads, 0, context.stream>>>(rows, loss, weight, sums);
    KB_RETURN_IF_ERROR(LaunchStatus());
  }
  FinishLossKernel<<<1, kSumThreads, 0, context.stream>>>(blocks, sums, mean, y, total_weight);
  return LaunchStatus();
}

// *sum = the sum of the class weights, or their number when `weight` is null.
template <class S>
__global__ void __launch_bounds__(kSumThreads)
    SumWeightsKernel(int64_t classes, const S* weight, double* sum) {
  double total = 0;
  for (int64_t c = threadIdx.x; c < classes; c += kSumThreads) {
    total += weight == nullptr ? 1.0 : static_cast<double>(weight[c]);
  }
  total = Group<kSumThreads>::Reduce(total, [](double x, double y) { return x + y; });
  if (threadIdx.x == 0) *sum = total;
}

template <class S>
Status LaunchSumWeights(const Context& context, int64_t classes, const S* weight, double* sum) {
  SumWeightsKernel<<<1, kSumThreads, 0, context.stream>>>(classes, weight, sum);
  return LaunchStatus();
}

}  // namespace kernelbox::device
