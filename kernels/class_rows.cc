#include "kernels/class_rows.h"

#include <cinttypes>

namespace kernelbox {

Status CheckClassTargets(const Tensor& x, const Tensor& target) {
  KB_RETURN_IF_ERROR(CheckFloating("x", x));
  if (x.rank == 0) {
    return Status::Error(Reason::kInvalidShape, "x", "[C], [N, C] or [N, C, d1, ...]", "[]");
  }
  KB_RETURN_IF_ERROR(CheckDTypeIn("target", target, {DType::kInt32, DType::kInt64}));
  KB_RETURN_IF_ERROR(CheckContiguous("target", target));
  int64_t shape[kMaxRank] = {};
  int rank = 0;
  for (int d = 0; d < x.rank; ++d) {
    if (d != (x.rank == 1 ? 0 : 1)) shape[rank++] = x.shape[d];
  }
  return CheckShape("target", target, shape, rank);
}

void FormatTargetRange(const ClassTargets& targets, char* text, size_t size) {
  snprintf(text, size, "a class index in [0, %" PRId64 ") or ignore_index, %" PRId64,
           targets.classes, targets.ignore_index);
}

Status TargetOutOfRange(const ClassTargets& targets, int64_t row) {
  char expected[Status::kTextBytes];
  char given[Status::kTextBytes];
  FormatTargetRange(targets, expected, sizeof expected);
  snprintf(given, sizeof given, "%" PRId64 " at element %" PRId64, targets.Value(row), row);
  return Status::Error(Reason::kValueOutOfRange, "target", expected, given);
}

}  // namespace kernelbox
