#include "server/range_allocator.h"

#include <limits>

namespace kernelbox::server {

RangeAllocator::RangeAllocator(size_t capacity, size_t alignment) : alignment_(alignment) {
  if (capacity > 0) AddFree(NewBlock({0, capacity, kNone, kNone, true}));
}

std::optional<RangeAllocator::Id> RangeAllocator::Allocate(size_t size) {
  if (size == 0) size = 1;
  if (size > std::numeric_limits<size_t>::max() - alignment_) return std::nullopt;
  size = (size + alignment_ - 1) / alignment_ * alignment_;
  const auto found = free_.lower_bound(Key{size, 0, 0});
  if (found == free_.end()) return std::nullopt;
  const Id id = found->id;
  free_.erase(found);
  if (blocks_[id].size > size) {
    const Block whole = blocks_[id];
    const Id rest = NewBlock({whole.offset + size, whole.size - size, id, whole.next, true});
    if (whole.next != kNone) blocks_[whole.next].previous = rest;
    blocks_[id].next = rest;
    blocks_[id].size = size;
    AddFree(rest);
  }
  blocks_[id].free = false;
  allocated_ += size;
  return id;
}

void RangeAllocator::Free(Id id) {
  allocated_ -= blocks_[id].size;
  blocks_[id].free = true;
  const Id next = blocks_[id].next;
  if (next != kNone && blocks_[next].free) {
    RemoveFree(next);
    blocks_[id].size += blocks_[next].size;
    blocks_[id].next = blocks_[next].next;
    if (blocks_[id].next != kNone) blocks_[blocks_[id].next].previous = id;
    unused_.push_back(next);
  }
  const Id previous = blocks_[id].previous;
  if (previous != kNone && blocks_[previous].free) {
    RemoveFree(previous);
    blocks_[previous].size += blocks_[id].size;
    blocks_[previous].next = blocks_[id].next;
    if (blocks_[id].next != kNone) blocks_[blocks_[id].next].previous = previous;
    unused_.push_back(id);
    id = previous;
  }
  AddFree(id);
}

std::vector<RangeAllocator::Range> RangeAllocator::FreeRanges() const {
  std::vector<Range> ranges;
  ranges.reserve(free_.size());
  for (const Key& key : free_) ranges.push_back({key.offset, key.size});
  return ranges;
}

RangeAllocator::Id RangeAllocator::NewBlock(Block block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<Id>(blocks_.size() - 1);
  }
  const Id id = unused_.back();
  unused_.pop_back();
  blocks_[id] = block;
  return id;
}

void RangeAllocator::AddFree(Id id) { free_.insert({blocks_[id].size, blocks_[id].offset, id}); }

void RangeAllocator::RemoveFree(Id id) { free_.erase({blocks_[id].size, blocks_[id].offset, id}); }

}  // namespace kernelbox::server
