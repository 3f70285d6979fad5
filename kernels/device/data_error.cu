#include "kernels/device/data_error.h"

#include "kernels/device/launch.h"

namespace kernelbox::device {
namespace {

__global__ void SetDataErrorKernel(DataError* word, const DataError* a, const DataError* b) {
  DataError merged;
  if (a != nullptr && a->found != 0) {
    merged = *a;
  } else if (b != nullptr && b->found != 0) {
    merged = *b;
  }
  *word = merged;
}

}  // namespace

Status SetDataError(void* stream, DataError* word, const DataError* a, const DataError* b) {
  SetDataErrorKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word, a, b);
  return LaunchStatus();
}

}  // namespace kernelbox::device
