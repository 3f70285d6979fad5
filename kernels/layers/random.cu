// Uniform: y = low + (high - low) * u, u in [0, 1). Normal: y = mean + std * z, z standard normal.
// Numbers come from Philox4x32-10 and are the same on both backends (kernels/math/random.h).
#include "kernels/cpu/parallel.h"
#include "kernels/layer.h"
#include "kernels/math/random.h"
#include "kernels/rng.h"

#ifdef __CUDACC__
#include "kernels/device/rng.h"
#endif

namespace kernelbox {
namespace {

// The largest T below `bound`.
template <class T>
T LargestBelow(double bound) {
  T value = math::Convert<T>(bound);
  if (math::Convert<double>(value) < bound) return value;
  if constexpr (math::kIsHalf<T>) {
    const bool negative = (value.bits & 0x8000u) != 0;
    const bool zero = (value.bits & 0x7fffu) == 0;
    value.bits = static_cast<uint16_t>(zero ? 0x8001u : negative ? value.bits + 1 : value.bits - 1);
    return value;
  } else {
    return std::nextafter(value, -std::numeric_limits<T>::infinity());
  }
}

struct Uniform {
  InOut rng_state;
  Out y;
  IntList shape;
  DType dtype = DType::kFloat32;
  double low = 0, high = 1;

  template <class T>
  math::UniformDraw<T> Draw() const {
    return {low, high - low, low < high ? LargestBelow<T>(high) : math::Convert<T>(low)};
  }
};

struct Normal {
  InOut rng_state;
  Out y;
  IntList shape;
  DType dtype = DType::kFloat32;
  double mean = 0, std = 1;

  template <class T>
  math::NormalDraw<T> Draw() const {
    return {mean, std};
  }
};

template <class A>
Status InferRandom(A& a) {
  KB_RETURN_IF_ERROR(CheckRngState("rng_state", a.rng_state));
  if (!IsFloating(a.dtype)) {
    return Status::Error(Reason::kInvalidAttribute, "dtype",
                         "float32, float16, bfloat16 or float64", NameOf(a.dtype));
  }
  KB_RETURN_IF_ERROR(CheckShapeAttribute("shape", a.shape, a.dtype));
  a.y.Set(a.dtype, a.shape.items, static_cast<int>(a.shape.count));
  return Status::Ok();
}

Status Infer(Uniform& a) {
  const double largest = DispatchFloating(a.dtype, []<class T>(TypeTag<T>) {
    return math::Convert<double>(LargestBelow<T>(std::numeric_limits<double>::infinity()));
  });
  KB_RETURN_IF_ERROR(CheckRange("low", a.low, -largest, largest));
  KB_RETURN_IF_ERROR(CheckRange("high", a.high, a.low, largest));
  KB_RETURN_IF_ERROR(CheckRange("high", a.high - a.low, 0, std::numeric_limits<double>::max()));
  return InferRandom(a);
}

Status Infer(Normal& a) {
  KB_RETURN_IF_ERROR(CheckFinite("mean", a.mean));
  KB_RETURN_IF_ERROR(CheckNotNegative("std", a.std));
  return InferRandom(a);
}

template <class A>
Status CpuRandom(const A& a) {
  DispatchFloating(a.y.dtype, [&]<class T>(TypeTag<T>) {
    constexpr int kN = math::kPerBlock<T>;
    const int64_t count = a.y.NumElements();
    const int64_t blocks = BlocksFor(count, kN);
    const math::Rng rng = cpu::TakeRng(a.rng_state.template Data<int64_t>(), blocks);
    const auto draw = a.template Draw<T>();
    T* y = a.y.template Data<T>();
    cpu::ParallelFor(
        blocks,
        [=](int64_t block) {
          T drawn[kN];
          draw(rng.Block(block), drawn);
          for (int k = 0; k < kN && block * kN + k < count; ++k) y[block * kN + k] = drawn[k];
        },
        cpu::kGrain / kN);
  });
  return Status::Ok();
}

Status Cpu(const Uniform& a, Context&) { return CpuRandom(a); }
Status Cpu(const Normal& a, Context&) { return CpuRandom(a); }

#ifdef __CUDACC__
// For MapPacks: fills a pack from the blocks that are its elements'.
template <class Draw>
struct DrawPacks {
  const int64_t* rng;
  Draw draw;

  template <class T, int N>
  __device__ void operator()(int64_t i, device::Pack<T, N>& y) const {
#pragma unroll
    for (int k = 0; k < N; k += math::kPerBlock<T>) {
      draw(device::ReadRng(rng).Block((i + k) / math::kPerBlock<T>), y.items + k);
    }
  }
};

template <class A>
Status CudaRandom(const A& a, Context& context) {
  return DispatchFloating32(a.y.dtype, [&]<class T>(TypeTag<T>) {
    const int64_t count = a.y.NumElements();
    int64_t* rng = static_cast<int64_t*>(context.workspace);
    KB_RETURN_IF_ERROR(device::TakeRng(context, a.rng_state.template Data<int64_t>(),
                                       BlocksFor(count, math::kPerBlock<T>), rng));
    const auto draw = a.template Draw<T>();
    return device::MapPacks(context, count, DrawPacks<decltype(draw)>{rng, draw},
                            a.y.template Data<T>());
  });
}

Status Cuda(const Uniform& a, Context& context) { return CudaRandom(a, context); }
Status Cuda(const Normal& a, Context& context) { return CudaRandom(a, context); }
#endif

// The state that the op draws from, once the tensor has moved on.
size_t Workspace(const Uniform&, const Device&) { return sizeof(int64_t[2]); }
size_t Workspace(const Normal&, const Device&) { return sizeof(int64_t[2]); }

KB_LAYER_WITH_WORKSPACE(Uniform, rng_state, y, shape, dtype, low, high);
KB_LAYER_WITH_WORKSPACE(Normal, rng_state, y, shape, dtype, mean, std);

}  // namespace
}  // namespace kernelbox
