// Sums over dimensions of a tensor, on the device, in a fixed order.
//
// Blocks of 32 x 8 threads. Where the result's innermost dimension is x's, the 32 lanes of a warp
// take 32 neighbouring results and its 8 warps share the rows; elsewhere a warp takes one result
// and its lanes share the sum. Long sums are cut into parts, added up by a second kernel.
#pragma once

#include "kernels/device/launch.h"
#include "kernels/math/convert.h"
#include "kernels/walk.h"

namespace kernelbox::device {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// The sum over a warp, in every lane.
template <class S>
__device__ S WarpSum(S value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// Sums elements first, first + step, ... below last of the walk. Runs in the accumulator type go
// to a double, which keeps long sums accurate.
template <class T>
__device__ double SumWalk(const T* x, const Walk& walk, int64_t first, int64_t last, int64_t step) {
  constexpr int kRun = 32;
  double total = 0;
  while (first < last) {
    Accumulator<T> sum = 0;
#pragma unroll 8
    for (int k = 0; k < kRun; ++k, first += step) {
      if (first < last) sum += static_cast<Accumulator<T>>(x[walk.Offset(first)]);
    }
    total += static_cast<double>(sum);
  }
  return total;
}

// Writes the finished sum, or part `blockIdx.y` of it.
template <class U>
__device__ void StoreSum(double sum, int64_t out, double scale, U* y, double* parts) {
  if (parts == nullptr) {
    y[out] = math::Convert<U>(scale * sum);
  } else {
    parts[out * gridDim.y + blockIdx.y] = sum;
  }
}

// static: the linker must not merge these across layer files.
template <class T, class U>
static __global__ void __launch_bounds__(256)
    SumColumnsKernel(ReducePlan plan, const T* x, double scale, U* y, double* parts) {
  __shared__ double sums[8][33];
  const int64_t part = (plan.reduced.count + gridDim.y - 1) / gridDim.y;
  const int64_t first = blockIdx.y * part;
  const int64_t last = min(first + part, plan.reduced.count);
  for (int64_t block = blockIdx.x; block * 32 < plan.kept.count; block += gridDim.x) {
    const int64_t out = block * 32 + threadIdx.x;
    const bool inside = out < plan.kept.count;
    sums[threadIdx.y][threadIdx.x] =
        inside ? SumWalk(x + plan.kept.Offset(out), plan.reduced, first + threadIdx.y, last, 8) : 0;
    __syncthreads();
    if (threadIdx.y == 0 && inside) {
      double sum = 0;
      for (int row = 0; row < 8; ++row) sum += sums[row][threadIdx.x];
      StoreSum(sum, out, scale, y, parts);
    }
    __syncthreads();
  }
}

template <class T, class U>
static __global__ void __launch_bounds__(256)
    SumRowsKernel(ReducePlan plan, const T* x, double scale, U* y, double* parts) {
  const int64_t part = (plan.reduced.count + gridDim.y - 1) / gridDim.y;
  const int64_t first = blockIdx.y * part;
  const int64_t last = min(first + part, plan.reduced.count);
  const int64_t step = static_cast<int64_t>(gridDim.x) * 8;
  for (int64_t out = blockIdx.x * 8 + threadIdx.y; out < plan.kept.count; out += step) {
    const T* base = x + plan.kept.Offset(out);
    const double sum = WarpSum(SumWalk(base, plan.reduced, first + threadIdx.x, last, 32));
    if (threadIdx.x == 0) StoreSum(sum, out, scale, y, parts);
  }
}

// One warp a result.
template <class U>
static __global__ void __launch_bounds__(256)
    SumPartsKernel(int64_t results, int64_t parts_each, const double* parts, double scale, U* y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * 8;
  for (int64_t out = blockIdx.x * 8 + threadIdx.y; out < results; out += step) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < parts_each; i += 32) sum += parts[out * parts_each + i];
    sum = WarpSum(sum);
    if (threadIdx.x == 0) y[out] = math::Convert<U>(scale * sum);
  }
}

// y = scale * (sum over plan.reduced of x). `workspace` has plan.WorkspaceBytes().
template <class T, class U>
Status ReduceSum(const Context& context, const ReducePlan& plan, const T* x, double scale, U* y,
                 void* workspace) {
  if (plan.kept.count == 0) return Status::Ok();
  const bool columns = plan.kept.InnerContiguous();
  const int64_t parts_each = plan.Parts();
  double* parts = parts_each > 1 ? static_cast<double*>(workspace) : nullptr;
  const dim3 threads(32, 8);
  const dim3 grid(GridFor(plan.kept.count, columns ? 32 : 8, context),
                  static_cast<unsigned>(parts_each));
  if (columns) {
    SumColumnsKernel<<<grid, threads, 0, context.stream>>>(plan, x, scale, y, parts);
  } else {
    SumRowsKernel<<<grid, threads, 0, context.stream>>>(plan, x, scale, y, parts);
  }
  KB_RETURN_IF_ERROR(LaunchStatus());
  if (parts == nullptr) return Status::Ok();
  SumPartsKernel<<<GridFor(plan.kept.count, 8, context), threads, 0, context.stream>>>(
      plan.kept.count, parts_each, parts, scale, y);
  return LaunchStatus();
}

}  // namespace kernelbox::device
