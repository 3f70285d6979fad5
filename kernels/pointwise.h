// Layers that apply one function of kernels/math/activation.h to every element.
//
// A forward struct has `In x; Out y;`, a backward struct `In x, d_y; Out d_x;`; both derive from
// Pointwise and say which function by
//   template <class Use> Status Apply(Use use) const { return use(math::Relu{}); }
// Infer, Cpu and Cuda are then these; a layer that has attributes to check writes its own Infer,
// which calls InferPointwise.
#pragma once

#include <type_traits>

#include "kernels/check.h"
#include "kernels/engine.h"
#include "kernels/layer.h"

namespace kernelbox {

// y = f(x) between elements of type T.
template <class T, class F>
struct ForwardElement {
  F f;

  KB_HOST_DEVICE T operator()(T x) const { return T(f.Forward(static_cast<Accumulator<T>>(x))); }
};

// d_x = d_y * f'(x).
template <class T, class F>
struct BackwardElement {
  F f;

  KB_HOST_DEVICE T operator()(T x, T d_y) const {
    return T(f.Backward(static_cast<Accumulator<T>>(x), static_cast<Accumulator<T>>(d_y)));
  }
};

// What the argument structs of such layers derive from.
struct Pointwise {};

template <class A>
concept PointwiseForward = std::is_base_of_v<Pointwise, A> && requires(A a) { a.x, a.y; };
template <class A>
concept PointwiseBackward = std::is_base_of_v<Pointwise, A> && requires(A a) { a.x, a.d_y, a.d_x; };

template <PointwiseForward A>
Status InferPointwise(A& a) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  a.y.SetLike(a.x);
  return Status::Ok();
}

template <PointwiseBackward A>
Status InferPointwise(A& a) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  KB_RETURN_IF_ERROR(CheckDType("d_y", a.d_y, a.x.dtype));
  KB_RETURN_IF_ERROR(CheckLike("d_y", a.d_y, "x", a.x));
  a.d_x.SetLike(a.x);
  return Status::Ok();
}

template <class A>
  requires PointwiseForward<A> || PointwiseBackward<A>
Status Infer(A& a) {
  return InferPointwise(a);
}

template <class Engine, PointwiseForward A>
Status RunPointwise(Engine engine, const A& a) {
  return a.Apply([&]<class F>(F f) {
    return Engine::Dispatch(a.x.dtype, [&]<class T>(TypeTag<T>) {
      return engine.Map(a.x.NumElements(), ForwardElement<T, F>{f}, a.y.template Data<T>(),
                        a.x.template Data<const T>());
    });
  });
}

template <class Engine, PointwiseBackward A>
Status RunPointwise(Engine engine, const A& a) {
  return a.Apply([&]<class F>(F f) {
    return Engine::Dispatch(a.x.dtype, [&]<class T>(TypeTag<T>) {
      return engine.Map(a.x.NumElements(), BackwardElement<T, F>{f}, a.d_x.template Data<T>(),
                        a.x.template Data<const T>(), a.d_y.template Data<const T>());
    });
  });
}

template <class A>
  requires PointwiseForward<A> || PointwiseBackward<A>
Status Cpu(const A& a, Context& context) {
  return RunPointwise(cpu::Engine{context}, a);
}

#ifdef __CUDACC__
template <class A>
  requires PointwiseForward<A> || PointwiseBackward<A>
Status Cuda(const A& a, Context& context) {
  return RunPointwise(device::Engine{context}, a);
}
#endif

}  // namespace kernelbox
