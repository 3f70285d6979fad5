// What layers that draw random numbers share: the state tensor, int64 {seed, offset}.
#pragma once

#include "kernels/check.h"
#include "kernels/math/philox.h"

namespace kernelbox {

// Philox blocks that `elements` numbers need when each block yields `per_block`.
constexpr int64_t BlocksFor(int64_t elements, int per_block) {
  return elements / per_block + (elements % per_block != 0 ? 1 : 0);
}

inline Status CheckRngState(const char* field, const Tensor& state) {
  KB_RETURN_IF_ERROR(CheckDType(field, state, DType::kInt64));
  return CheckShape(field, state, {2});
}

namespace cpu {

inline math::Rng ReadRng(const int64_t* state) {
  return {static_cast<uint64_t>(state[0]), static_cast<uint64_t>(state[1])};
}

// Reads the state, then adds `blocks` to its offset.
inline math::Rng TakeRng(int64_t* state, int64_t blocks) {
  const math::Rng rng = ReadRng(state);
  state[1] = static_cast<int64_t>(rng.offset + static_cast<uint64_t>(blocks));
  return rng;
}

}  // namespace cpu
}  // namespace kernelbox
