// RangeAllocator: ranges never overlap, neighbours join, the best fit is taken.
#include "server/range_allocator.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"

namespace kernelbox::server {
namespace {

TEST(RangeAllocatorTest, TakesTheSmallestRangeThatFits) {
  RangeAllocator ranges(4096, 256);
  const RangeAllocator::Id a = *ranges.Allocate(512);
  const RangeAllocator::Id b = *ranges.Allocate(256);
  const RangeAllocator::Id c = *ranges.Allocate(256);
  const RangeAllocator::Id d = *ranges.Allocate(256);
  ranges.Free(a);
  ranges.Free(c);
  // Free: [0, 512), [768, 1024), [1280, 4096).
  const RangeAllocator::Id e = *ranges.Allocate(200);
  EXPECT_EQ(ranges.Get(e).offset, 768u);
  const RangeAllocator::Id f = *ranges.Allocate(257);
  EXPECT_EQ(ranges.Get(f).offset, 0u);
  EXPECT_EQ(ranges.Get(f).size, 512u);
  for (const RangeAllocator::Id id : {b, d, e, f}) ranges.Free(id);
  EXPECT_EQ(ranges.allocated(), 0u);
  ASSERT_EQ(ranges.FreeRanges().size(), 1u);
  EXPECT_EQ(ranges.FreeRanges()[0].size, 4096u);
}

TEST(RangeAllocatorTest, SaysWhenNothingFits) {
  RangeAllocator ranges(1024, 256);
  EXPECT_FALSE(ranges.Allocate(1025).has_value());
  EXPECT_FALSE(ranges.Allocate(~size_t{0}).has_value());
  EXPECT_TRUE(ranges.Allocate(1024).has_value());
  EXPECT_FALSE(ranges.Allocate(1).has_value());
}

RC_GTEST_PROP(RangeAllocatorTest, RandomUseKeepsRangesApart, ()) {
  constexpr size_t kCapacity = 64 * 256;
  RangeAllocator ranges(kCapacity, 256);
  std::vector<RangeAllocator::Id> held;
  const auto steps = *rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>());
  for (const uint32_t step : steps) {
    if (step % 3 == 0 && !held.empty()) {
      const size_t at = (step / 3) % held.size();
      ranges.Free(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (const auto id = ranges.Allocate(step % 3000); id.has_value()) {
      held.push_back(*id);
    }
    // Allocated and free ranges cover everything once.
    std::map<size_t, size_t> cover;
    size_t allocated = 0;
    for (const RangeAllocator::Id id : held) {
      const RangeAllocator::Range range = ranges.Get(id);
      RC_ASSERT(range.offset % 256 == 0);
      RC_ASSERT(cover.emplace(range.offset, range.size).second);
      allocated += range.size;
    }
    RC_ASSERT(ranges.allocated() == allocated);
    for (const RangeAllocator::Range& range : ranges.FreeRanges()) {
      RC_ASSERT(cover.emplace(range.offset, range.size).second);
    }
    size_t end = 0;
    for (const auto& [offset, size] : cover) {
      RC_ASSERT(offset == end);
      end = offset + size;
    }
    RC_ASSERT(end == kCapacity);
  }
  for (const RangeAllocator::Id id : held) ranges.Free(id);
  RC_ASSERT(ranges.FreeRanges().size() == 1);
}

}  // namespace
}  // namespace kernelbox::server
