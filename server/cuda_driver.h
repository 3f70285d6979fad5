// The driver's virtual memory functions, looked up at run time: the server does not link libcuda,
// so that the binary starts, on cpu, where no driver is installed.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"

namespace kernelbox::server {

struct CudaDriver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) release = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) destroy = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;

  // UNAVAILABLE, naming the function, when the driver lacks one.
  static absl::StatusOr<CudaDriver> Load();

  // A sentence for a failed call.
  const char* Describe(CUresult result) const;
};

}  // namespace kernelbox::server
