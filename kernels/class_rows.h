// Losses over classes: how logits (C), (N, C) or (N, C, d1, ...) and class indices line up.
#pragma once

#include "kernels/check.h"
#include "kernels/math/portable.h"

namespace kernelbox {

// Row r, in the C order of the targets, has `classes` logits `inner` apart.
struct ClassRows {
  int64_t rows;
  int64_t classes;
  int64_t inner;

  // x must have rank 1 or more. Channels-last logits have their classes side by side.
  explicit ClassRows(const Tensor& x) {
    const int dim = x.rank == 1 ? 0 : 1;
    classes = x.shape[dim];
    inner = 1;
    rows = dim == 0 ? 1 : x.shape[0];
    for (int d = 2; d < x.rank; ++d) {
      rows *= x.shape[d];
      inner *= x.shape[d];
    }
    if (x.layout == Layout::kChannelsLast) inner = 1;
  }

  // The place of a row's first logit.
  KB_HOST_DEVICE int64_t Start(int64_t row) const {
    return inner == 1 ? row * classes : row / inner * classes * inner + row % inner;
  }
};

// Class indices, int32 or int64.
struct ClassTargets {
  static constexpr int64_t kIgnored = -1;
  static constexpr int64_t kOutOfRange = -2;

  const void* data;
  bool wide;
  int64_t classes;
  int64_t ignore_index;

  ClassTargets(const Tensor& target, int64_t class_count, int64_t ignored)
      : data(target.data),
        wide(target.dtype == DType::kInt64),
        classes(class_count),
        ignore_index(ignored) {}

  KB_HOST_DEVICE int64_t Value(int64_t row) const {
    return wide ? static_cast<const int64_t*>(data)[row] : static_cast<const int32_t*>(data)[row];
  }
  // The row's class, kIgnored or kOutOfRange.
  KB_HOST_DEVICE int64_t Class(int64_t row) const {
    const int64_t value = Value(row);
    if (value == ignore_index) return kIgnored;
    return value >= 0 && value < classes ? value : kOutOfRange;
  }
};

// x is floating with classes, `target` holds an int32 or int64 index for each of its rows.
Status CheckClassTargets(const Tensor& x, const Tensor& target);
// The data error of a target out of range: what the field should hold.
void FormatTargetRange(const ClassTargets& targets, char* text, size_t size);
// The error itself, for cpu.
Status TargetOutOfRange(const ClassTargets& targets, int64_t row);

}  // namespace kernelbox
