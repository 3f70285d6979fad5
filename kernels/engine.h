// The engines a layer runs on: cpu::Engine and, with nvcc, device::Engine. A layer that is made of
// their calls is one function template over the engine.
#pragma once

#include "kernels/cpu/engine.h"

#ifdef __CUDACC__
#include "kernels/device/engine.h"
#endif
