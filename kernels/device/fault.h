// Faults that a kernel finds in its data.
#pragma once

#include "kernels/layer.h"

namespace kernelbox::device {

// Notes that element `index` of a field holds `value`, unless another thread was first.
__device__ inline void ReportFault(DataError* error, int64_t index, int64_t value) {
  if (atomicCAS(&error->found, 0u, 1u) != 0u) return;
  error->index = index;
  error->value = value;
}

}  // namespace kernelbox::device
