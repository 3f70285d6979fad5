// One launch over many tensors: a table of pointers travels as the kernel's parameter, and each
// block takes one chunk of one tensor.
#pragma once

#include "kernels/device/elementwise.h"
#include "kernels/optimizer.h"

namespace kernelbox::device {

inline constexpr int kTableTensors = 600;  // as many as 32,764 bytes of parameters allow
inline constexpr int kTablePointers = 5;
inline constexpr int kChunkElements = 16384;
inline constexpr int kMultiTensorThreads = 256;
inline constexpr int kMultiTensorPack = 4;

struct TensorTable {
  int count = 0;
  bool aligned = true;  // every pointer to a whole pack
  int first_chunk[kTableTensors + 1] = {};
  int64_t elements[kTableTensors];
  void* pointers[kTablePointers][kTableTensors];
};
static_assert(sizeof(TensorTable) < 32000, "the table must fit among the kernel's parameters");

// Calls element.Apply<N>(table, t, i, left) for each pack of N elements from i on, `left` of which
// exist, of each tensor t; element.Load() once a thread before that. Does nothing if the guard has
// found a fault.
template <class Element>
__global__ void __launch_bounds__(kMultiTensorThreads)
    MultiTensorKernel(const __grid_constant__ TensorTable table, Element element,
                      const DataError* guard) {
  if (guard != nullptr && guard->found != 0) return;
  const int chunk = static_cast<int>(blockIdx.x);
  int low = 0;
  int high = table.count - 1;  // the tensor is in [low, high]
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_chunk[middle] <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t begin = static_cast<int64_t>(chunk - table.first_chunk[low]) * kChunkElements;
  const int64_t rest = table.elements[low] - begin;
  const int64_t end = begin + (rest < kChunkElements ? rest : kChunkElements);
  element.Load();
  for (int64_t i = begin + threadIdx.x * kMultiTensorPack; i < end;
       i += kMultiTensorThreads * kMultiTensorPack) {
    element.template Apply<kMultiTensorPack>(table, low, i, end - i);
  }
}

// Adds tensors to a table and launches whenever it is full.
template <class Element>
class MultiTensorLaunch {
 public:
  MultiTensorLaunch(const Context& context, Element element)
      : context_(context), element_(element) {}

  // One tensor with its companions, all of `elements` elements; `pack_bytes` is what a pack of
  // each takes.
  template <size_t N>
  Status Add(int64_t elements, void* const (&pointers)[N], const size_t (&pack_bytes)[N]) {
    static_assert(N <= kTablePointers);
    if (elements == 0) return Status::Ok();
    const int64_t chunks = (elements + kChunkElements - 1) / kChunkElements;
    if (table_.count == kTableTensors ||
        table_.first_chunk[table_.count] + chunks > int64_t{0x7fffffff}) {
      KB_RETURN_IF_ERROR(Flush());
    }
    const int t = table_.count++;
    table_.elements[t] = elements;
    table_.first_chunk[t + 1] = table_.first_chunk[t] + static_cast<int>(chunks);
    for (size_t k = 0; k < N; ++k) {
      table_.pointers[k][t] = pointers[k];
      if (pointers[k] != nullptr) {
        table_.aligned = table_.aligned && AlignedTo(pointers[k], pack_bytes[k]);
      }
    }
    return Status::Ok();
  }

  // Launches what has been added since.
  Status Flush() {
    if (table_.count == 0) return Status::Ok();
    const unsigned grid = static_cast<unsigned>(table_.first_chunk[table_.count]);
    MultiTensorKernel<<<grid, kMultiTensorThreads, 0, context_.stream>>>(table_, element_,
                                                                         context_.guard);
    table_.count = 0;
    table_.aligned = true;
    return LaunchStatus();
  }

 private:
  const Context& context_;
  const Element element_;
  TensorTable table_;
};

// Calls use(TypeTag<T>, TypeTag<G>, selected) once for each pair of dtypes that a parameter T and
// its gradient G have in the lists; selected(i) says whether tensor i has that pair.
template <class Use>
Status ForEachDTypePair(const TensorList& params, const TensorList& grads, Use&& use) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (DType param : kTypes) {
    for (DType grad : kTypes) {
      const auto selected = [&, param, grad](int64_t i) {
        return params[i].dtype == param && grads[i].dtype == grad;
      };
      bool any = false;
      for (int64_t i = 0; i < params.count && !any; ++i) any = selected(i);
      if (!any) continue;
      KB_RETURN_IF_ERROR(DispatchParameter32(
          param, grad, [&](auto t, auto g) -> Status { return use(t, g, selected); }));
    }
  }
  return Status::Ok();
}

// static: the linker must not merge them across layer files.
template <class Rule, class Options, class Lr>
static __global__ void StepKernel(Options options, const Lr* lr, int64_t* step,
                                  const DataError* guard, Rule* rule) {
  if (guard != nullptr && guard->found != 0) return;
  *rule = Rule::Make(options, static_cast<double>(*lr), *step);
  *step += 1;
}

// Makes the step's rule in device memory and counts the step: a kernel of its own, since every
// block of the update needs both.
template <class Rule, class Options>
Status TakeStep(const Context& context, const Options& options, const Tensor& lr,
                const Tensor& step, Rule* rule) {
  StepKernel<<<1, 1, 0, context.stream>>>(options, lr.Data<const float>(), step.Data<int64_t>(),
                                          context.guard, rule);
  return LaunchStatus();
}

}  // namespace kernelbox::device
