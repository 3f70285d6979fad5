// Hands out ranges of the numbers [0, capacity): the smallest free range that fits, lowest first
// among equals; freed neighbours join. Knows nothing of memory.
//
// Not thread-safe. Allocate and Free take O(log free ranges).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"

namespace kernelbox::server {

class RangeAllocator {
 public:
  // Names an allocated range until it is freed.
  using Id = uint32_t;

  struct Range {
    size_t offset;
    size_t size;
  };

  // Sizes are rounded up to multiples of `alignment`, so every offset is one too. `capacity` is
  // a multiple of it.
  RangeAllocator(size_t capacity, size_t alignment);

  // A range of at least `size` (at least 1); nothing if no free range is large enough.
  std::optional<Id> Allocate(size_t size);
  void Free(Id id);

  // Of an allocated range.
  Range Get(Id id) const { return {blocks_[id].offset, blocks_[id].size}; }
  // All free ranges, smallest first.
  std::vector<Range> FreeRanges() const;
  size_t allocated() const { return allocated_; }

 private:
  static constexpr Id kNone = ~Id{0};

  // A range, free or allocated, in a list by offset.
  struct Block {
    size_t offset;
    size_t size;
    Id previous;
    Id next;
    bool free;
  };
  // (size, offset, block): in the order in which ranges are preferred.
  struct Key {
    size_t size;
    size_t offset;
    Id id;
    bool operator<(const Key& other) const {
      return size != other.size ? size < other.size : offset < other.offset;
    }
  };

  Id NewBlock(Block block);
  void AddFree(Id id);
  void RemoveFree(Id id);

  const size_t alignment_;
  size_t allocated_ = 0;
  std::vector<Block> blocks_;
  std::vector<Id> unused_;  // places in blocks_
  absl::btree_set<Key> free_;
};

}  // namespace kernelbox::server
