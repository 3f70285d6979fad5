// Cast: y = x in another dtype. Backward: d_x = d_y in the dtype of x.
#include "kernels/check.h"
#include "kernels/engine.h"
#include "kernels/layer.h"
#include "kernels/math/convert.h"

namespace kernelbox {
namespace {

struct Cast {
  static constexpr bool kFloat64OnCuda = true;
  In x;
  Out y;
  DType dtype = DType::kUnspecified;
};

struct CastBackward {
  static constexpr bool kFloat64OnCuda = true;
  In x, d_y;
  Out d_x;
};

Status Infer(Cast& a) {
  KB_RETURN_IF_ERROR(CheckDTypeAttribute("dtype", a.dtype));
  a.y.SetLike(a.x);
  a.y.dtype = a.dtype;
  return Status::Ok();
}

Status Infer(CastBackward& a) {
  KB_RETURN_IF_ERROR(CheckFloating("x", a.x));
  KB_RETURN_IF_ERROR(CheckFloating("d_y", a.d_y));
  KB_RETURN_IF_ERROR(CheckLike("d_y", a.d_y, "x", a.x));
  a.d_x.SetLike(a.x);
  return Status::Ok();
}

template <class Engine>
Status RunConvert(Engine engine, const Tensor& from, const Tensor& to) {
  return DispatchAny(from.dtype, [&]<class From>(TypeTag<From>) {
    return DispatchAny(to.dtype, [&]<class To>(TypeTag<To>) {
      return engine.Map(from.NumElements(), math::ConvertTo<To>{}, to.Data<To>(),
                        from.Data<const From>());
    });
  });
}

Status Cpu(const Cast& a, Context& context) { return RunConvert(cpu::Engine{context}, a.x, a.y); }
Status Cpu(const CastBackward& a, Context& context) {
  return RunConvert(cpu::Engine{context}, a.d_y, a.d_x);
}

#ifdef __CUDACC__
Status Cuda(const Cast& a, Context& context) {
  return RunConvert(device::Engine{context}, a.x, a.y);
}
Status Cuda(const CastBackward& a, Context& context) {
  return RunConvert(device::Engine{context}, a.d_y, a.d_x);
}
#endif

KB_LAYER(Cast, x, y, dtype);
KB_LAYER(CastBackward, x, d_y, d_x);

}  // namespace
}  // namespace kernelbox
