// Fill: y = value, everywhere.
#include <cmath>

#include "kernels/check.h"
#include "kernels/engine.h"
#include "kernels/layer.h"
#include "kernels/math/convert.h"

namespace kernelbox {
namespace {

struct Fill {
  static constexpr bool kFloat64OnCuda = true;
  Out y;
  IntList shape;
  DType dtype = DType::kUnspecified;
  double value = 0;
};

template <class T>
struct Constant {
  T value;

  KB_HOST_DEVICE T operator()() const { return value; }
};

// Whether T can hold the number: integers exactly, floating types rounded but not to infinity.
template <class T>
bool Holds(double value) {
  if (math::kIsHalf<T> || std::is_floating_point_v<T>) {
    return !std::isfinite(value) || std::isfinite(math::Convert<double>(math::Convert<T>(value)));
  }
  if (std::is_same_v<T, int64_t> && value >= 0x1p63) return false;  // would saturate to 2^63 - 1
  return math::Convert<double>(math::Convert<T>(value)) == value;
}

Status Infer(Fill& a) {
  KB_RETURN_IF_ERROR(CheckDTypeAttribute("dtype", a.dtype));
  KB_RETURN_IF_ERROR(CheckShapeAttribute("shape", a.shape, a.dtype));
  if (!DispatchAny(a.dtype, [&]<class T>(TypeTag<T>) { return Holds<T>(a.value); })) {
    char expected[Status::kTextBytes];
    char given[Status::kTextBytes];
    snprintf(expected, sizeof expected, "a number that %s can hold", NameOf(a.dtype));
    snprintf(given, sizeof given, "%.17g", a.value);
    return Status::Error(Reason::kInvalidAttribute, "value", expected, given);
  }
  a.y.Set(a.dtype, a.shape.items, static_cast<int>(a.shape.count));
  return Status::Ok();
}

template <class Engine>
Status Run(Engine engine, const Fill& a) {
  return DispatchAny(a.y.dtype, [&]<class T>(TypeTag<T>) {
    return engine.Map(a.y.NumElements(), Constant<T>{math::Convert<T>(a.value)}, a.y.Data<T>());
  });
}

Status Cpu(const Fill& a, Context& context) { return Run(cpu::Engine{context}, a); }

#ifdef __CUDACC__
Status Cuda(const Fill& a, Context& context) { return Run(device::Engine{context}, a); }
#endif

KB_LAYER(Fill, y, shape, dtype, value);

}  // namespace
}  // namespace kernelbox
