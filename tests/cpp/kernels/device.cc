#include "device.h"

#include <stdexcept>

#ifdef KERNELBOX_CUDA
#include <cuda_runtime.h>

#include "kernels/gemm.h"
#endif

namespace kernelbox::testing {

TestDevice& TestDevice::Of(Backend backend) {
  static TestDevice cpu(Backend::kCpu);
  if (backend == Backend::kCpu) return cpu;
  static TestDevice cuda(Backend::kCuda);
  return cuda;
}

TestDevice::TestDevice(Backend backend) {
  if (backend == Backend::kCpu) return;
#ifdef KERNELBOX_CUDA
  cudaDeviceProp properties;
  cudaStream_t stream = nullptr;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
    throw std::runtime_error("no CUDA device");
  }
  stream_ = stream;
  device_.multiprocessors = properties.multiProcessorCount;
  device_.compute_capability = properties.major * 10 + properties.minor;
  device_.shared_memory_per_block = properties.sharedMemPerBlockOptin;
  Status status;
  device_.blas = LoadBlasLibrary(&status);
  if (device_.blas == nullptr) throw std::runtime_error(status.given);
#else
  throw std::runtime_error("built without CUDA");
#endif
}

std::string TestDevice::Finish() {
#ifdef KERNELBOX_CUDA
  if (stream_ == nullptr) return "";
  const cudaError_t error = cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
#else
  return "";
#endif
}

}  // namespace kernelbox::testing
