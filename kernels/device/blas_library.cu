#include "kernels/device/blas_library.h"

#include <dlfcn.h>

#include <new>

#include "kernels/device/elementwise.h"

namespace kernelbox {
namespace {

constexpr int kCandidates = 8;

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// The largest power of two, up to 256, that divides the address.
uint32_t AlignmentOf(const void* pointer) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer) | 256u;
  return static_cast<uint32_t>(address & (~address + 1));
}

// What cuBLASLt can do after the product, most first: the activation with the bias. Its GELU is
// the tanh approximation. Of ReLU it keeps no pre-activation, so that is not fused then.
bool ActivationEpilogue(const Gemm& gemm, cublasLtEpilogue_t* epilogue) {
  const bool bias = gemm.bias != nullptr;
  if (gemm.activation == Activation::kRelu && gemm.pre_activation == nullptr) {
    *epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return true;
  }
  // Its GELU is good to about 2e-6, which is plenty for 16 bits and not for 32.
  if (gemm.activation != Activation::kGeluTanh || gemm.out == DType::kFloat32) return false;
  if (gemm.pre_activation == nullptr) {
    *epilogue = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return true;
  }
  *epilogue = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  // The auxiliary output's row length must be a multiple of 8, and its address of 16 bytes.
  return gemm.n % 8 == 0 && AlignmentOf(gemm.pre_activation) >= 16;
}

template <class T>
struct BiasOfColumn {
  const T* bias;
  int64_t columns;

  template <int N>
  __device__ void operator()(int64_t i, device::Pack<T, N>& y) const {
#pragma unroll
    for (int k = 0; k < N; ++k) y.items[k] = bias[(i + k) % columns];
  }
};

// Fills the result with the bias, for a product that is added to it.
Status FillWithBias(const Gemm& gemm, const Context& context) {
  return DispatchFloating32(gemm.in, [&]<class T>(TypeTag<T>) {
    return device::MapPacks(context, gemm.m * gemm.n,
                            BiasOfColumn<T>{static_cast<const T*>(gemm.bias), gemm.n},
                            static_cast<T*>(gemm.Linear()));
  });
}

}  // namespace

// The descriptors of one product. cuBLASLt is column-major: it is told to compute the transpose,
// c^T = op(b)^T op(a)^T, whose operands are the same memory.
class BlasLibrary::Call {
 public:
  explicit Call(const BlasLibrary& library) : library_(library) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (desc_ != nullptr) library_.functions_.desc_destroy(desc_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) library_.functions_.layout_destroy(layout);
    }
  }

  Status Init(const Gemm& g, cublasLtEpilogue_t epilogue, const void* aux) {
    const Functions& f = library_.functions_;
    KB_RETURN_IF_ERROR(library_.Check("cublasLtMatmulDescCreate",
                                      f.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    const auto transpose = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, transpose(g.transpose_b)));
    KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, transpose(g.transpose_a)));
    KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
      KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias));
      KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CudaType(g.in)));
    }
    if (aux != nullptr) {
      KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
      KB_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n));
    }
    KB_RETURN_IF_ERROR(Layout(&a_, g.in, g.transpose_b ? g.k : g.n, g.transpose_b ? g.n : g.k));
    KB_RETURN_IF_ERROR(Layout(&b_, g.in, g.transpose_a ? g.m : g.k, g.transpose_a ? g.k : g.m));
    return Layout(&c_, g.out, g.n, g.m);
  }

  cublasStatus_t Heuristic(cublasLtMatmulPreference_t preference,
                           cublasLtMatmulHeuristicResult_t* results, int* found) const {
    return library_.functions_.get_heuristic(library_.handle_, desc_, a_, b_, c_, c_, preference,
                                             kCandidates, results, found);
  }

  // c = product + beta * c.
  cublasStatus_t Matmul(const Gemm& g, float beta, void* c, const cublasLtMatmulAlgo_t& algo,
                        void* workspace, cudaStream_t stream) const {
    const float one = 1.0f;
    return library_.functions_.matmul(library_.handle_, desc_, &one, g.b, a_, g.a, b_, &beta, c, c_,
                                      c, c_, &algo, workspace, kBlasWorkspaceBytes, stream);
  }

 private:
  template <class T>
  Status Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return library_.Check("cublasLtMatmulDescSetAttribute",
                          library_.functions_.desc_set(desc_, attribute, &value, sizeof value));
  }
  Status Layout(cublasLtMatrixLayout_t* layout, DType dtype, int64_t rows, int64_t columns) {
    return library_.Check(
        "cublasLtMatrixLayoutCreate",
        library_.functions_.layout_create(layout, CudaType(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), rows));
  }

  const BlasLibrary& library_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t c_ = nullptr;
};

Status BlasLibrary::Check(const char* what, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::Ok();
  char expected[Status::kTextBytes];
  snprintf(expected, sizeof expected, "%s to succeed", what);
  return Status::Error(Reason::kDeviceError, "", expected, functions_.status_string(status));
}

BlasLibrary::PlanKey BlasLibrary::KeyOf(const Gemm& g, cublasLtEpilogue_t epilogue, const void* c,
                                        const void* aux) {
  const bool bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  return {g.m,
          g.n,
          g.k,
          g.in,
          g.out,
          g.transpose_a,
          g.transpose_b,
          epilogue,
          AlignmentOf(g.a),
          AlignmentOf(g.b),
          AlignmentOf(c),
          bias ? AlignmentOf(g.bias) : 0,
          aux != nullptr ? AlignmentOf(aux) : 0};
}

// Asks for the best algorithms and takes the first. (Here is the place to time them.)
Status BlasLibrary::FindPlan(const PlanKey& key, const Call& call, Plan* plan) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
      *plan = found->second;
      return Status::Ok();
    }
  }
  cublasLtMatmulPreference_t preference = nullptr;
  KB_RETURN_IF_ERROR(
      Check("cublasLtMatmulPreferenceCreate", functions_.preference_create(&preference)));
  const size_t workspace = kBlasWorkspaceBytes;
  cublasStatus_t status = functions_.preference_set(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  // cuBLASLt's A is our b.
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    uint32_t bytes;
  } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c},
                    {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c}};
  for (const auto& alignment : alignments) {
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status = functions_.preference_set(preference, alignment.attribute, &alignment.bytes,
                                       sizeof alignment.bytes);
  }
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int count = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    // A failure means that there is no algorithm; the next epilogue is tried then.
    if (call.Heuristic(preference, results, &count) != CUBLAS_STATUS_SUCCESS) count = 0;
  }
  functions_.preference_destroy(preference);
  KB_RETURN_IF_ERROR(Check("cublasLtMatmulPreferenceSetAttribute", status));
  *plan = Plan();
  for (int i = 0; i < count && !plan->usable; ++i) {
    plan->usable = results[i].state == CUBLAS_STATUS_SUCCESS;
    plan->algo = results[i].algo;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  plans_.emplace(key, *plan);
  return Status::Ok();
}

void BlasLibrary::MarkUnusable(const PlanKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  plans_[key].usable = false;
}

Status BlasLibrary::Try(const Gemm& gemm, cublasLtEpilogue_t epilogue, float beta, void* c,
                        void* aux, const Context& context, void* workspace, bool* ran) {
  *ran = false;
  Call call(*this);
  KB_RETURN_IF_ERROR(call.Init(gemm, epilogue, aux));
  const PlanKey key = KeyOf(gemm, epilogue, c, aux);
  Plan plan;
  KB_RETURN_IF_ERROR(FindPlan(key, call, &plan));
  if (!plan.usable) return Status::Ok();
  const cublasStatus_t status = call.Matmul(gemm, beta, c, plan.algo, workspace, context.stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    MarkUnusable(key);
    return Status::Ok();
  }
  *ran = status == CUBLAS_STATUS_SUCCESS;
  return Check("cublasLtMatmul", status);
}

Status BlasLibrary::Run(const Gemm& gemm, const Context& context, void* workspace,
                        Gemm::Done* done) {
  *done = Gemm::Done();
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool ran = false;
  if (ActivationEpilogue(gemm, &epilogue)) {
    KB_RETURN_IF_ERROR(
        Try(gemm, epilogue, 0, gemm.c, gemm.pre_activation, context, workspace, &ran));
    done->bias = done->activation = ran;
    if (ran) return Status::Ok();
  }
  if (gemm.bias != nullptr) {
    KB_RETURN_IF_ERROR(
        Try(gemm, CUBLASLT_EPILOGUE_BIAS, 0, gemm.Linear(), nullptr, context, workspace, &ran));
    done->bias = ran;
    if (ran) return Status::Ok();
    // Added to the bias rather than the bias to it: the sum is then rounded once, as when fused.
    KB_RETURN_IF_ERROR(FillWithBias(gemm, context));
    done->bias = done->bias_first = true;
  }
  KB_RETURN_IF_ERROR(Try(gemm, CUBLASLT_EPILOGUE_DEFAULT, done->bias_first ? 1 : 0, gemm.Linear(),
                         nullptr, context, workspace, &ran));
  if (ran) return Status::Ok();
  char given[Status::kTextBytes];
  snprintf(given, sizeof given, "m=%lld n=%lld k=%lld of %s", static_cast<long long>(gemm.m),
           static_cast<long long>(gemm.n), static_cast<long long>(gemm.k), NameOf(gemm.in));
  return Status::Error(Reason::kUnsupported, "", "a product that cuBLASLt has an algorithm for",
                       given);
}

BlasLibrary* LoadBlasLibrary(Status* status) {
  char name[32];
  snprintf(name, sizeof name, "libcublasLt.so.%d", CUDART_VERSION / 1000);
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *status = Status::Error(Reason::kDeviceError, "", name, dlerror());
    return nullptr;
  }
  auto* blas = new (std::nothrow) BlasLibrary();
  if (blas == nullptr) {
    *status = Status::Error(Reason::kDeviceError, "", "host memory", "none left");
    return nullptr;
  }
  const char* missing = nullptr;
  const auto find = [&]<class F>(const char* symbol, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, symbol));
    if (*function == nullptr && missing == nullptr) missing = symbol;
  };
  BlasLibrary::Functions& f = blas->functions_;
  find("cublasLtCreate", &f.create);
  find("cublasLtGetStatusString", &f.status_string);
  find("cublasLtMatmul", &f.matmul);
  find("cublasLtMatmulAlgoGetHeuristic", &f.get_heuristic);
  find("cublasLtMatmulDescCreate", &f.desc_create);
  find("cublasLtMatmulDescDestroy", &f.desc_destroy);
  find("cublasLtMatmulDescSetAttribute", &f.desc_set);
  find("cublasLtMatrixLayoutCreate", &f.layout_create);
  find("cublasLtMatrixLayoutDestroy", &f.layout_destroy);
  find("cublasLtMatmulPreferenceCreate", &f.preference_create);
  find("cublasLtMatmulPreferenceDestroy", &f.preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", &f.preference_set);
  *status = missing != nullptr ? Status::Error(Reason::kDeviceError, "", name, missing)
                               : blas->Check("cublasLtCreate", f.create(&blas->handle_));
  if (status->ok()) return blas;
  delete blas;
  return nullptr;
}

namespace device {

Status RunGemm(const Gemm& gemm, const Context& context, void* workspace, Gemm::Done* done) {
  *done = Gemm::Done();
  if (gemm.m == 0 || gemm.n == 0) return Status::Ok();
  if (gemm.k == 0) {  // a sum of nothing; bias and activation follow
    const size_t bytes =
        static_cast<size_t>(gemm.m) * static_cast<size_t>(gemm.n) * SizeOf(gemm.out);
    cudaMemsetAsync(gemm.Linear(), 0, bytes, context.stream);
    return LaunchStatus();
  }
  if (context.device->blas == nullptr) {
    return Status::Error(Reason::kUnsupported, "", "cuBLASLt on this machine", "none");
  }
  return context.device->blas->Run(gemm, context, workspace, done);
}

}  // namespace device
}  // namespace kernelbox
