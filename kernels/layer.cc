#include "kernels/layer.h"

namespace kernelbox {

// A function's static: it exists whenever the first layer registers, in whichever file.
const Layer*& Layer::Head() {
  static const Layer* head = nullptr;
  return head;
}

}  // namespace kernelbox
