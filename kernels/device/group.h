// Groups of threads that work on one row together: a warp, or a whole block.
#pragma once

#include "kernels/device/elementwise.h"

namespace kernelbox::device {

// kThreads is 32, or a multiple of it that is the block's x size. One group has one blockIdx.x
// and threadIdx.y. kThreads / 32 warps must not exceed 32.
template <int kThreads>
struct Group {
  // Combines the group's values by combine(a, b), in a fixed order; every thread gets the result.
  // All threads of the block must call it. T is copied as bytes.
  template <class T, class Combine>
  __device__ static T Reduce(T value, Combine combine) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = combine(value, ShuffleXor(value, step));
    if constexpr (kThreads > 32) {
      // Bytes: shared memory cannot be initialised, as T's members may ask for.
      __shared__ alignas(16) unsigned char bytes[kThreads / 32 * sizeof(T)];
      T* warps = reinterpret_cast<T*>(bytes);
      __syncthreads();  // the last call's readers are done
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = warps[0];
      for (int warp = 1; warp < kThreads / 32; ++warp) value = combine(value, warps[warp]);
    }
    return value;
  }

 private:
  // Each 4-byte word of T from the lane `step` away.
  template <class T>
  __device__ static T ShuffleXor(const T& value, int step) {
    static_assert(sizeof(T) % 4 == 0);
    constexpr int kWords = sizeof(T) / 4;
    uint32_t words[kWords];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], step);
    T other;
    memcpy(&other, words, sizeof other);
    return other;
  }
};

// Calls f(i, valid, aligned) for packs of N elements that together cover a row of `count`: the
// first `valid` elements from i on are the pack's. Packs are 16-byte aligned but for a short first
// one, so that a row may start anywhere.
template <int kThreads, class T, class F>
__device__ void ForEachPack(const T* row, int64_t count, F f) {
  constexpr int kN = 16 / sizeof(T);
  const int64_t misaligned = reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T);
  const int64_t head = min(misaligned == 0 ? int64_t{0} : kN - misaligned, count);
  const int64_t packs = (count - head + kN - 1) / kN;
  if (head > 0 && threadIdx.x == kThreads - 1) f(int64_t{0}, head, false);
  for (int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const int64_t i = head + pack * kN;
    f(i, min(static_cast<int64_t>(kN), count - i), true);
  }
}

}  // namespace kernelbox::device
