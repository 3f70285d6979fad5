// Launch helpers: grid sizes and the status of a launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layer.h"

namespace kernelbox::device {

// The status of the launch just made on this thread.
inline Status LaunchStatus() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return Status::Ok();
  return Status::Error(Reason::kDeviceError, "", "a successful launch", cudaGetErrorString(error));
}

// Blocks of a grid-stride loop over `work` items: one an item at most, and enough to fill the
// device several times over.
inline unsigned GridFor(int64_t work, int threads, const Context& context) {
  const int64_t wanted = (work + threads - 1) / threads;
  const int64_t most = static_cast<int64_t>(context.device->multiprocessors) * 32;
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

}  // namespace kernelbox::device
