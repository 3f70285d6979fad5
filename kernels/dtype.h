// Element types: their numbers (those of kernelbox.v1.DType), sizes and C++ types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/math/portable.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace kernelbox {

enum class DType : int32_t {
  kUnspecified = 0,
  kFloat32 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kFloat64 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kUInt8 = 7,
  kBool = 8,
};

// Bytes of one element; 0 for a value that names no dtype.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kBool:
      return 1;
    case DType::kUnspecified:
      break;
  }
  return 0;
}

// "float32" and so on, NumPy's and ml_dtypes' names; "unspecified" for anything else.
constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kUnspecified:
      break;
  }
  return "unspecified";
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat64;
}

namespace internal {

KB_HOST_DEVICE uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

KB_HOST_DEVICE float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to nearest even. A NaN keeps its sign and upper payload bits and becomes quiet.
KB_HOST_DEVICE uint16_t BFloat16Bits(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Rounds to nearest even; overflows to infinity; subnormal numbers are kept.
KB_HOST_DEVICE uint16_t Float16Bits(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // below the smallest normal number, 2^-14
    // Adding 0.5 aligns the value's last place with float16's subnormal step, 2^-24; the
    // addition rounds to nearest even.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOf(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

KB_HOST_DEVICE float Float16Value(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return FloatOf(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return FloatOf(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // 2^-24
  return FloatOf(sign | BitsOf(value));
}

}  // namespace internal

// IEEE binary16 as stored; arithmetic happens in float.
struct Float16 {
  uint16_t bits;

  Float16() = default;
  KB_HOST_DEVICE explicit Float16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __half_as_ushort(__float2half_rn(value));
#else
    bits = internal::Float16Bits(value);
#endif
  }
  KB_HOST_DEVICE explicit operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(bits));
#else
    return internal::Float16Value(bits);
#endif
  }
};

// bfloat16 as stored; arithmetic happens in float.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  KB_HOST_DEVICE explicit BFloat16(float value) {
#if defined(__CUDA_ARCH__)
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    bits = internal::BFloat16Bits(value);
#endif
  }
  KB_HOST_DEVICE explicit operator float() const {
    return internal::FloatOf(static_cast<uint32_t>(bits) << 16);
  }
};

// A boolean as stored: 0 is false, anything else true.
struct Bool {
  uint8_t byte;
};

// The type a layer computes in: float for 16- and 32-bit elements, double for double.
template <class T>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::Type;

// Names a C++ type in a generic lambda's argument.
template <class T>
struct TypeTag {
  using Type = T;
};

// Calls `function(TypeTag<T>{})` with the C++ type of a floating dtype. `dtype` must be floating:
// Infer has checked it.
template <class Function>
auto DispatchFloating(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat16:
      return function(TypeTag<Float16>{});
    case DType::kBFloat16:
      return function(TypeTag<BFloat16>{});
    case DType::kFloat64:
      return function(TypeTag<double>{});
    default:
      return function(TypeTag<float>{});
  }
}

// The same without double, for kernels on cuda; constexpr, so that they may call it.
template <class Function>
constexpr auto DispatchFloating32(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kFloat16:
      return function(TypeTag<Float16>{});
    case DType::kBFloat16:
      return function(TypeTag<BFloat16>{});
    default:
      return function(TypeTag<float>{});
  }
}

// The same for every dtype.
template <class Function>
auto DispatchAny(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kInt32:
      return function(TypeTag<int32_t>{});
    case DType::kInt64:
      return function(TypeTag<int64_t>{});
    case DType::kUInt8:
      return function(TypeTag<uint8_t>{});
    case DType::kBool:
      return function(TypeTag<Bool>{});
    default:
      return DispatchFloating(dtype, function);
  }
}

}  // namespace kernelbox
