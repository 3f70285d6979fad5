// Checks that Infer functions share. Each names the field, what was expected and what was given.
#pragma once

#include "kernels/status.h"
#include "kernels/tensor.h"

namespace kernelbox {

// Writes "[2, 3]" ("[]" for rank 0), cut to `size` bytes.
void FormatShape(const Tensor& tensor, char* text, size_t size);

// The tensor is float32, float16, bfloat16 or float64.
Status CheckFloating(const char* field, const Tensor& tensor);
// The tensor has this dtype.
Status CheckDType(const char* field, const Tensor& tensor, DType expected);
// The tensor has the shape of `expected`; `expected_field` names that one in the message.
Status CheckSameShape(const char* field, const Tensor& tensor, const char* expected_field,
                      const Tensor& expected);
// The tensor has exactly this shape.
Status CheckShape(const char* field, const Tensor& tensor, std::initializer_list<int64_t> expected);
// low <= value <= high; NaN fails.
Status CheckRange(const char* field, double value, double low, double high);

}  // namespace kernelbox
