// ReLU: y = max(x, 0). Backward: d_x = d_y where x > 0, else 0.
#include "kernels/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/layer.h"
#include "kernels/math/activation.h"

#ifdef __CUDACC__
#include "kernels/device/elementwise.h"
#endif

namespace kernelbox {
namespace {

struct ReLU {
  In x;
  Out y;
};

struct ReLUBackward {
  In x, d_y;
  Out d_x;
};

Status Infer(ReLU& a) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  a.y.SetLike(a.x);
  return Status::Ok();
}

Status Infer(ReLUBackward& a) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  KB_RETURN_IF_ERROR(CheckDType("d_y", a.d_y, a.x.dtype));
  KB_RETURN_IF_ERROR(CheckSameShape("d_y", a.d_y, "x", a.x));
  a.d_x.SetLike(a.x);
  return Status::Ok();
}

Status Cpu(const ReLU& a, Context&) {
  DispatchFloating(a.x.dtype, [&]<class T>(TypeTag<T>) {
    const T* x = a.x.Data<T>();
    T* y = a.y.Data<T>();
    cpu::ParallelFor(a.x.NumElements(),
                     [=](int64_t i) { y[i] = T(math::Relu(static_cast<Accumulator<T>>(x[i]))); });
  });
  return Status::Ok();
}

Status Cpu(const ReLUBackward& a, Context&) {
  DispatchFloating(a.x.dtype, [&]<class T>(TypeTag<T>) {
    using S = Accumulator<T>;
    const T* x = a.x.Data<T>();
    const T* d_y = a.d_y.Data<T>();
    T* d_x = a.d_x.Data<T>();
    cpu::ParallelFor(a.x.NumElements(), [=](int64_t i) {
      d_x[i] = T(math::ReluBackward(static_cast<S>(x[i]), static_cast<S>(d_y[i])));
    });
  });
  return Status::Ok();
}

#ifdef __CUDACC__
struct ReluFunction {
  template <class S>
  __device__ S operator()(S x) const {
    return math::Relu(x);
  }
};

struct ReluBackwardFunction {
  template <class S>
  __device__ S operator()(S x, S d_y) const {
    return math::ReluBackward(x, d_y);
  }
};

Status Cuda(const ReLU& a, Context& context) {
  return DispatchFloating32(a.x.dtype, [&]<class T>(TypeTag<T>) {
    return device::LaunchElementwise(context, a.x.NumElements(), ReluFunction{}, a.y.Data<T>(),
                                     static_cast<const T*>(a.x.Data<T>()));
  });
}

Status Cuda(const ReLUBackward& a, Context& context) {
  return DispatchFloating32(a.x.dtype, [&]<class T>(TypeTag<T>) {
    return device::LaunchElementwise(context, a.x.NumElements(), ReluBackwardFunction{},
                                     a.d_x.Data<T>(), static_cast<const T*>(a.x.Data<T>()),
                                     static_cast<const T*>(a.d_y.Data<T>()));
  });
}
#endif

KB_LAYER(ReLU, x, y);
KB_LAYER(ReLUBackward, x, d_y, d_x);

}  // namespace
}  // namespace kernelbox
