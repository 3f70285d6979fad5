// Matrix products: OpenBLAS on cpu, cuBLASLt on cuda.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attributes.h"
#include "kernels/layer.h"

namespace kernelbox {

// c = activation(op(a) op(b) + bias), all matrices row-major and packed.
//
// The product is accumulated in float32 (float64 for float64). An engine always does the product;
// of the rest it does what it can do on the way and says so in Gemm::Done.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;  // c is (m, n), op(a) is (m, k), op(b) is (k, n)
  bool transpose_a = false;     // a is stored as (k, m)
  bool transpose_b = false;     // b is stored as (n, k)
  DType in = DType::kFloat32;   // of a, b and bias
  DType out = DType::kFloat32;  // of c and pre_activation: `in`, or float32 for 16-bit `in`
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // (n), or none
  Activation activation = Activation::kNone;
  void* pre_activation = nullptr;  // if not null, takes op(a) op(b) + bias; needs an activation

  struct Done {
    bool bias = false;
    bool activation = false;
    bool bias_first = false;  // the bias was laid down before and the product added to it
    bool wide = false;  // the product went through float32, the bias was added before rounding
  };
  // Where the result is as long as the activation is not done.
  void* Linear() const { return pre_activation != nullptr ? pre_activation : c; }
};

namespace cpu {

// Scratch bytes for products of this input type.
size_t GemmWorkspace(DType in);
// Does the bias, never the activation. kUnsupported when n, k or a row exceeds 2^31 - 1.
Status RunGemm(const Gemm& gemm, void* workspace, Gemm::Done* done);

}  // namespace cpu

// Scratch bytes for any product on cuda: what cuBLASLt is advised to get on Hopper.
inline constexpr size_t kBlasWorkspaceBytes = size_t{32} << 20;

// cuda builds only (kernels/device/blas_library.cu). Opens cuBLASLt, which nothing links to, for
// the current device. Returns null and sets `status` when it is not to be had. The object lives
// as long as the process and may be used from any thread.
BlasLibrary* LoadBlasLibrary(Status* status);

}  // namespace kernelbox
