// Device memory: one DeviceMemory a device, one Arena a session, one Memory a tensor.
//
// An arena is a range of addresses of its own, so no session's data shares a granule with
// another's. Granules are mapped when a tensor needs them and stay mapped, idle, when it is
// freed: until another allocation on the device finds none left, or the session ends.
//
// Everything here belongs to the device's executor thread, except the totals of DeviceMemory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/backend.h"
#include "server/range_allocator.h"

namespace kernelbox::server {

class Arena;

// What all sessions of a device share: its limit.
class DeviceMemory {
 public:
  DeviceMemory(DeviceBackend& backend, size_t limit_bytes)
      : backend_(backend), limit_(limit_bytes) {}

  // In bytes, from any thread: what may be mapped, what is mapped, what tensors hold.
  size_t limit() const { return limit_; }
  size_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

  DeviceBackend& backend() { return backend_; }

 private:
  friend class Arena;

  // Unmaps the idle granules of every arena.
  void Trim();

  DeviceBackend& backend_;
  const size_t limit_;
  std::atomic<size_t> reserved_{0};
  std::atomic<size_t> used_{0};
  std::vector<Arena*> arenas_;
};

// A piece of an arena, at least as large as was asked for, aligned to 256 bytes. Gives it back
// when destroyed. The arena must outlive it.
class Memory {
 public:
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }

  // How many transfers read it now: an op that would change it changes a copy instead.
  int readers = 0;

 private:
  friend class Arena;
  Memory(Arena& arena, RangeAllocator::Id id, void* data) : arena_(arena), id_(id), data_(data) {}

  Arena& arena_;
  const RangeAllocator::Id id_;
  void* const data_;
};

class Arena {
 public:
  // Whoever uses the arena's memory does so in this stream's order.
  Arena(DeviceMemory& device, Stream stream);
  // Every Memory is gone by now, and the stream idle.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Memory for `bytes` bytes; null, and no error, for 0. OUT_OF_MEMORY, after idle granules were
  // taken from all sessions of the device, when there is none: existing tensors are as before.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<Memory>> Allocate(size_t bytes);

  // What tensors hold, in bytes.
  size_t used() const { return ranges_.has_value() ? ranges_->allocated() : 0; }

 private:
  friend class DeviceMemory;
  friend class Memory;

  // Granules that were mapped together.
  struct Extent {
    size_t granules;
    uint64_t token;
  };

  // Nothing if the address range or the device is full.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<Memory>> TryAllocate(size_t bytes);
  // Maps whatever is not mapped of a range.
  [[nodiscard]] absl::Status Back(RangeAllocator::Range range);
  [[nodiscard]] absl::Status MapExtent(size_t first, size_t granules);
  void Free(RangeAllocator::Id id);
  // Unmaps extents that no tensor touches.
  void Trim();
  void UnmapExtent(size_t first, const Extent& extent);

  DeviceMemory& device_;
  const Stream stream_;
  char* base_ = nullptr;  // null until the first allocation
  size_t capacity_ = 0;
  std::optional<RangeAllocator> ranges_;
  std::vector<bool> mapped_;          // by granule, as far as any was ever mapped
  std::map<size_t, Extent> extents_;  // by first granule
};

}  // namespace kernelbox::server
