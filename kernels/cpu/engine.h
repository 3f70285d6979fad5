// The cpu half of what layers are written in: the same calls as device::Engine has, so that most
// layers say once what they do. Each returns when done.
#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/reduce.h"
#include "kernels/gemm.h"

namespace kernelbox::cpu {

struct Engine {
  Context& context;

  // Calls function(TypeTag<T>) for a dtype that layers compute in.
  template <class Function>
  static Status Dispatch(DType dtype, Function&& function) {
    return DispatchFloating(dtype, function);
  }

  // y[i] = f(in[i], ...). y may be one of the inputs.
  template <class F, class T, class... In>
  Status Map(int64_t count, F f, T* y, const In*... in) const {
    ParallelFor(count, [=](int64_t i) { y[i] = f(in[i]...); });
    return Status::Ok();
  }

  // y[i] = f(i, in[i], ...).
  template <class F, class T, class... In>
  Status MapIndexed(int64_t count, F f, T* y, const In*... in) const {
    ParallelFor(count, [=](int64_t i) { y[i] = f(i, in[i]...); });
    return Status::Ok();
  }

  // y = scale * (sum over plan.reduced of x). `workspace` has plan.WorkspaceBytes().
  template <class T, class U>
  Status ReduceSum(const ReducePlan& plan, const T* x, double scale, U* y, void*) const {
    cpu::ReduceSum(plan, x, scale, y);
    return Status::Ok();
  }

  // `workspace` has what RunGemm asks for.
  Status Multiply(const Gemm& gemm, void* workspace, Gemm::Done* done) const {
    return RunGemm(gemm, workspace, done);
  }
};

}  // namespace kernelbox::cpu
