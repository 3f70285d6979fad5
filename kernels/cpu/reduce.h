// Sums over dimensions of a tensor, on the host.
#pragma once

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "kernels/math/convert.h"
#include "kernels/walk.h"

namespace kernelbox::cpu {

// Sums are taken in the accumulator type over this many elements, then go to a double: fast,
// accurate at any length, and the same whatever the number of threads.
inline constexpr int64_t kSumRun = 64;

// The sum of `count` elements `stride` apart.
template <class T>
double SumStrided(const T* x, int64_t count, int64_t stride) {
  using S = Accumulator<T>;
  constexpr int kLanes = 8;
  double total = 0;
  int64_t i = 0;
  for (; i + kSumRun <= count; i += kSumRun) {
    S lanes[kLanes] = {};
    for (int64_t k = 0; k < kSumRun; k += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += static_cast<S>(x[(i + k + lane) * stride]);
      }
    }
    for (S lane : lanes) total += static_cast<double>(lane);
  }
  for (; i < count; ++i) total += static_cast<double>(static_cast<S>(x[i * stride]));
  return total;
}

// Sums columns [0, width) of a block at `x`, whose rows `reduced` walks; width <= kColumns.
inline constexpr int64_t kColumns = 64;
template <class T>
void SumColumns(const Walk& reduced, const T* x, int64_t width, double* totals) {
  using S = Accumulator<T>;
  for (int64_t first = 0; first < reduced.count; first += kSumRun) {
    S sums[kColumns] = {};
    const int64_t last = std::min(first + kSumRun, reduced.count);
    for (int64_t r = first; r < last; ++r) {
      const T* row = x + reduced.Offset(r);
      for (int64_t c = 0; c < width; ++c) sums[c] += static_cast<S>(row[c]);
    }
    for (int64_t c = 0; c < width; ++c) totals[c] += static_cast<double>(sums[c]);
  }
}

// y = scale * (sum over plan.reduced of x).
template <class T, class U>
void ReduceSum(const ReducePlan& plan, const T* x, double scale, U* y) {
  const Walk& kept = plan.kept;
  const Walk& reduced = plan.reduced;
  if (kept.count == 0) return;
  if (kept.InnerContiguous()) {
    const int64_t columns = kept.size[kept.rank - 1];
    const int64_t blocks = (columns + kColumns - 1) / kColumns;
    ParallelFor(
        kept.count / columns * blocks,
        [&](int64_t task) {
          const int64_t first = task % blocks * kColumns;
          const int64_t width = std::min(kColumns, columns - first);
          const int64_t out = task / blocks * columns + first;
          double totals[kColumns] = {};
          SumColumns(reduced, x + kept.Offset(out), width, totals);
          for (int64_t c = 0; c < width; ++c) y[out + c] = math::Convert<U>(scale * totals[c]);
        },
        kGrain / std::max<int64_t>(1, reduced.count * kColumns));
    return;
  }
  const int64_t run = reduced.rank == 0 ? 1 : reduced.size[reduced.rank - 1];
  const int64_t stride = reduced.rank == 0 ? 1 : reduced.stride[reduced.rank - 1];
  ParallelFor(
      kept.count,
      [&](int64_t out) {
        const T* base = x + kept.Offset(out);
        double total = 0;
        for (int64_t r = 0; r < reduced.count; r += run) {
          total += SumStrided(base + reduced.Offset(r), run, stride);
        }
        y[out] = math::Convert<U>(scale * total);
      },
      kGrain / std::max<int64_t>(1, reduced.count));
}

}  // namespace kernelbox::cpu
