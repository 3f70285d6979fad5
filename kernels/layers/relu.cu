// ReLU: y = max(x, 0). Backward: d_x = d_y where x > 0, else 0.
#include "kernels/math/activation.h"
#include "kernels/pointwise.h"

namespace kernelbox {
namespace {

struct ReLU : Pointwise {
  In x;
  Out y;

  template <class Use>
  Status Apply(Use use) const {
    return use(math::Relu{});
  }
};

struct ReLUBackward : Pointwise {
  In x, d_y;
  Out d_x;

  template <class Use>
  Status Apply(Use use) const {
    return use(math::Relu{});
  }
};

KB_LAYER(ReLU, x, y);
KB_LAYER(ReLUBackward, x, d_y, d_x);

}  // namespace
}  // namespace kernelbox
