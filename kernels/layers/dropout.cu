// Dropout: y = x / (1 - p) where kept, 0 where dropped. Backward: the same of d_y, the mask drawn
// again from the state that forward used.
#include "kernels/engine.h"
#include "kernels/layer.h"
#include "kernels/math/convert.h"
#include "kernels/math/dropout.h"
#include "kernels/rng.h"

#ifdef __CUDACC__
#include "kernels/device/rng.h"
#endif

namespace kernelbox {
namespace {

struct Dropout {
  In x;
  InOut rng_state;
  Out y;
  OptionalOut rng_used;
  double p = 0.5;
  bool training = true;
};

struct DropoutBackward {
  In rng_used, d_y;
  Out d_x;
  double p = 0.5;
  bool training = true;
};

// The mask follows the C order of elements.
Status CheckDropout(const char* field, const Tensor& x, double p) {
  KB_RETURN_IF_ERROR(CheckFloating(field, x));
  KB_RETURN_IF_ERROR(CheckContiguous(field, x));
  return CheckRange("p", p, 0, 1);
}

Status Infer(Dropout& a) {
  KB_RETURN_IF_ERROR(CheckDropout("x", a.x, a.p));
  KB_RETURN_IF_ERROR(CheckRngState("rng_state", a.rng_state));
  a.y.SetLike(a.x);
  a.rng_used.Set(DType::kInt64, {2});
  return Status::Ok();
}

Status Infer(DropoutBackward& a) {
  KB_RETURN_IF_ERROR(CheckRngState("rng_used", a.rng_used));
  KB_RETURN_IF_ERROR(CheckDropout("d_y", a.d_y, a.p));
  a.d_x.SetLike(a.d_y);
  return Status::Ok();
}

// Philox blocks that forward uses.
int64_t BlocksUsed(const Dropout& a) { return a.training ? BlocksFor(a.x.NumElements(), 4) : 0; }

// y = dropout(x), or a copy of x when not training.
Status CpuApply(Context& context, const Tensor& x, math::Rng rng, double p, bool training,
                const Tensor& y) {
  return DispatchFloating(x.dtype, [&]<class T>(TypeTag<T>) {
    const int64_t count = x.NumElements();
    const T* in = x.Data<T>();
    T* out = y.Data<T>();
    if (!training) return cpu::Engine{context}.Map(count, math::ConvertTo<T>{}, out, in);
    const math::DropoutRule rule(p);
    cpu::ParallelFor(
        BlocksFor(count, 4),
        [=](int64_t block) {
          const math::PhiloxBlock words = rng.Block(block);
          for (int64_t i = block * 4; i < block * 4 + 4 && i < count; ++i) {
            out[i] = T(rule.Apply(words.lanes[i % 4], static_cast<Accumulator<T>>(in[i])));
          }
        },
        cpu::kGrain / 4);
    return Status::Ok();
  });
}

Status Cpu(const Dropout& a, Context& context) {
  const math::Rng rng = cpu::TakeRng(a.rng_state.Data<int64_t>(), BlocksUsed(a));
  if (a.rng_used) {
    a.rng_used.Data<int64_t>()[0] = static_cast<int64_t>(rng.seed);
    a.rng_used.Data<int64_t>()[1] = static_cast<int64_t>(rng.offset);
  }
  return CpuApply(context, a.x, rng, a.p, a.training, a.y);
}

Status Cpu(const DropoutBackward& a, Context& context) {
  const math::Rng rng = cpu::ReadRng(a.rng_used.Data<int64_t>());
  return CpuApply(context, a.d_y, rng, a.p, a.training, a.d_x);
}

#ifdef __CUDACC__
struct DropoutPacks {
  const int64_t* rng;
  math::DropoutRule rule;

  template <class T, int N>
  __device__ void operator()(int64_t i, device::Pack<T, N>& y, const device::Pack<T, N>& x) const {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const math::PhiloxBlock words = device::ReadRng(rng).Block((i + k) / 4);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const auto value = static_cast<Accumulator<T>>(x.items[k + lane]);
        y.items[k + lane] = T(rule.Apply(words.lanes[lane], value));
      }
    }
  }
};

Status CudaApply(Context& context, const Tensor& x, const int64_t* rng, double p, bool training,
                 const Tensor& y) {
  return DispatchFloating32(x.dtype, [&]<class T>(TypeTag<T>) {
    const int64_t count = x.NumElements();
    if (!training) {
      return device::Engine{context}.Map(count, math::ConvertTo<T>{}, y.Data<T>(),
                                         x.Data<const T>());
    }
    return device::MapPacks(context, count, DropoutPacks{rng, math::DropoutRule(p)}, y.Data<T>(),
                            x.Data<const T>());
  });
}

Status Cuda(const Dropout& a, Context& context) {
  int64_t* rng = static_cast<int64_t*>(context.workspace);
  KB_RETURN_IF_ERROR(device::TakeRng(context, a.rng_state.Data<int64_t>(), BlocksUsed(a), rng,
                                     a.rng_used ? a.rng_used.Data<int64_t>() : nullptr));
  return CudaApply(context, a.x, rng, a.p, a.training, a.y);
}

Status Cuda(const DropoutBackward& a, Context& context) {
  return CudaApply(context, a.d_y, a.rng_used.Data<int64_t>(), a.p, a.training, a.d_x);
}
#endif

// The state that forward draws from, once the tensor has moved on.
size_t Workspace(const Dropout&, const Device&) { return sizeof(int64_t[2]); }

KB_LAYER_WITH_WORKSPACE(Dropout, x, rng_state, y, rng_used, p, training);
KB_LAYER(DropoutBackward, rng_used, d_y, d_x, p, training);

}  // namespace
}  // namespace kernelbox
