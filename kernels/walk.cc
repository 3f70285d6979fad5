#include "kernels/walk.h"

#include <algorithm>

namespace kernelbox {
namespace {

// The size of `tensor` along dimension d of a shape of rank `rank` that it broadcasts to.
int64_t DimOf(const Tensor& tensor, int d, int rank) {
  const int own = d - (rank - tensor.rank);
  return own < 0 ? 1 : tensor.shape[own];
}

}  // namespace

Status InferBroadcast(const char* a_field, const Tensor& a, const char* b_field, const Tensor& b,
                      Tensor& y) {
  const int rank = std::max(a.rank, b.rank);
  int64_t shape[kMaxRank] = {};
  for (int d = 0; d < rank; ++d) {
    const int64_t a_dim = DimOf(a, d, rank);
    const int64_t b_dim = DimOf(b, d, rank);
    if (a_dim != b_dim && a_dim != 1 && b_dim != 1) {
      char a_shape[80];
      char expected[Status::kTextBytes];
      char given[Status::kTextBytes];
      FormatShape(a, a_shape, sizeof a_shape);
      snprintf(expected, sizeof expected, "a shape that broadcasts with %s of %s", a_shape,
               a_field);
      FormatShape(b, given, sizeof given);
      return Status::Error(Reason::kInvalidShape, b_field, expected, given);
    }
    shape[d] = a_dim == 1 ? b_dim : a_dim;
  }
  y.Set(a.dtype, shape, rank);
  y.layout = a.layout;
  return Status::Ok();
}

Walk BroadcastWalk(const Tensor& small, const Tensor& shape) {
  int64_t strides[kMaxRank] = {};
  int64_t stride = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    const int64_t dim = DimOf(small, d, shape.rank);
    strides[d] = dim == 1 ? 0 : stride;
    stride *= dim;
  }
  Walk walk;
  for (int d = 0; d < shape.rank; ++d) walk.Push(shape.shape[d], strides[d]);
  return walk;
}

int64_t ReducePlan::Parts() const {
  constexpr int64_t kBlocksWanted = 2048;
  constexpr int64_t kElementsAPart = 1024;
  const int64_t blocks = kept.InnerContiguous() ? kept.count / 32 + 1 : kept.count / 8 + 1;
  const int64_t most = reduced.count / kElementsAPart;
  return std::max<int64_t>(1, std::min(kBlocksWanted / blocks, most));
}

size_t ReducePlan::WorkspaceBytes() const {
  return Parts() == 1 ? 0 : static_cast<size_t>(kept.count * Parts()) * sizeof(double);
}

ReducePlan PlanReduce(const Tensor& shape, const Tensor& small) {
  int64_t strides[kMaxRank] = {};
  int64_t stride = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape.shape[d];
  }
  ReducePlan plan;
  for (int d = 0; d < shape.rank; ++d) {
    const bool keep = DimOf(small, d, shape.rank) == shape.shape[d];
    (keep ? plan.kept : plan.reduced).Push(shape.shape[d], strides[d]);
  }
  return plan;
}

ReducePlan PlanColumnSum(int64_t rows, int64_t columns) {
  ReducePlan plan;
  plan.kept.Push(columns, 1);
  plan.reduced.Push(rows, columns);
  return plan;
}

}  // namespace kernelbox
