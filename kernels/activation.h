// From the attribute `activation` to the function of kernels/math/activation.h.
#pragma once

#include "kernels/attributes.h"
#include "kernels/math/activation.h"
#include "kernels/status.h"

namespace kernelbox {

// Calls use(function) for an activation other than none.
template <class Use>
Status ApplyActivation(Activation activation, Use use) {
  switch (activation) {
    case Activation::kGelu:
      return use(math::Gelu{});
    case Activation::kGeluTanh:
      return use(math::GeluTanh{});
    default:
      return use(math::Relu{});
  }
}

}  // namespace kernelbox
