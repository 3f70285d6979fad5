// What optimizers share: lists of parameters and their states, a learning rate and a step counter
// that are tensors.
#pragma once

#include "kernels/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/layer.h"
#include "kernels/math/convert.h"

namespace kernelbox {

// The tensors of `list` are like those of `params`, one each.
inline Status CheckLikeParams(const char* field, const TensorList& list, const TensorList& params) {
  KB_RETURN_IF_ERROR(CheckListCount(field, list, "params", params.count));
  for (int64_t i = 0; i < params.count; ++i) {
    KB_RETURN_IF_ERROR(
        CheckLike(IndexedField(field, i).name, list[i], IndexedField("params", i).name, params[i]));
  }
  return Status::Ok();
}

// The optimizer's state in float32, or in float64 beside a float64 parameter.
inline Status CheckState(const char* field, const TensorList& list, const TensorList& params) {
  KB_RETURN_IF_ERROR(CheckLikeParams(field, list, params));
  for (int64_t i = 0; i < params.count; ++i) {
    const DType dtype = params[i].dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    KB_RETURN_IF_ERROR(CheckDType(IndexedField(field, i).name, list[i], dtype));
  }
  return Status::Ok();
}

// No tensors in a list that the attributes leave no use for; `reason` says which.
inline Status CheckEmptyList(const char* field, const TensorList& list, const char* reason) {
  if (list.count == 0) return Status::Ok();
  char expected[Status::kTextBytes];
  char given[Status::kTextBytes];
  snprintf(expected, sizeof expected, "no tensors, as %s", reason);
  snprintf(given, sizeof given, "%lld", static_cast<long long>(list.count));
  return Status::Error(Reason::kInvalidShape, field, expected, given);
}

// params, grads, lr and step.
template <class A>
Status CheckOptimizer(const A& a) {
  for (int64_t i = 0; i < a.params.count; ++i) {
    KB_RETURN_IF_ERROR(CheckFloating(IndexedField("params", i).name, a.params[i]));
  }
  KB_RETURN_IF_ERROR(CheckLikeParams("grads", a.grads, a.params));
  for (int64_t i = 0; i < a.grads.count; ++i) {
    KB_RETURN_IF_ERROR(CheckFloating(IndexedField("grads", i).name, a.grads[i]));
  }
  KB_RETURN_IF_ERROR(CheckDTypeIn("lr", a.lr, {DType::kFloat32, DType::kFloat64}));
  KB_RETURN_IF_ERROR(CheckShape("lr", a.lr, {}));
  KB_RETURN_IF_ERROR(CheckDType("step", a.step, DType::kInt64));
  return CheckShape("step", a.step, {});
}

namespace cpu {

inline double ReadLr(const Tensor& lr) {
  return lr.dtype == DType::kFloat64 ? *lr.Data<double>() : static_cast<double>(*lr.Data<float>());
}

// One step over all parameters. make_update(i, rule, TypeTag<P>) gives, for parameter i of type P,
// the function update(k, p, g) that moves its element k, given as the accumulator p and gradient g.
template <template <class> class Rule, class A, class MakeUpdate>
Status RunStep(const A& a, MakeUpdate&& make_update) {
  int64_t& step = *a.step.template Data<int64_t>();
  const double lr = ReadLr(a.lr);
  for (int64_t i = 0; i < a.params.count; ++i) {
    DispatchFloating(a.params[i].dtype, [&]<class P>(TypeTag<P> type) {
      using S = Accumulator<P>;
      const auto update = make_update(i, Rule<S>(a.Options(), lr, step), type);
      P* param = a.params[i].template Data<P>();
      DispatchFloating(a.grads[i].dtype, [&]<class G>(TypeTag<G>) {
        const G* grad = a.grads[i].template Data<G>();
        ParallelFor(a.params[i].NumElements(), [&](int64_t k) {
          S p = static_cast<S>(param[k]);
          update(k, p, math::Convert<S>(grad[k]));
          param[k] = P(p);
        });
      });
    });
  }
  ++step;
  return Status::Ok();
}

}  // namespace cpu
}  // namespace kernelbox
