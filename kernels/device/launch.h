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

}  // namespace kernelbox::device
