// Loops over a tensor's elements on all cores.
#pragma once

#include <cstdint>

namespace kernelbox::cpu {

// Below this many elements a second thread costs more than it saves.
inline constexpr int64_t kGrain = 16384;

// Calls body(i) for each i in [0, count), in any order, on all cores when there is enough to do:
// `grain` calls or more.
template <class Body>
void ParallelFor(int64_t count, Body&& body, int64_t grain = kGrain) {
#pragma omp parallel for schedule(static) if (count >= grain)
  for (int64_t i = 0; i < count; ++i) body(i);
}

}  // namespace kernelbox::cpu
