// Calls of every layer, for tests that hold for all of them.
#pragma once

#include <string>
#include <vector>

#include "call.h"

namespace kernelbox::testing {

// Valid calls of a layer with floating tensors of `dtype`; of a backward layer, those that belong
// to the samples of its forward. Throws std::out_of_range for a layer that has none here: each new
// layer gets its own.
std::vector<LayerCall> Samples(const std::string& layer, DType dtype);

}  // namespace kernelbox::testing
