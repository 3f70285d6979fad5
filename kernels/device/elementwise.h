// One kernel for everything that computes y[i] from in[i]: each thread takes packs of consecutive
// elements, moved 16 bytes at a time where the pointers allow it; 64-bit indices.
#pragma once

#include <algorithm>

#include "kernels/device/launch.h"

namespace kernelbox::device {

// N consecutive elements, N a power of two.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T items[N];
};

// How many elements of these types a pack holds: the widest fills 16 bytes.
template <class... T>
inline constexpr int kPackSize = 16 / static_cast<int>(std::max({sizeof(T)...}));

// Loads the pack at p, of which `left` elements exist.
template <int N, class T>
__device__ Pack<T, N> LoadPack(const T* p, int64_t left, bool aligned) {
  if (aligned && left >= N) return *reinterpret_cast<const Pack<T, N>*>(p);
  Pack<T, N> pack = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < left) pack.items[k] = p[k];
  }
  return pack;
}

template <int N, class T>
__device__ void StorePack(T* p, int64_t left, bool aligned, const Pack<T, N>& pack) {
  if (aligned && left >= N) {
    *reinterpret_cast<Pack<T, N>*>(p) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < left) p[k] = pack.items[k];
  }
}

inline constexpr int kElementwiseThreads = 256;

// Calls f(i, y_pack, in_packs...) for every pack, i its first element. y may be one of the inputs.
template <int N, class F, class T, class... In>
__global__ void __launch_bounds__(kElementwiseThreads)
    PackKernel(int64_t count, bool aligned, F f, T* y, const In*... in) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first * N; i < count; i += stride * N) {
    Pack<T, N> out;
    [&](const auto&... loaded) {
      f(i, out, loaded...);
    }(LoadPack<N>(in + i, count - i, aligned)...);
    StorePack<N>(y + i, count - i, aligned, out);
  }
}

template <class T>
bool AlignedTo(const T* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

template <class F, class T, class... In>
Status MapPacks(const Context& context, int64_t count, F f, T* y, const In*... in) {
  if (count == 0) return Status::Ok();
  constexpr int kN = kPackSize<T, In...>;
  const bool aligned =
      AlignedTo(y, alignof(Pack<T, kN>)) && (AlignedTo(in, alignof(Pack<In, kN>)) && ...);
  const unsigned grid = GridFor((count + kN - 1) / kN, kElementwiseThreads, context);
  PackKernel<kN><<<grid, kElementwiseThreads, 0, context.stream>>>(count, aligned, f, y, in...);
  return LaunchStatus();
}

// For MapPacks: y[i] = f(in[i], ...).
template <class F>
struct EachElement {
  F f;

  template <class T, int N, class... In>
  __device__ void operator()(int64_t, Pack<T, N>& y, const Pack<In, N>&... in) const {
#pragma unroll
    for (int k = 0; k < N; ++k) y.items[k] = f(in.items[k]...);
  }
};

// For MapPacks: y[i] = f(i, in[i], ...), i below count.
template <class F>
struct EachIndexed {
  F f;
  int64_t count;

  template <class T, int N, class... In>
  __device__ void operator()(int64_t i, Pack<T, N>& y, const Pack<In, N>&... in) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (i + k < count) y.items[k] = f(i + k, in.items[k]...);
    }
  }
};

}  // namespace kernelbox::device
