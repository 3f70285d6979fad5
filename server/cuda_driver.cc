#include "server/cuda_driver.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kernelbox::server {
namespace {

// The virtual memory functions have had their present form since CUDA 10.2.
constexpr unsigned kVersion = 12000;

template <class Function>
absl::Status LoadFunction(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("looking up ", name, ": ", cudaGetErrorString(error)));
  }
  if (found != cudaDriverEntryPointSuccess) {
    return absl::UnavailableError(absl::StrCat("the driver has no ", name));
  }
  function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Load() {
  CudaDriver driver;
  absl::Status status;
  status.Update(LoadFunction("cuMemAddressReserve", driver.reserve));
  status.Update(LoadFunction("cuMemAddressFree", driver.release));
  status.Update(LoadFunction("cuMemCreate", driver.create));
  status.Update(LoadFunction("cuMemRelease", driver.destroy));
  status.Update(LoadFunction("cuMemMap", driver.map));
  status.Update(LoadFunction("cuMemUnmap", driver.unmap));
  status.Update(LoadFunction("cuMemSetAccess", driver.set_access));
  status.Update(LoadFunction("cuGetErrorString", driver.error_string));
  if (!status.ok()) return status;
  return driver;
}

const char* CudaDriver::Describe(CUresult result) const {
  const char* text = nullptr;
  if (error_string(result, &text) != CUDA_SUCCESS || text == nullptr) return "unknown driver error";
  return text;
}

}  // namespace kernelbox::server
