// Walks over dense tensors by stride: broadcasting and reductions.
#pragma once

#include "kernels/check.h"
#include "kernels/tensor.h"

namespace kernelbox {

// Some dimensions of a tensor, outermost first: maps an index over them, in C order, to the offset
// of its element. Dimensions that continue each other are merged, so most walks have one or two.
struct Walk {
  int rank = 0;
  int64_t count = 1;
  int64_t size[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};

  void Push(int64_t new_size, int64_t new_stride) {
    count *= new_size;
    if (new_size == 1) return;
    if (rank > 0 && stride[rank - 1] == new_size * new_stride) {
      size[rank - 1] *= new_size;
      stride[rank - 1] = new_stride;
      return;
    }
    size[rank] = new_size;
    stride[rank++] = new_stride;
  }

  KB_HOST_DEVICE int64_t Offset(int64_t index) const {
    int64_t offset = 0;
    for (int d = rank - 1; d > 0; --d) {
      offset += index % size[d] * stride[d];
      index /= size[d];
    }
    return rank > 0 ? offset + index * stride[0] : 0;
  }

  // The innermost dimension's elements are neighbours in memory.
  bool InnerContiguous() const { return rank > 0 && stride[rank - 1] == 1; }
  // Every element in order.
  bool IsIdentity() const { return rank == 0 || (rank == 1 && stride[0] == 1); }
};

// Gives `y` the shape that NumPy broadcasts a and b to, and the layout and dtype of a.
Status InferBroadcast(const char* a_field, const Tensor& a, const char* b_field, const Tensor& b,
                      Tensor& y);

// The walk over `shape` that visits the elements of `small`, which broadcasts to it.
Walk BroadcastWalk(const Tensor& small, const Tensor& shape);

// A sum over the dimensions along which `small` was broadcast to `shape`.
struct ReducePlan {
  Walk kept;     // one index an element of the result
  Walk reduced;  // what each of them sums over

  // Parts that each sum is cut into so that a device has enough to do. Depends on shapes alone.
  int64_t Parts() const;
  // Bytes of scratch memory that the sum takes on cuda.
  size_t WorkspaceBytes() const;
};
ReducePlan PlanReduce(const Tensor& shape, const Tensor& small);
// The sums of the columns of a row-major matrix.
ReducePlan PlanColumnSum(int64_t rows, int64_t columns);

}  // namespace kernelbox
