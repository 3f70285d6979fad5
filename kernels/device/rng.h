// Random number states in device memory.
#pragma once

#include "kernels/device/elementwise.h"
#include "kernels/math/philox.h"

namespace kernelbox::device {

__device__ inline math::Rng ReadRng(const int64_t* state) {
  return {static_cast<uint64_t>(state[0]), static_cast<uint64_t>(state[1])};
}

// static: the linker must not merge it across layer files.
static __global__ void TakeRngKernel(int64_t* state, int64_t blocks, const DataError* guard,
                                     int64_t* taken, int64_t* taken_too) {
  const math::Rng rng = ReadRng(state);
  for (int64_t* copy : {taken, taken_too}) {
    if (copy == nullptr) continue;
    copy[0] = static_cast<int64_t>(rng.seed);
    copy[1] = static_cast<int64_t>(rng.offset);
  }
  if (guard != nullptr && guard->found != 0) return;
  state[1] = static_cast<int64_t>(rng.offset + static_cast<uint64_t>(blocks));
}

// Copies the state to `taken` (and to `taken_too` unless null), then adds `blocks` to its offset:
// a kernel of its own, so that no block of the kernel that draws can see the sum.
inline Status TakeRng(const Context& context, int64_t* state, int64_t blocks, int64_t* taken,
                      int64_t* taken_too = nullptr) {
  TakeRngKernel<<<1, 1, 0, context.stream>>>(state, blocks, context.guard, taken, taken_too);
  return LaunchStatus();
}

}  // namespace kernelbox::device
