// cuBLASLt, opened at run time so that a CUDA build starts without it.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <mutex>

#include "kernels/gemm.h"

namespace kernelbox {

// The functions, one handle for one device, and what was chosen for each kind of product so far.
// Made by LoadBlasLibrary. May be used from any thread.
class BlasLibrary {
 public:
  // Enqueues the product on the context's stream. Tries to fuse activation and bias, then the bias
  // alone, then adds to the bias: the first for which cuBLASLt has an algorithm. `workspace` has
  // kBlasWorkspaceBytes. k may be 0, m and n not.
  Status Run(const Gemm& gemm, const Context& context, void* workspace, Gemm::Done* done);

 private:
  friend BlasLibrary* LoadBlasLibrary(Status* status);

  // Everything that decides which algorithm may run.
  struct PlanKey {
    int64_t m, n, k;
    DType in, out;
    bool transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    uint32_t align_a, align_b, align_c, align_bias, align_aux;

    auto operator<=>(const PlanKey&) const = default;
  };
  struct Plan {
    bool usable = false;
    cublasLtMatmulAlgo_t algo = {};
  };
  struct Functions {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtGetStatusString) status_string;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  };
  class Call;

  BlasLibrary() = default;
  static PlanKey KeyOf(const Gemm& gemm, cublasLtEpilogue_t epilogue, const void* c,
                       const void* aux);
  Status FindPlan(const PlanKey& key, const Call& call, Plan* plan);
  void MarkUnusable(const PlanKey& key);
  // Computes c = epilogue(product + beta * c); *ran is false when cuBLASLt cannot.
  Status Try(const Gemm& gemm, cublasLtEpilogue_t epilogue, float beta, void* c, void* aux,
             const Context& context, void* workspace, bool* ran);
  Status Check(const char* what, cublasStatus_t status) const;

  Functions functions_ = {};
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<PlanKey, Plan> plans_;  // guarded by mutex_
};

namespace device {

// gemm by context.device->blas; also for empty matrices. `workspace` has kBlasWorkspaceBytes.
Status RunGemm(const Gemm& gemm, const Context& context, void* workspace, Gemm::Done* done);

}  // namespace device
}  // namespace kernelbox
