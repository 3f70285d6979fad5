// One launch over many tensors: a table of their pointers goes along as the kernel's parameter,
// and each block finds which chunk of which tensor is its own.
#pragma once

#include "kernels/device/elementwise.h"
#include "kernels/math/convert.h"

namespace kernelbox::device {

inline constexpr int kListThreads = 256;
inline constexpr int kListPack = 4;
inline constexpr int64_t kListChunk = 4096;  // elements a block

// kLists tensors of one count and their block of the grid. The first is of type `dtypes[0]`, the
// second of `dtypes[1]`.
template <int kLists>
struct ListEntry {
  void* data[kLists];
  int64_t count;
  uint32_t first_block;
  uint8_t dtypes[2];
  bool aligned;
};

// A kernel's parameters may take 32,764 bytes on Hopper.
template <int kLists>
struct ListTable {
  static constexpr int kMost = 31000 / sizeof(ListEntry<kLists>);
  int entries = 0;
  uint32_t blocks = 0;
  ListEntry<kLists> entry[kMost];

  // The entry that a block works on.
  __device__ const ListEntry<kLists>& Find(uint32_t block) const {
    int low = 0;
    int high = entries;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (entry[middle].first_block <= block ? low : high) = middle;
    }
    return entry[low];
  }
};

// An optimizer's Update has
//   using Options; using Rule; Rule(options, lr, steps_done), made once a block
//   template <class P, class G> static void Apply(rule, data, i, left, aligned): moves kListPack
//   elements from i, of which `left` exist, of the tensors at data[0], data[1], ...
template <class Update, int kLists>
static __global__ void __launch_bounds__(kListThreads)
    ListKernel(const __grid_constant__ ListTable<kLists> table,
               const typename Update::Options options, const float* lr, const int64_t* step,
               const DataError* guard) {
  if (guard != nullptr && guard->found != 0) return;
  using Rule = typename Update::Rule;
  __shared__ alignas(16) unsigned char rule_bytes[sizeof(Rule)];
  Rule* rule = reinterpret_cast<Rule*>(rule_bytes);
  if (threadIdx.x == 0) *rule = Rule(options, static_cast<double>(*lr), *step);
  __syncthreads();
  const ListEntry<kLists>& entry = table.Find(blockIdx.x);
  const int64_t first = (blockIdx.x - entry.first_block) * kListChunk;
  const int64_t last = min(first + kListChunk, entry.count);
  DispatchFloating32(static_cast<DType>(entry.dtypes[0]), [&]<class P>(TypeTag<P>) {
    DispatchFloating32(static_cast<DType>(entry.dtypes[1]), [&]<class G>(TypeTag<G>) {
      for (int64_t i = first + threadIdx.x * kListPack; i < last; i += kListThreads * kListPack) {
        Update::template Apply<P, G>(*rule, entry.data, i, last - i, entry.aligned);
      }
    });
  });
}

static __global__ void CountStepKernel(int64_t* step, const DataError* guard) {
  if (guard == nullptr || guard->found == 0) ++*step;
}

// Runs the update over lists[0][i], lists[1][i], ... for every i (a null list's pointers are
// null), in as few launches as the table's size allows, then adds 1 to the step.
template <class Update, int kLists>
Status RunStep(const Context& context, const typename Update::Options& options, const Tensor& lr,
               const Tensor& step, const TensorList* const (&lists)[kLists]) {
  ListTable<kLists> table;
  const auto launch = [&] {
    if (table.blocks == 0) return Status::Ok();
    ListKernel<Update, kLists><<<table.blocks, kListThreads, 0, context.stream>>>(
        table, options, lr.Data<float>(), step.Data<int64_t>(), context.guard);
    table.entries = 0;
    table.blocks = 0;
    return LaunchStatus();
  };
  const TensorList& params = *lists[0];
  for (int64_t i = 0; i < params.count; ++i) {
    const int64_t count = params[i].NumElements();
    if (count == 0) continue;
    const int64_t blocks = (count + kListChunk - 1) / kListChunk;
    if (table.entries == ListTable<kLists>::kMost || table.blocks + blocks > 0x7fffffff) {
      KB_RETURN_IF_ERROR(launch());
    }
    ListEntry<kLists>& entry = table.entry[table.entries++];
    entry.count = count;
    entry.first_block = table.blocks;
    entry.aligned = true;
    for (int list = 0; list < kLists; ++list) {
      entry.data[list] = lists[list] == nullptr ? nullptr : (*lists[list])[i].data;
      entry.aligned = entry.aligned && AlignedTo(entry.data[list], 16);
    }
    entry.dtypes[0] = static_cast<uint8_t>(params[i].dtype);
    entry.dtypes[1] = static_cast<uint8_t>((*lists[1])[i].dtype);
    table.blocks += static_cast<uint32_t>(blocks);
  }
  KB_RETURN_IF_ERROR(launch());
  CountStepKernel<<<1, 1, 0, context.stream>>>(step.Data<int64_t>(), context.guard);
  return LaunchStatus();
}

// Elements i to i + kListPack of a tensor in S.
template <class T>
__device__ Pack<float, kListPack> LoadFloats(const void* data, int64_t i, int64_t left,
                                             bool aligned) {
  const auto stored = LoadPack<kListPack>(static_cast<const T*>(data) + i, left, aligned);
  Pack<float, kListPack> loaded;
#pragma unroll
  for (int k = 0; k < kListPack; ++k) loaded.items[k] = static_cast<float>(stored.items[k]);
  return loaded;
}

template <class T>
__device__ void StoreFloats(void* data, int64_t i, int64_t left, bool aligned,
                            const Pack<float, kListPack>& values) {
  Pack<T, kListPack> stored;
#pragma unroll
  for (int k = 0; k < kListPack; ++k) stored.items[k] = T(values.items[k]);
  StorePack(static_cast<T*>(data) + i, left, aligned, stored);
}

}  // namespace kernelbox::device
