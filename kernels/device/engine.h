// The cuda half of what layers are written in: the same calls as cpu::Engine has. Each enqueues on
// the context's stream.
#pragma once

#include "kernels/device/blas_library.h"
#include "kernels/device/elementwise.h"
#include "kernels/device/reduce.h"

namespace kernelbox::device {

struct Engine {
  Context& context;

  template <class Function>
  static Status Dispatch(DType dtype, Function&& function) {
    return DispatchFloating32(dtype, function);
  }

  template <class F, class T, class... In>
  Status Map(int64_t count, F f, T* y, const In*... in) const {
    return MapPacks(context, count, EachElement<F>{f}, y, in...);
  }

  template <class F, class T, class... In>
  Status MapIndexed(int64_t count, F f, T* y, const In*... in) const {
    return MapPacks(context, count, EachIndexed<F>{f, count}, y, in...);
  }

  template <class T, class U>
  Status ReduceSum(const ReducePlan& plan, const T* x, double scale, U* y, void* workspace) const {
    return device::ReduceSum(context, plan, x, scale, y, workspace);
  }

  Status Multiply(const Gemm& gemm, void* workspace, Gemm::Done* done) const {
    return RunGemm(gemm, context, workspace, done);
  }
};

}  // namespace kernelbox::device
