// Data-error words in device memory: merging them in stream order, without the host.
#pragma once

#include "kernels/layer.h"

namespace kernelbox::device {

// Enqueues on `stream` (a cudaStream_t): *word = the first of *a and *b that is found, else all
// zero. Either may be null.
Status SetDataError(void* stream, DataError* word, const DataError* a, const DataError* b);

}  // namespace kernelbox::device
