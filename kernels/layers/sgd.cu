// SGD, one step over all parameters: g += weight_decay * p; b = momentum * b + (1 - dampening) * g
// (b = g at the first step); p -= lr * b, or lr * (g + momentum * b) with nesterov.
#include "kernels/math/optimizer.h"
#include "kernels/optimizer.h"

#ifdef __CUDACC__
#include "kernels/device/tensor_list.h"
#endif

namespace kernelbox {
namespace {

struct SGD {
  InOutList params;
  InList grads;
  OptionalInOutList momentum_buffers;
  In lr;
  InOut step;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;

  math::SgdOptions Options() const {
    return {momentum, dampening, weight_decay, nesterov, maximize};
  }
};

Status Infer(SGD& a) {
  KB_RETURN_IF_ERROR(CheckNotNegative("momentum", a.momentum));
  KB_RETURN_IF_ERROR(CheckFinite("dampening", a.dampening));
  KB_RETURN_IF_ERROR(CheckNotNegative("weight_decay", a.weight_decay));
  if (a.nesterov && (a.momentum == 0 || a.dampening != 0)) {
    return Status::Error(Reason::kInvalidAttribute, "nesterov",
                         "false, or a momentum above 0 and no dampening", "true");
  }
  KB_RETURN_IF_ERROR(CheckOptimizer(a));
  if (a.momentum == 0) {
    return CheckEmptyList("momentum_buffers", a.momentum_buffers, "momentum is 0");
  }
  KB_RETURN_IF_ERROR(CheckLikeParams("momentum_buffers", a.momentum_buffers, a.params));
  for (int64_t i = 0; i < a.params.count; ++i) {
    KB_RETURN_IF_ERROR(CheckDType(IndexedField("momentum_buffers", i).name, a.momentum_buffers[i],
                                  a.params[i].dtype));
  }
  return Status::Ok();
}

Status Cpu(const SGD& a, Context&) {
  return cpu::RunStep<math::SgdRule>(
      a, [&]<class P, class S>(int64_t i, math::SgdRule<S> rule, TypeTag<P>) {
        P* buffer = a.momentum == 0 ? nullptr : a.momentum_buffers[i].Data<P>();
        return [=](int64_t k, S& p, S g) {
          S b = buffer == nullptr ? S(0) : static_cast<S>(buffer[k]);
          rule.Apply(p, g, b);
          if (buffer != nullptr) buffer[k] = P(b);
        };
      });
}

#ifdef __CUDACC__
struct SgdUpdate {
  using Rule = math::SgdRule<float>;
  using Options = math::SgdOptions;

  template <class P, class G>
  __device__ static void Apply(const Rule& rule, void* const* data, int64_t i, int64_t left,
                               bool aligned) {
    auto param = device::LoadFloats<P>(data[0], i, left, aligned);
    const auto grad = device::LoadFloats<G>(data[1], i, left, aligned);
    device::Pack<float, device::kListPack> buffer = {};
    if (data[2] != nullptr) buffer = device::LoadFloats<P>(data[2], i, left, aligned);
#pragma unroll
    for (int k = 0; k < device::kListPack; ++k) {
      rule.Apply(param.items[k], grad.items[k], buffer.items[k]);
    }
    device::StoreFloats<P>(data[0], i, left, aligned, param);
    if (data[2] != nullptr) device::StoreFloats<P>(data[2], i, left, aligned, buffer);
  }
};

Status Cuda(const SGD& a, Context& context) {
  const TensorList* buffers = a.momentum == 0 ? nullptr : &a.momentum_buffers;
  return device::RunStep<SgdUpdate, 3>(context, a.Options(), a.lr, a.step,
                                       {&a.params, &a.grads, buffers});
}
#endif

KB_LAYER(SGD, params, grads, momentum_buffers, lr, step, momentum, dampening, weight_decay,
         nesterov, maximize);

}  // namespace
}  // namespace kernelbox
