// AdamW, one step over all parameters: p *= 1 - lr * weight_decay; m += (1 - beta1) (g - m);
// v = beta2 * v + (1 - beta2) g^2; p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) +
// eps).
#include "kernels/math/optimizer.h"
#include "kernels/optimizer.h"

#ifdef __CUDACC__
#include "kernels/device/tensor_list.h"
#endif

namespace kernelbox {
namespace {

struct AdamW {
  InOutList params;
  InList grads;
  InOutList exp_avgs, exp_avg_sqs;
  OptionalInOutList max_exp_avg_sqs;
  In lr;
  InOut step;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false, maximize = false;

  math::AdamWOptions Options() const {
    return {beta1, beta2, eps, weight_decay, amsgrad, maximize};
  }
};

// 0 <= beta < 1.
Status CheckBeta(const char* field, double beta) {
  if (beta >= 0 && beta < 1) return Status::Ok();
  char given[Status::kTextBytes];
  snprintf(given, sizeof given, "%g", beta);
  return Status::Error(Reason::kInvalidAttribute, field, "a number in [0, 1)", given);
}

Status Infer(AdamW& a) {
  KB_RETURN_IF_ERROR(CheckBeta("beta1", a.beta1));
  KB_RETURN_IF_ERROR(CheckBeta("beta2", a.beta2));
  KB_RETURN_IF_ERROR(CheckNotNegative("eps", a.eps));
  KB_RETURN_IF_ERROR(CheckNotNegative("weight_decay", a.weight_decay));
  KB_RETURN_IF_ERROR(CheckOptimizer(a));
  KB_RETURN_IF_ERROR(CheckState("exp_avgs", a.exp_avgs, a.params));
  KB_RETURN_IF_ERROR(CheckState("exp_avg_sqs", a.exp_avg_sqs, a.params));
  if (a.amsgrad) return CheckState("max_exp_avg_sqs", a.max_exp_avg_sqs, a.params);
  return CheckEmptyList("max_exp_avg_sqs", a.max_exp_avg_sqs, "amsgrad is false");
}

Status Cpu(const AdamW& a, Context&) {
  return cpu::RunStep<math::AdamWRule>(
      a, [&]<class P, class S>(int64_t i, math::AdamWRule<S> rule, TypeTag<P>) {
        S* average = a.exp_avgs[i].Data<S>();
        S* square = a.exp_avg_sqs[i].Data<S>();
        S* largest = a.amsgrad ? a.max_exp_avg_sqs[i].Data<S>() : nullptr;
        return [=](int64_t k, S& p, S g) {
          S unused = 0;
          rule.Apply(p, g, average[k], square[k], largest == nullptr ? unused : largest[k]);
        };
      });
}

#ifdef __CUDACC__
struct AdamWUpdate {
  using Rule = math::AdamWRule<float>;
  using Options = math::AdamWOptions;

  template <class P, class G>
  __device__ static void Apply(const Rule& rule, void* const* data, int64_t i, int64_t left,
                               bool aligned) {
    auto param = device::LoadFloats<P>(data[0], i, left, aligned);
    const auto grad = device::LoadFloats<G>(data[1], i, left, aligned);
    auto average = device::LoadFloats<float>(data[2], i, left, aligned);
    auto square = device::LoadFloats<float>(data[3], i, left, aligned);
    device::Pack<float, device::kListPack> largest = {};
    if (data[4] != nullptr) largest = device::LoadFloats<float>(data[4], i, left, aligned);
#pragma unroll
    for (int k = 0; k < device::kListPack; ++k) {
      rule.Apply(param.items[k], grad.items[k], average.items[k], square.items[k],
                 largest.items[k]);
    }
    device::StoreFloats<P>(data[0], i, left, aligned, param);
    device::StoreFloats<float>(data[2], i, left, aligned, average);
    device::StoreFloats<float>(data[3], i, left, aligned, square);
    if (data[4] != nullptr) device::StoreFloats<float>(data[4], i, left, aligned, largest);
  }
};

Status Cuda(const AdamW& a, Context& context) {
  const TensorList* largest = a.amsgrad ? &a.max_exp_avg_sqs : nullptr;
  return device::RunStep<AdamWUpdate, 5>(
      context, a.Options(), a.lr, a.step,
      {&a.params, &a.grads, &a.exp_avgs, &a.exp_avg_sqs, largest});
}
#endif

KB_LAYER(AdamW, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, lr, step, beta1, beta2, eps,
         weight_decay, amsgrad, maximize);

}  // namespace
}  // namespace kernelbox
