// Parts of a layer's scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernelbox {

// Hands out consecutive parts of a block, each aligned to 256 bytes as the block is. A layer asks
// an arena over null how much it would take (Workspace), then one over the real block (Cpu, Cuda).
class Arena {
 public:
  explicit Arena(void* base) : base_(reinterpret_cast<uintptr_t>(base)) {}

  void* Take(size_t bytes) {
    const uintptr_t part = base_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    return reinterpret_cast<void*>(part);
  }
  template <class T>
  T* Take(int64_t count) {
    return static_cast<T*>(Take(static_cast<size_t>(count) * sizeof(T)));
  }

  size_t Used() const { return used_; }

 private:
  uintptr_t base_;
  size_t used_ = 0;
};

}  // namespace kernelbox
