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
// The tensor has one of these dtypes.
Status CheckDTypeIn(const char* field, const Tensor& tensor, std::initializer_list<DType> expected);
// The tensor has the shape of `expected`; `expected_field` names that one in the message.
Status CheckSameShape(const char* field, const Tensor& tensor, const char* expected_field,
                      const Tensor& expected);
// The tensor has exactly this shape.
Status CheckShape(const char* field, const Tensor& tensor, const int64_t* expected, int rank);
Status CheckShape(const char* field, const Tensor& tensor, std::initializer_list<int64_t> expected);
// The tensor is in C order. (One whose order cannot matter passes as well.)
Status CheckContiguous(const char* field, const Tensor& tensor);
// The tensor has the shape and the order of elements of `expected`, so that the two can be walked
// side by side.
Status CheckLike(const char* field, const Tensor& tensor, const char* expected_field,
                 const Tensor& expected);
// A tensor that another field or attribute asks for is there; `reason` says why it is needed.
Status CheckPresent(const char* field, const Tensor& tensor, const char* reason);

// low <= value <= high; NaN fails.
Status CheckRange(const char* field, double value, double low, double high);
// value is finite and at least 0.
Status CheckNotNegative(const char* field, double value);
// value is finite.
Status CheckFinite(const char* field, double value);
// A dtype attribute names a dtype.
Status CheckDTypeAttribute(const char* field, DType value);
// A shape attribute has at most kMaxRank dimensions, none negative, and `dtype` elements of it
// have a size in bytes that fits.
Status CheckShapeAttribute(const char* field, const IntList& shape, DType dtype);

// An enum attribute has a value from 1 to `last`. Turns 0 into `default_value`.
template <class Enum>
Status CheckEnum(const char* field, Enum& value, Enum default_value, Enum last) {
  if (value == Enum()) value = default_value;
  const int number = static_cast<int>(value);
  if (number >= 1 && number <= static_cast<int>(last)) return Status::Ok();
  char expected[Status::kTextBytes];
  char given[Status::kTextBytes];
  snprintf(expected, sizeof expected, "a value of the enum, 1 to %d", static_cast<int>(last));
  snprintf(given, sizeof given, "%d", number);
  return Status::Error(Reason::kInvalidAttribute, field, expected, given);
}

// "grads[3]", for errors about a tensor of a list.
struct IndexedField {
  char name[48];

  IndexedField(const char* list, int64_t index);
};

// The list has `count` tensors, one for each of `expected_field`, all there.
Status CheckListCount(const char* field, const TensorList& list, const char* expected_field,
                      int64_t count);

}  // namespace kernelbox
