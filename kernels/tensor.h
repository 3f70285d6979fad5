// The tensors a layer's argument struct is made of: views of device memory. Who owns the memory
// is not this folder's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/dtype.h"

namespace kernelbox {

inline constexpr int kMaxRank = 8;

// Numbers of kernelbox.v1.Layout; unspecified is kContiguous.
enum class Layout : int32_t { kContiguous = 1, kChannelsLast = 2 };

// A dense tensor. `data` is device memory on cuda and host memory on cpu, aligned to its dtype;
// allocations are aligned to 256 bytes, views need not be. Null while shapes are inferred and
// when there are no elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kUnspecified;
  Layout layout = Layout::kContiguous;
  // False for an optional tensor that was not given (an input) or not asked for (an output).
  bool present = false;
  int32_t rank = 0;
  int64_t shape[kMaxRank] = {};

  explicit operator bool() const { return present; }

  // The number of elements; 1 for rank 0. The store has checked that it fits.
  KB_HOST_DEVICE int64_t NumElements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= shape[i];
    return count;
  }
  size_t SizeBytes() const { return static_cast<size_t>(NumElements()) * SizeOf(dtype); }

  template <class T>
  KB_HOST_DEVICE T* Data() const {
    return static_cast<T*>(data);
  }

  // For Infer: gives an output its dtype and shape.
  void Set(DType new_dtype, const int64_t* new_shape, int new_rank) {
    dtype = new_dtype;
    rank = new_rank;
    for (int i = 0; i < new_rank; ++i) shape[i] = new_shape[i];
  }
  void Set(DType new_dtype, std::initializer_list<int64_t> new_shape) {
    Set(new_dtype, new_shape.begin(), static_cast<int>(new_shape.size()));
  }
  void SetLike(const Tensor& other) {
    Set(other.dtype, other.shape, other.rank);
    layout = other.layout;
  }
};

// A field's C++ type states its role in the message.
struct In : Tensor {};
struct OptionalIn : Tensor {};
struct Out : Tensor {};
struct OptionalOut : Tensor {};
struct InOut : Tensor {};
struct OptionalInOut : Tensor {};

// A repeated field's tensors. The memory of `items` belongs to the caller and lives as long as
// the call.
struct TensorList {
  Tensor* items = nullptr;
  int64_t count = 0;

  const Tensor& operator[](int64_t i) const { return items[i]; }
};
struct InList : TensorList {};
struct OptionalInList : TensorList {};
struct InOutList : TensorList {};
struct OptionalInOutList : TensorList {};

// A repeated integer attribute.
struct IntList {
  const int64_t* items = nullptr;
  int64_t count = 0;

  int64_t operator[](int64_t i) const { return items[i]; }
};

// An attribute without a default: None in Python.
template <class T>
struct Optional {
  T value = T();
  bool present = false;
};

}  // namespace kernelbox
