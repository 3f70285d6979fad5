#include "server/memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/error.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

constexpr size_t kAlignment = 256;
// Larger extents map faster, smaller ones are idle sooner.
constexpr size_t kExtentGranules = 32;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void DeviceMemory::Trim() {
  for (Arena* arena : arenas_) arena->Trim();
}

Memory::~Memory() { arena_.Free(id_); }

Arena::Arena(DeviceMemory& device, Stream stream) : device_(device), stream_(stream) {
  device_.arenas_.push_back(this);
}

Arena::~Arena() {
  std::erase(device_.arenas_, this);
  for (const auto& [first, extent] : extents_) UnmapExtent(first, extent);
  if (base_ != nullptr) device_.backend_.ReleaseAddresses(base_, capacity_);
}

absl::StatusOr<std::shared_ptr<Memory>> Arena::Allocate(size_t bytes) {
  if (bytes == 0) return std::shared_ptr<Memory>();
  absl::StatusOr<std::shared_ptr<Memory>> memory = TryAllocate(bytes);
  if (memory.ok()) return memory;
  if (bytes <= device_.limit()) {
    device_.Trim();
    memory = TryAllocate(bytes);
    if (memory.ok()) return memory;
  }
  const size_t reserved = device_.reserved();
  const size_t free_bytes = device_.limit() > reserved ? device_.limit() - reserved : 0;
  return MakeError(
      v1::ERROR_REASON_OUT_OF_MEMORY,
      absl::StrCat("out of device memory: ", bytes, " bytes asked for, ", free_bytes,
                   " free, this session holds ", used(), " (", memory.status().message(), ")"),
      {{"requested_bytes", absl::StrCat(bytes)},
       {"free_bytes", absl::StrCat(free_bytes)},
       {"session_bytes", absl::StrCat(used())}});
}

absl::StatusOr<std::shared_ptr<Memory>> Arena::TryAllocate(size_t bytes) {
  if (bytes > device_.limit()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device's limit is ", device_.limit(), " bytes"));
  }
  if (base_ == nullptr) {
    // Twice the limit, so that fragments do not use up the addresses before the memory.
    const size_t capacity = RoundUp(device_.limit(), kGranuleBytes) * 2;
    absl::StatusOr<void*> base = device_.backend_.ReserveAddresses(capacity);
    if (!base.ok()) return base.status();
    base_ = static_cast<char*>(*base);
    capacity_ = capacity;
    ranges_.emplace(capacity, kAlignment);
  }
  const std::optional<RangeAllocator::Id> id = ranges_->Allocate(bytes);
  if (!id.has_value()) {
    return absl::ResourceExhaustedError("no free range of addresses is large enough");
  }
  const RangeAllocator::Range range = ranges_->Get(*id);
  if (absl::Status status = Back(range); !status.ok()) {
    ranges_->Free(*id);
    return status;
  }
  device_.used_.fetch_add(range.size, std::memory_order_relaxed);
  return std::shared_ptr<Memory>(new Memory(*this, *id, base_ + range.offset));
}

absl::Status Arena::Back(RangeAllocator::Range range) {
  const size_t first = range.offset / kGranuleBytes;
  const size_t end = (range.offset + range.size - 1) / kGranuleBytes + 1;
  if (mapped_.size() < end) mapped_.resize(end);
  for (size_t granule = first; granule < end;) {
    size_t run = 0;
    while (granule + run < end && run < kExtentGranules && !mapped_[granule + run]) ++run;
    if (run == 0) {
      ++granule;
      continue;
    }
    KB_RETURN_IF_NOT_OK(MapExtent(granule, run));
    granule += run;
  }
  return absl::OkStatus();
}

absl::Status Arena::MapExtent(size_t first, size_t granules) {
  const size_t bytes = granules * kGranuleBytes;
  if (device_.reserved() + bytes > device_.limit()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device's limit is ", device_.limit(), " bytes"));
  }
  absl::StatusOr<uint64_t> token = device_.backend_.Map(base_ + first * kGranuleBytes, bytes);
  if (!token.ok()) return token.status();
  device_.reserved_.fetch_add(bytes, std::memory_order_relaxed);
  extents_.emplace(first, Extent{granules, *token});
  std::fill_n(mapped_.begin() + static_cast<std::ptrdiff_t>(first), granules, true);
  return absl::OkStatus();
}

void Arena::Free(RangeAllocator::Id id) {
  device_.used_.fetch_sub(ranges_->Get(id).size, std::memory_order_relaxed);
  ranges_->Free(id);
}

void Arena::Trim() {
  if (extents_.empty()) return;
  // Freed memory may still be in use by what the stream has not done yet.
  if (absl::Status status = device_.backend_.Synchronize(stream_); !status.ok()) return;
  for (const RangeAllocator::Range& range : ranges_->FreeRanges()) {
    const size_t first = (range.offset + kGranuleBytes - 1) / kGranuleBytes;
    const size_t end = (range.offset + range.size) / kGranuleBytes;
    auto extent = extents_.lower_bound(first);
    while (extent != extents_.end() && extent->first + extent->second.granules <= end) {
      UnmapExtent(extent->first, extent->second);
      std::fill_n(mapped_.begin() + static_cast<std::ptrdiff_t>(extent->first),
                  extent->second.granules, false);
      extent = extents_.erase(extent);
    }
  }
}

void Arena::UnmapExtent(size_t first, const Extent& extent) {
  const size_t bytes = extent.granules * kGranuleBytes;
  device_.backend_.Unmap(base_ + first * kGranuleBytes, bytes, extent.token);
  device_.reserved_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace kernelbox::server
