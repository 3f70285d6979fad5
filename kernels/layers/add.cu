// Add: y = a + alpha * b with broadcasting. Backward: d_a and d_b are d_y and alpha * d_y, summed
// over the dimensions along which a and b were broadcast.
#include <cmath>

#include "kernels/cpu/reduce.h"
#include "kernels/layer.h"

#ifdef __CUDACC__
#include "kernels/device/elementwise.h"
#include "kernels/device/reduce.h"
#endif

namespace kernelbox {
namespace {

struct Add {
  In a, b;
  Out y;
  double alpha = 1;
};

struct AddBackward {
  In a, b, d_y;
  OptionalOut d_a, d_b;
  double alpha = 1;
};

// a and b agree in dtype, and y is their broadcast shape.
Status InferSum(const Tensor& a, const Tensor& b, Tensor& y) {
  KB_RETURN_IF_ERROR(CheckDType("b", b, a.dtype));
  KB_RETURN_IF_ERROR(InferBroadcast("a", a, "b", b, y));
  if (CheckLike("b", b, "a", a).ok()) return Status::Ok();
  KB_RETURN_IF_ERROR(CheckContiguous("a", a));
  return CheckContiguous("b", b);
}

Status Infer(Add& op) {
  KB_RETURN_IF_ERROR(CheckDTypeIn("a", op.a,
                                  {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                   DType::kFloat64, DType::kInt32, DType::kInt64}));
  if (!IsFloating(op.a.dtype) && !(std::abs(op.alpha) < 0x1p63 && std::trunc(op.alpha) == op.alpha)) {
    return Status::Error(Reason::kInvalidAttribute, "alpha", "an integer, as a is of integers",
                         "a number that is none");
  }
  return InferSum(op.a, op.b, op.y);
}

Status Infer(AddBackward& op) {
  KB_RETURN_IF_ERROR(CheckFloating("a", op.a));
  Tensor y;
  KB_RETURN_IF_ERROR(InferSum(op.a, op.b, y));
  KB_RETURN_IF_ERROR(CheckDType("d_y", op.d_y, op.a.dtype));
  KB_RETURN_IF_ERROR(CheckLike("d_y", op.d_y, "a + b", y));
  op.d_a.SetLike(op.a);
  op.d_b.SetLike(op.b);
  return Status::Ok();
}

template <class Function>
auto DispatchAddable(DType dtype, Function&& function) {
  if (dtype == DType::kInt32) return function(TypeTag<int32_t>{});
  if (dtype == DType::kInt64) return function(TypeTag<int64_t>{});
  return DispatchFloating(dtype, function);
}

// a + alpha * b; integers wrap.
template <class T>
struct AddElement {
  double alpha;

  KB_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      const auto factor = static_cast<uint64_t>(static_cast<int64_t>(alpha));
      return static_cast<T>(static_cast<uint64_t>(a) + factor * static_cast<uint64_t>(b));
    } else {
      using S = Accumulator<T>;
      return T(static_cast<S>(a) + static_cast<S>(alpha) * static_cast<S>(b));
    }
  }
};

template <class T>
struct ScaleElement {
  double factor;

  KB_HOST_DEVICE T operator()(T x) const {
    using S = Accumulator<T>;
    return T(static_cast<S>(factor) * static_cast<S>(x));
  }
};

Status Cpu(const Add& op, Context&) {
  const Walk walk_a = BroadcastWalk(op.a, op.y);
  const Walk walk_b = BroadcastWalk(op.b, op.y);
  DispatchAddable(op.a.dtype, [&]<class T>(TypeTag<T>) {
    const AddElement<T> add{op.alpha};
    const T* a = op.a.Data<T>();
    const T* b = op.b.Data<T>();
    T* y = op.y.Data<T>();
    if (walk_a.IsIdentity() && walk_b.IsIdentity()) return cpu::Map(walk_a.count, add, y, a, b);
    cpu::ParallelFor(walk_a.count, [&](int64_t i) {
      y[i] = add(a[walk_a.Offset(i)], b[walk_b.Offset(i)]);
    });
  });
  return Status::Ok();
}

void CpuGradient(const Tensor& d_y, double scale, const Tensor& d_x) {
  const ReducePlan plan = PlanReduce(d_y, d_x);
  DispatchFloating(d_y.dtype, [&]<class T>(TypeTag<T>) {
    if (plan.reduced.rank == 0 && plan.reduced.count == 1) {
      return cpu::Map(plan.kept.count, ScaleElement<T>{scale}, d_x.Data<T>(), d_y.Data<const T>());
    }
    cpu::ReduceSum(plan, d_y.Data<const T>(), scale, d_x.Data<T>());
  });
}

Status Cpu(const AddBackward& op, Context&) {
  if (op.d_a) CpuGradient(op.d_y, 1, op.d_a);
  if (op.d_b) CpuGradient(op.d_y, op.alpha, op.d_b);
  return Status::Ok();
}

#ifdef __CUDACC__
template <class T>
struct AddPacks {
  Walk walk_a, walk_b;
  int64_t count;
  const T* a;
  const T* b;
  AddElement<T> add;

  template <int N>
  __device__ void operator()(int64_t i, device::Pack<T, N>& y) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (i + k < count) y.items[k] = add(a[walk_a.Offset(i + k)], b[walk_b.Offset(i + k)]);
    }
  }
};

Status Cuda(const Add& op, Context& context) {
  const Walk walk_a = BroadcastWalk(op.a, op.y);
  const Walk walk_b = BroadcastWalk(op.b, op.y);
  return DispatchAddable(op.a.dtype, [&]<class T>(TypeTag<T>) {
    const AddElement<T> add{op.alpha};
    const T* a = op.a.Data<T>();
    const T* b = op.b.Data<T>();
    if (walk_a.IsIdentity() && walk_b.IsIdentity()) {
      return device::Map(context, walk_a.count, add, op.y.Data<T>(), a, b);
    }
    return device::MapPacks(context, walk_a.count,
                            AddPacks<T>{walk_a, walk_b, walk_a.count, a, b, add}, op.y.Data<T>());
  });
}

Status CudaGradient(const Context& context, const Tensor& d_y, double scale, const Tensor& d_x) {
  const ReducePlan plan = PlanReduce(d_y, d_x);
  return DispatchFloating32(d_y.dtype, [&]<class T>(TypeTag<T>) {
    if (plan.reduced.rank == 0 && plan.reduced.count == 1) {
      return device::Map(context, plan.kept.count, ScaleElement<T>{scale}, d_x.Data<T>(),
                         d_y.Data<const T>());
    }
    return device::ReduceSum(context, plan, d_y.Data<const T>(), scale, d_x.Data<T>(),
                             context.workspace);
  });
}

// The two sums share one workspace: the stream runs them one after the other.
Status Cuda(const AddBackward& op, Context& context) {
  if (op.d_a) KB_RETURN_IF_ERROR(CudaGradient(context, op.d_y, 1, op.d_a));
  if (op.d_b) KB_RETURN_IF_ERROR(CudaGradient(context, op.d_y, op.alpha, op.d_b));
  return Status::Ok();
}
#endif

size_t Workspace(const AddBackward& op, const Device&) {
  const size_t a = op.d_a ? PlanReduce(op.d_y, op.d_a).WorkspaceBytes() : 0;
  const size_t b = op.d_b ? PlanReduce(op.d_y, op.d_b).WorkspaceBytes() : 0;
  return a > b ? a : b;
}

KB_LAYER(Add, a, b, y, alpha);
KB_LAYER_WITH_WORKSPACE(AddBackward, a, b, d_y, d_a, d_b, alpha);

}  // namespace
}  // namespace kernelbox
