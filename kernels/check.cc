#include "kernels/check.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace kernelbox {
namespace {

void FormatDims(const int64_t* shape, int rank, char* text, size_t size) {
  size_t used = static_cast<size_t>(snprintf(text, size, "["));
  for (int i = 0; i < rank && used < size; ++i) {
    used += static_cast<size_t>(
        snprintf(text + used, size - used, i == 0 ? "%" PRId64 : ", %" PRId64, shape[i]));
  }
  if (used < size) snprintf(text + used, size - used, "]");
}

bool EqualDims(const Tensor& tensor, const int64_t* shape, int rank) {
  if (tensor.rank != rank) return false;
  for (int i = 0; i < rank; ++i) {
    if (tensor.shape[i] != shape[i]) return false;
  }
  return true;
}

Status BadNumber(const char* field, const char* expected, double value) {
  char given[Status::kTextBytes];
  snprintf(given, sizeof given, "%g", value);
  return Status::Error(Reason::kInvalidAttribute, field, expected, given);
}

}  // namespace

void FormatShape(const Tensor& tensor, char* text, size_t size) {
  FormatDims(tensor.shape, tensor.rank, text, size);
}

Status CheckFloating(const char* field, const Tensor& tensor) {
  if (IsFloating(tensor.dtype)) return Status::Ok();
  return Status::Error(Reason::kInvalidDType, field, "float32, float16, bfloat16 or float64",
                       NameOf(tensor.dtype));
}

Status CheckDType(const char* field, const Tensor& tensor, DType expected) {
  return CheckDTypeIn(field, tensor, {expected});
}

Status CheckDTypeIn(const char* field, const Tensor& tensor,
                    std::initializer_list<DType> expected) {
  for (DType dtype : expected) {
    if (tensor.dtype == dtype) return Status::Ok();
  }
  char text[Status::kTextBytes] = "";
  size_t used = 0;
  for (DType dtype : expected) {
    used += static_cast<size_t>(
        snprintf(text + used, sizeof text - used, "%s%s", used == 0 ? "" : " or ", NameOf(dtype)));
    if (used >= sizeof text) break;
  }
  return Status::Error(Reason::kInvalidDType, field, text, NameOf(tensor.dtype));
}

Status CheckSameShape(const char* field, const Tensor& tensor, const char* expected_field,
                      const Tensor& expected) {
  if (EqualDims(tensor, expected.shape, expected.rank)) return Status::Ok();
  char shape[80];
  char expected_text[Status::kTextBytes];
  char given[Status::kTextBytes];
  FormatShape(expected, shape, sizeof shape);
  snprintf(expected_text, sizeof expected_text, "%s, the shape of %s", shape, expected_field);
  FormatShape(tensor, given, sizeof given);
  return Status::Error(Reason::kInvalidShape, field, expected_text, given);
}

Status CheckShape(const char* field, const Tensor& tensor, const int64_t* expected, int rank) {
  if (EqualDims(tensor, expected, rank)) return Status::Ok();
  char expected_text[Status::kTextBytes];
  char given[Status::kTextBytes];
  FormatDims(expected, rank, expected_text, sizeof expected_text);
  FormatShape(tensor, given, sizeof given);
  return Status::Error(Reason::kInvalidShape, field, expected_text, given);
}

Status CheckShape(const char* field, const Tensor& tensor,
                  std::initializer_list<int64_t> expected) {
  return CheckShape(field, tensor, expected.begin(), static_cast<int>(expected.size()));
}

Status CheckContiguous(const char* field, const Tensor& tensor) {
  if (tensor.layout == Layout::kContiguous) return Status::Ok();
  return Status::Error(Reason::kUnsupported, field, "a contiguous tensor", "a channels-last one");
}

Status CheckLike(const char* field, const Tensor& tensor, const char* expected_field,
                 const Tensor& expected) {
  KB_RETURN_IF_ERROR(CheckSameShape(field, tensor, expected_field, expected));
  if (tensor.layout == expected.layout) return Status::Ok();
  char text[Status::kTextBytes];
  snprintf(text, sizeof text, "the layout of %s", expected_field);
  return Status::Error(Reason::kUnsupported, field, text, "another layout");
}

Status CheckPresent(const char* field, const Tensor& tensor, const char* reason) {
  if (tensor.present) return Status::Ok();
  char expected[Status::kTextBytes];
  snprintf(expected, sizeof expected, "a tensor, %s", reason);
  return Status::Error(Reason::kMissingField, field, expected, "none");
}

Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return Status::Ok();
  char expected[Status::kTextBytes];
  snprintf(expected, sizeof expected, "a number in [%g, %g]", low, high);
  return BadNumber(field, expected, value);
}

Status CheckNotNegative(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return Status::Ok();
  return BadNumber(field, "a finite number, at least 0", value);
}

Status CheckFinite(const char* field, double value) {
  if (std::isfinite(value)) return Status::Ok();
  return BadNumber(field, "a finite number", value);
}

Status CheckDTypeAttribute(const char* field, DType value) {
  if (SizeOf(value) != 0) return Status::Ok();
  char given[Status::kTextBytes];
  snprintf(given, sizeof given, "%d", static_cast<int>(value));
  return Status::Error(Reason::kInvalidAttribute, field, "a dtype", given);
}

Status CheckShapeAttribute(const char* field, const IntList& shape, DType dtype) {
  char given[Status::kTextBytes];
  if (shape.count > kMaxRank) {
    snprintf(given, sizeof given, "%" PRId64 " dimensions", shape.count);
    return Status::Error(Reason::kInvalidShape, field, "at most 8 dimensions", given);
  }
  FormatDims(shape.items, static_cast<int>(shape.count), given, sizeof given);
  bool empty = false;
  for (int64_t i = 0; i < shape.count; ++i) {
    if (shape[i] < 0) {
      return Status::Error(Reason::kInvalidShape, field, "dimensions of at least 0", given);
    }
    empty = empty || shape[i] == 0;
  }
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  for (int64_t i = 0; i < shape.count && !empty; ++i) {
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) {
      return Status::Error(Reason::kSizeOverflow, field, "less than 2^63 bytes", given);
    }
  }
  return Status::Ok();
}

IndexedField::IndexedField(const char* list, int64_t index) {
  snprintf(name, sizeof name, "%s[%" PRId64 "]", list, index);
}

Status CheckListCount(const char* field, const TensorList& list, const char* expected_field,
                      int64_t count) {
  if (list.count != count) {
    char expected[Status::kTextBytes];
    char given[Status::kTextBytes];
    snprintf(expected, sizeof expected, "%" PRId64 " tensors, one for each of %s", count,
             expected_field);
    snprintf(given, sizeof given, "%" PRId64, list.count);
    return Status::Error(Reason::kInvalidShape, field, expected, given);
  }
  for (int64_t i = 0; i < count; ++i) {
    KB_RETURN_IF_ERROR(CheckPresent(IndexedField(field, i).name, list[i], "as the others are"));
  }
  return Status::Ok();
}

}  // namespace kernelbox
