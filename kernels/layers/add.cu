// Add: y = a + alpha * b with broadcasting. Backward: d_a and d_b are d_y and alpha * d_y, summed
// over the dimensions along which a and b were broadcast.
#include <cmath>

#include "kernels/engine.h"
#include "kernels/layer.h"

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
  if (!IsFloating(op.a.dtype) &&
      !(std::abs(op.alpha) < 0x1p63 && std::trunc(op.alpha) == op.alpha)) {
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

// The element at a broadcast place.
template <class T>
struct AddAcross {
  Walk walk_a, walk_b;
  const T* a;
  const T* b;
  AddElement<T> add;

  KB_HOST_DEVICE T operator()(int64_t i) const {
    return add(a[walk_a.Offset(i)], b[walk_b.Offset(i)]);
  }
};

template <class Engine>
Status Run(Engine engine, const Add& op) {
  const Walk walk_a = BroadcastWalk(op.a, op.y);
  const Walk walk_b = BroadcastWalk(op.b, op.y);
  return DispatchAddable(op.a.dtype, [&]<class T>(TypeTag<T>) {
    const AddElement<T> add{op.alpha};
    const T* a = op.a.Data<T>();
    const T* b = op.b.Data<T>();
    if (walk_a.IsIdentity() && walk_b.IsIdentity()) {
      return engine.Map(walk_a.count, add, op.y.Data<T>(), a, b);
    }
    return engine.MapIndexed(walk_a.count, AddAcross<T>{walk_a, walk_b, a, b, add}, op.y.Data<T>());
  });
}

template <class Engine>
Status RunGradient(Engine engine, const Tensor& d_y, double scale, const Tensor& d_x) {
  const ReducePlan plan = PlanReduce(d_y, d_x);
  return Engine::Dispatch(d_y.dtype, [&]<class T>(TypeTag<T>) {
    if (plan.reduced.rank == 0 && plan.reduced.count == 1) {
      return engine.Map(plan.kept.count, ScaleElement<T>{scale}, d_x.Data<T>(),
                        d_y.Data<const T>());
    }
    return engine.ReduceSum(plan, d_y.Data<const T>(), scale, d_x.Data<T>(),
                            engine.context.workspace);
  });
}

// The two sums share one workspace: they run one after the other.
template <class Engine>
Status Run(Engine engine, const AddBackward& op) {
  if (op.d_a) KB_RETURN_IF_ERROR(RunGradient(engine, op.d_y, 1, op.d_a));
  if (op.d_b) KB_RETURN_IF_ERROR(RunGradient(engine, op.d_y, op.alpha, op.d_b));
  return Status::Ok();
}

Status Cpu(const Add& op, Context& context) { return Run(cpu::Engine{context}, op); }
Status Cpu(const AddBackward& op, Context& context) { return Run(cpu::Engine{context}, op); }

#ifdef __CUDACC__
Status Cuda(const Add& op, Context& context) { return Run(device::Engine{context}, op); }
Status Cuda(const AddBackward& op, Context& context) { return Run(device::Engine{context}, op); }
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
