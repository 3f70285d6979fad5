// GELU: y = x * Phi(x), or its tanh approximation. Backward: d_x = d_y * (Phi(x) + x * Phi'(x)).
#include "kernels/attributes.h"
#include "kernels/math/activation.h"
#include "kernels/pointwise.h"

namespace kernelbox {
namespace {

template <class Use>
Status ApplyGelu(GeluApproximate approximate, Use use) {
  if (approximate == GeluApproximate::kTanh) return use(math::GeluTanh{});
  return use(math::Gelu{});
}

struct GELU : Pointwise {
  In x;
  Out y;
  GeluApproximate approximate = GeluApproximate::kNone;

  template <class Use>
  Status Apply(Use use) const {
    return ApplyGelu(approximate, use);
  }
};

struct GELUBackward : Pointwise {
  In x, d_y;
  Out d_x;
  GeluApproximate approximate = GeluApproximate::kNone;

  template <class Use>
  Status Apply(Use use) const {
    return ApplyGelu(approximate, use);
  }
};

template <class A>
Status InferGelu(A& a) {
  KB_RETURN_IF_ERROR(
      CheckEnum("approximate", a.approximate, GeluApproximate::kNone, GeluApproximate::kTanh));
  return InferPointwise(a);
}

Status Infer(GELU& a) { return InferGelu(a); }
Status Infer(GELUBackward& a) { return InferGelu(a); }

KB_LAYER(GELU, x, y, approximate);
KB_LAYER(GELUBackward, x, d_y, d_x, approximate);

}  // namespace
}  // namespace kernelbox
