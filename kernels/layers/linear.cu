// Linear: y = activation(pre), pre = x weight^T + bias. Backward: d_pre = d_y * activation'(pre),
// d_x = d_pre weight, d_weight = d_pre^T x, d_bias = the column sums of d_pre.
//
// pre is rounded to the dtype of x before the activation. A float32 weight beside 16-bit x is
// rounded to the dtype of x for the product, and its gradient is float32, as under torch.autocast.
#include "kernels/activation.h"
#include "kernels/engine.h"
#include "kernels/pointwise.h"
#include "kernels/workspace.h"

namespace kernelbox {
namespace {

struct Linear {
  In x, weight;
  OptionalIn bias;
  Out y;
  OptionalOut pre_activation;
  Activation activation = Activation::kNone;
};

struct LinearBackward {
  In x, weight;
  OptionalIn bias, pre_activation;
  In d_y;
  OptionalOut d_x, d_weight, d_bias;
  Activation activation = Activation::kNone;
};

// The product's sizes: x is (m, k), weight (n, k), y (m, n).
struct Sizes {
  int64_t m = 1, n, k;

  template <class A>
  explicit Sizes(const A& a) : n(a.weight.shape[0]), k(a.weight.shape[1]) {
    for (int d = 0; d < a.x.rank - 1; ++d) m *= a.x.shape[d];
  }
};

// Checks what both directions take and gives `y` the forward's shape.
template <class A>
Status InferLinear(A& a, Tensor& y) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  KB_RETURN_IF_ERROR(CheckContiguous("x", a.x));
  KB_RETURN_IF_ERROR(CheckContiguous("weight", a.weight));
  if (a.x.dtype == DType::kFloat16 || a.x.dtype == DType::kBFloat16) {
    KB_RETURN_IF_ERROR(CheckDTypeIn("weight", a.weight, {a.x.dtype, DType::kFloat32}));
  } else {
    KB_RETURN_IF_ERROR(CheckDType("weight", a.weight, a.x.dtype));
  }
  char given[Status::kTextBytes];
  if (a.x.rank == 0) {
    return Status::Error(Reason::kInvalidShape, "x", "at least 1 dimension", "[]");
  }
  const int64_t in_features = a.x.shape[a.x.rank - 1];
  if (a.weight.rank != 2 || a.weight.shape[1] != in_features) {
    char expected[Status::kTextBytes];
    snprintf(expected, sizeof expected, "[out_features, %lld], the last dimension of x",
             static_cast<long long>(in_features));
    FormatShape(a.weight, given, sizeof given);
    return Status::Error(Reason::kInvalidShape, "weight", expected, given);
  }
  if (a.bias) {
    KB_RETURN_IF_ERROR(CheckDType("bias", a.bias, a.weight.dtype));
    KB_RETURN_IF_ERROR(CheckShape("bias", a.bias, {a.weight.shape[0]}));
  }
  y.SetLike(a.x);
  y.shape[y.rank - 1] = a.weight.shape[0];
  return CheckEnum("activation", a.activation, Activation::kNone, Activation::kGeluTanh);
}

Status Infer(Linear& a) {
  KB_RETURN_IF_ERROR(InferLinear(a, a.y));
  if (a.activation == Activation::kNone) {
    a.pre_activation.Set(a.x.dtype, {0});
  } else {
    a.pre_activation.SetLike(a.y);
  }
  return Status::Ok();
}

Status Infer(LinearBackward& a) {
  Tensor y;
  KB_RETURN_IF_ERROR(InferLinear(a, y));
  KB_RETURN_IF_ERROR(CheckDType("d_y", a.d_y, a.x.dtype));
  KB_RETURN_IF_ERROR(CheckLike("d_y", a.d_y, "y", y));
  if (a.activation != Activation::kNone) {
    KB_RETURN_IF_ERROR(
        CheckPresent("pre_activation", a.pre_activation, "as there is an activation"));
    KB_RETURN_IF_ERROR(CheckDType("pre_activation", a.pre_activation, a.x.dtype));
    KB_RETURN_IF_ERROR(CheckLike("pre_activation", a.pre_activation, "y", y));
  }
  if (a.d_bias) KB_RETURN_IF_ERROR(CheckPresent("bias", a.bias, "as d_bias is asked for"));
  a.d_x.SetLike(a.x);
  a.d_weight.SetLike(a.weight);
  a.d_bias.SetLike(a.bias);
  return Status::Ok();
}

// The parts of the workspace.
struct Scratch {
  void* weight = nullptr;  // weight in the dtype of x
  void* bias = nullptr;    // bias in the dtype of x and aligned
  float* wide = nullptr;   // the product before the bias, where cuBLASLt would round it first
  void* d_pre = nullptr;
  void* sums = nullptr;  // for d_bias
  void* gemm = nullptr;
  size_t bytes = 0;

  Scratch(const Linear& a, const Device& device, void* base) : Scratch(base) {
    TakeWeight(a.x, a.weight);
    bias = arena_.Take(static_cast<size_t>(a.weight.shape[0]) * SizeOf(a.x.dtype));
    if (RoundsBeforeBias(a, device)) wide = arena_.Take<float>(a.y.NumElements());
    Finish(a.x, device);
  }
  Scratch(const LinearBackward& a, const Device& device, void* base) : Scratch(base) {
    const Sizes sizes(a);
    if (a.d_x) TakeWeight(a.x, a.weight);
    if (a.activation != Activation::kNone) d_pre = arena_.Take(a.d_y.SizeBytes());
    if (a.d_bias) sums = arena_.Take(PlanColumnSum(sizes.m, sizes.n).WorkspaceBytes());
    Finish(a.x, device);
  }

 private:
  explicit Scratch(void* base) : arena_(base) {}

  // For 16-bit rows that are not whole 16-byte vectors, cuBLASLt has kernels that round the product
  // and then add the bias: seen on an H200, in bfloat16.
  static bool RoundsBeforeBias(const Linear& a, const Device& device) {
    return device.multiprocessors > 0 && a.bias && SizeOf(a.x.dtype) == 2 &&
           (a.weight.shape[0] % 8 != 0 || a.weight.shape[1] % 8 != 0);
  }

  void TakeWeight(const Tensor& x, const Tensor& w) {
    if (w.dtype == x.dtype) return;
    weight = arena_.Take(static_cast<size_t>(w.NumElements()) * SizeOf(x.dtype));
  }
  void Finish(const Tensor& x, const Device& device) {
    const bool cuda = device.multiprocessors > 0;
    gemm = arena_.Take(cuda ? kBlasWorkspaceBytes : cpu::GemmWorkspace(x.dtype));
    bytes = arena_.Used();
  }

  Arena arena_;
};

size_t Workspace(const Linear& a, const Device& device) {
  return Scratch(a, device, nullptr).bytes;
}
size_t Workspace(const LinearBackward& a, const Device& device) {
  return Scratch(a, device, nullptr).bytes;
}

// `tensor` in `dtype`: itself, or a copy at `scratch`.
template <class Engine>
Status InDType(Engine engine, const Tensor& tensor, DType dtype, void* scratch, const void** data,
               bool copy = false) {
  *data = tensor.data;
  if (tensor.dtype == dtype && !copy) return Status::Ok();
  *data = scratch;
  return Engine::Dispatch(tensor.dtype, [&]<class From>(TypeTag<From>) {
    return Engine::Dispatch(dtype, [&]<class To>(TypeTag<To>) {
      return engine.Map(tensor.NumElements(), math::ConvertTo<To>{}, static_cast<To*>(scratch),
                        tensor.Data<const From>());
    });
  });
}

// The element of a row-major matrix, plus its column's bias.
template <class T>
struct AddBias {
  const T* bias;
  int64_t columns;

  KB_HOST_DEVICE T operator()(int64_t i, T c) const {
    using S = Accumulator<T>;
    return T(static_cast<S>(c) + static_cast<S>(bias[i % columns]));
  }
};

// The same of a product that has not been rounded yet.
template <class T>
struct AddBiasToWide {
  const T* bias;
  int64_t columns;

  KB_HOST_DEVICE T operator()(int64_t i, float c) const {
    return T(c + static_cast<float>(bias[i % columns]));
  }
};

// gemm by way of a float32 product.
template <class Engine>
Status MultiplyWide(Engine engine, const Gemm& gemm, float* wide, void* workspace,
                    Gemm::Done* done) {
  Gemm product = gemm;
  product.out = DType::kFloat32;
  product.c = wide;
  product.bias = nullptr;
  product.activation = Activation::kNone;
  product.pre_activation = nullptr;
  KB_RETURN_IF_ERROR(engine.Multiply(product, workspace, done));
  done->bias = true;
  return Engine::Dispatch(gemm.out, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(T) == 2) {
      return engine.MapIndexed(gemm.m * gemm.n,
                               AddBiasToWide<T>{static_cast<const T*>(gemm.bias), gemm.n},
                               static_cast<T*>(gemm.Linear()), static_cast<const float*>(wide));
    } else {
      return Status::Ok();  // wide is asked for of 16-bit types only
    }
  });
}

// What of bias and activation the product has left undone.
template <class Engine>
Status Finish(Engine engine, const Gemm& gemm, const Gemm::Done& done) {
  return Engine::Dispatch(gemm.out, [&]<class T>(TypeTag<T>) {
    const int64_t count = gemm.m * gemm.n;
    T* linear = static_cast<T*>(gemm.Linear());
    if (gemm.bias != nullptr && !done.bias) {
      const AddBias<T> add_bias{static_cast<const T*>(gemm.bias), gemm.n};
      KB_RETURN_IF_ERROR(engine.MapIndexed(count, add_bias, linear, static_cast<const T*>(linear)));
    }
    if (gemm.activation == Activation::kNone || done.activation) return Status::Ok();
    return ApplyActivation(gemm.activation, [&]<class F>(F f) {
      return engine.Map(count, ForwardElement<T, F>{f}, static_cast<T*>(gemm.c),
                        static_cast<const T*>(linear));
    });
  });
}

template <class Engine>
Status Run(Engine engine, const Linear& a, Gemm::Done* done) {
  const Sizes sizes(a);
  const DType dtype = a.x.dtype;
  const Scratch scratch(a, *engine.context.device, engine.context.workspace);
  Gemm gemm;
  gemm.m = sizes.m, gemm.n = sizes.n, gemm.k = sizes.k;
  gemm.transpose_b = true;
  gemm.in = gemm.out = dtype;
  gemm.a = a.x.data;
  gemm.c = a.y.data;
  gemm.activation = a.activation;
  if (a.activation != Activation::kNone && a.pre_activation) {
    gemm.pre_activation = a.pre_activation.data;
  }
  KB_RETURN_IF_ERROR(InDType(engine, a.weight, dtype, scratch.weight, &gemm.b));
  if (a.bias) {
    // A fused bias must be aligned; a copy of it is small.
    const bool copy = reinterpret_cast<uintptr_t>(a.bias.data) % 16 != 0;
    KB_RETURN_IF_ERROR(InDType(engine, a.bias, dtype, scratch.bias, &gemm.bias, copy));
  }
  if (scratch.wide != nullptr) {
    KB_RETURN_IF_ERROR(MultiplyWide(engine, gemm, scratch.wide, scratch.gemm, done));
    done->wide = true;
  } else {
    KB_RETURN_IF_ERROR(engine.Multiply(gemm, scratch.gemm, done));
  }
  return Finish(engine, gemm, *done);
}

// d_pre = d_y * activation'(pre).
template <class Engine>
Status RunActivationBackward(Engine engine, const LinearBackward& a, void* d_pre) {
  return ApplyActivation(a.activation, [&]<class F>(F f) {
    return Engine::Dispatch(a.x.dtype, [&]<class T>(TypeTag<T>) {
      return engine.Map(a.d_y.NumElements(), BackwardElement<T, F>{f}, static_cast<T*>(d_pre),
                        a.pre_activation.Data<const T>(), a.d_y.Data<const T>());
    });
  });
}

// d_bias = the column sums of d_pre, in weight's dtype: that of x or float32.
template <class Engine>
Status RunBiasGradient(Engine engine, const LinearBackward& a, const void* d_pre, void* sums) {
  const Sizes sizes(a);
  const ReducePlan plan = PlanColumnSum(sizes.m, sizes.n);
  return Engine::Dispatch(a.x.dtype, [&]<class T>(TypeTag<T>) {
    const T* x = static_cast<const T*>(d_pre);
    if (a.d_bias.dtype == a.x.dtype) return engine.ReduceSum(plan, x, 1, a.d_bias.Data<T>(), sums);
    return engine.ReduceSum(plan, x, 1, a.d_bias.Data<float>(), sums);
  });
}

template <class Engine>
Status Run(Engine engine, const LinearBackward& a) {
  const Sizes sizes(a);
  const Scratch scratch(a, *engine.context.device, engine.context.workspace);
  const void* d_pre = a.d_y.data;
  if (a.activation != Activation::kNone) {
    KB_RETURN_IF_ERROR(RunActivationBackward(engine, a, scratch.d_pre));
    d_pre = scratch.d_pre;
  }
  Gemm gemm;
  Gemm::Done done;
  gemm.a = d_pre;
  gemm.in = a.x.dtype;
  if (a.d_x) {
    gemm.m = sizes.m, gemm.n = sizes.k, gemm.k = sizes.n;
    KB_RETURN_IF_ERROR(InDType(engine, a.weight, a.x.dtype, scratch.weight, &gemm.b));
    gemm.out = a.x.dtype;
    gemm.c = a.d_x.data;
    KB_RETURN_IF_ERROR(engine.Multiply(gemm, scratch.gemm, &done));
  }
  if (a.d_weight) {
    gemm.m = sizes.n, gemm.n = sizes.k, gemm.k = sizes.m;
    gemm.transpose_a = true;
    gemm.b = a.x.data;
    gemm.out = a.weight.dtype;
    gemm.c = a.d_weight.data;
    KB_RETURN_IF_ERROR(engine.Multiply(gemm, scratch.gemm, &done));
  }
  return a.d_bias ? RunBiasGradient(engine, a, d_pre, scratch.sums) : Status::Ok();
}

Status Cpu(const Linear& a, Context& context) {
  context.kernel = "linear_openblas";
  Gemm::Done done;
  return Run(cpu::Engine{context}, a, &done);
}

Status Cpu(const LinearBackward& a, Context& context) {
  context.kernel = "linear_backward_openblas";
  return Run(cpu::Engine{context}, a);
}

#ifdef __CUDACC__
// "_" joins what one kernel does, "+" what follows it.
const char* KernelName(const Linear& a, const Gemm::Done& done) {
  const bool activation = a.activation != Activation::kNone;
  if (!a.bias) {
    if (!activation) return "linear_cublaslt";
    return done.activation ? "linear_cublaslt_activation" : "linear_cublaslt+activation";
  }
  if (!done.bias) return activation ? "linear_cublaslt+bias+activation" : "linear_cublaslt+bias";
  if (done.bias_first)
    return activation ? "linear_bias+cublaslt+activation" : "linear_bias+cublaslt";
  if (!activation) return "linear_cublaslt_bias";
  return done.activation ? "linear_cublaslt_bias_activation" : "linear_cublaslt_bias+activation";
}

Status Cuda(const Linear& a, Context& context) {
  Gemm::Done done;
  KB_RETURN_IF_ERROR(Run(device::Engine{context}, a, &done));
  context.kernel = KernelName(a, done);
  return Status::Ok();
}

Status Cuda(const LinearBackward& a, Context& context) {
  context.kernel = "linear_backward_cublaslt";
  return Run(device::Engine{context}, a);
}
#endif

KB_LAYER_WITH_WORKSPACE(Linear, x, weight, bias, y, pre_activation, activation);
KB_LAYER_WITH_WORKSPACE(LinearBackward, x, weight, bias, pre_activation, d_y, d_x, d_weight, d_bias,
                        activation);

}  // namespace
}  // namespace kernelbox
