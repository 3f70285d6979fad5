// One kernel for every pointwise function: 16-byte loads and stores where the pointers allow it,
// a scalar tail, a grid-stride loop, 64-bit indices.
#pragma once

#include "kernels/device/launch.h"

namespace kernelbox::device {

template <class T>
inline constexpr int kVector = 16 / sizeof(T);

template <class T>
struct alignas(16) Vector {
  T items[kVector<T>];
};

inline constexpr int kElementwiseThreads = 256;

// y[i] = f(a[i], b[i], ...) in Accumulator<T>.
template <class T, class F, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    ElementwiseKernel(int64_t count, int64_t vectors, F f, T* __restrict__ y,
                      const In* __restrict__... in) {
  using S = Accumulator<T>;
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t v = first; v < vectors; v += stride) {
    Vector<T> out;
    [&](auto... loaded) {  // load, math
#pragma unroll
      for (int k = 0; k < kVector<T>; ++k) out.items[k] = T(f(static_cast<S>(loaded.items[k])...));
    }(reinterpret_cast<const Vector<In>*>(in)[v]...);
    reinterpret_cast<Vector<T>*>(y)[v] = out;  // store
  }
  for (int64_t i = vectors * kVector<T> + first; i < count; i += stride) {
    y[i] = T(f(static_cast<S>(in[i])...));
  }
}

inline bool Aligned16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

template <class T, class F, class... In>
Status LaunchElementwise(const Context& context, int64_t count, F f, T* y, const In*... in) {
  static_assert(((sizeof(In) == sizeof(T)) && ...), "inputs and output are of one width");
  if (count == 0) return Status::Ok();
  const bool aligned = Aligned16(y) && (Aligned16(in) && ...);
  const int64_t vectors = aligned ? count / kVector<T> : 0;
  const int64_t work = vectors > 0 ? vectors : count;
  const int64_t wanted = (work + kElementwiseThreads - 1) / kElementwiseThreads;
  const int64_t most = static_cast<int64_t>(context.device->multiprocessors) * 32;
  const unsigned grid = static_cast<unsigned>(wanted < most ? wanted : most);
  ElementwiseKernel<<<grid, kElementwiseThreads, 0, context.stream>>>(count, vectors, f, y, in...);
  return LaunchStatus();
}

}  // namespace kernelbox::device
