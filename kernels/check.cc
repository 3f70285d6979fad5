#include "kernels/check.h"

#include <cinttypes>
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
  if (tensor.dtype == expected) return Status::Ok();
  return Status::Error(Reason::kInvalidDType, field, NameOf(expected), NameOf(tensor.dtype));
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

Status CheckShape(const char* field, const Tensor& tensor,
                  std::initializer_list<int64_t> expected) {
  const int rank = static_cast<int>(expected.size());
  if (EqualDims(tensor, expected.begin(), rank)) return Status::Ok();
  char expected_text[Status::kTextBytes];
  char given[Status::kTextBytes];
  FormatDims(expected.begin(), rank, expected_text, sizeof expected_text);
  FormatShape(tensor, given, sizeof given);
  return Status::Error(Reason::kInvalidShape, field, expected_text, given);
}

Status CheckRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return Status::Ok();
  char expected[Status::kTextBytes];
  char given[Status::kTextBytes];
  snprintf(expected, sizeof expected, "a number in [%g, %g]", low, high);
  snprintf(given, sizeof given, "%g", value);
  return Status::Error(Reason::kInvalidAttribute, field, expected, given);
}

}  // namespace kernelbox
