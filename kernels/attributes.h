// Enumerations that layers take as attributes, with the numbers of kernelbox.v1. CheckEnum turns 0,
// unspecified, into the default.
#pragma once

#include <cstdint>

namespace kernelbox {

enum class Reduction : int32_t { kUnspecified = 0, kNone = 1, kMean = 2, kSum = 3 };

enum class Activation : int32_t {
  kUnspecified = 0,
  kNone = 1,
  kRelu = 2,
  kGelu = 3,
  kGeluTanh = 4
};

enum class GeluApproximate : int32_t { kUnspecified = 0, kNone = 1, kTanh = 2 };

}  // namespace kernelbox
