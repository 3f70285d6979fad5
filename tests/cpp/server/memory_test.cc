// Arenas: granules are mapped on demand, kept, taken back when the device has none left.
#include "server/memory.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "rapidcheck/gtest.h"
#include "server/error.h"

namespace kernelbox::server {
namespace {

class MemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kLimit = 8 * kGranuleBytes;

  Backend backend_ = MakeCpuBackend();
  DeviceMemory device_{*backend_.devices[0], kLimit};
};

TEST_F(MemoryTest, MapsGranulesOnDemandAndKeepsThem) {
  Arena arena(device_, nullptr);
  EXPECT_EQ(device_.reserved(), 0u);
  std::shared_ptr<Memory> a = *arena.Allocate(1000);
  EXPECT_EQ(device_.used(), 1024u);
  EXPECT_EQ(device_.reserved(), kGranuleBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % 256, 0u);
  std::shared_ptr<Memory> b = *arena.Allocate(3 * kGranuleBytes);
  std::memset(b->data(), 1, 3 * kGranuleBytes);
  EXPECT_EQ(device_.reserved(), 4 * kGranuleBytes);
  b.reset();
  EXPECT_EQ(device_.used(), 1024u);
  EXPECT_EQ(device_.reserved(), 4 * kGranuleBytes) << "idle granules stay for the next tensor";
  b = *arena.Allocate(2 * kGranuleBytes);
  EXPECT_EQ(device_.reserved(), 4 * kGranuleBytes);
}

TEST_F(MemoryTest, NothingForNothing) {
  Arena arena(device_, nullptr);
  EXPECT_EQ(*arena.Allocate(0), nullptr);
  EXPECT_EQ(device_.reserved(), 0u);
}

TEST_F(MemoryTest, EverythingGoesBackAtTheEnd) {
  {
    Arena arena(device_, nullptr);
    const std::shared_ptr<Memory> a = *arena.Allocate(kLimit);
  }
  EXPECT_EQ(device_.used(), 0u);
  EXPECT_EQ(device_.reserved(), 0u);
}

TEST_F(MemoryTest, RunsOutWithAnErrorThatSaysHowMuch) {
  Arena arena(device_, nullptr);
  const std::shared_ptr<Memory> a = *arena.Allocate(5 * kGranuleBytes);
  std::memset(a->data(), 7, 5 * kGranuleBytes);
  const absl::StatusOr<std::shared_ptr<Memory>> b = arena.Allocate(4 * kGranuleBytes);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.status().code(), absl::StatusCode::kResourceExhausted);
  const v1::Error error = ToProto(b.status());
  EXPECT_EQ(error.reason(), v1::ERROR_REASON_OUT_OF_MEMORY);
  EXPECT_EQ(error.metadata().at("requested_bytes"), std::to_string(4 * kGranuleBytes));
  EXPECT_EQ(error.metadata().at("free_bytes"), std::to_string(3 * kGranuleBytes));
  EXPECT_EQ(error.metadata().at("session_bytes"), std::to_string(5 * kGranuleBytes));
  EXPECT_EQ(static_cast<char*>(a->data())[5 * kGranuleBytes - 1], 7) << "what exists is intact";
  EXPECT_TRUE(arena.Allocate(3 * kGranuleBytes).ok());
  EXPECT_FALSE(arena.Allocate(~size_t{0} / 2).ok());
}

TEST_F(MemoryTest, TakesIdleGranulesOfOtherSessions) {
  Arena first(device_, nullptr);
  Arena second(device_, nullptr);
  const std::shared_ptr<Memory> kept = *first.Allocate(100);
  std::memset(kept->data(), 3, 100);
  first.Allocate(6 * kGranuleBytes)->reset();
  EXPECT_EQ(device_.reserved(), 7 * kGranuleBytes);
  const std::shared_ptr<Memory> large = *second.Allocate(7 * kGranuleBytes);
  std::memset(large->data(), 4, 7 * kGranuleBytes);
  EXPECT_EQ(static_cast<char*>(kept->data())[99], 3);
  EXPECT_FALSE(second.Allocate(1).ok()) << "the last granule is the first session's";
  EXPECT_TRUE(first.Allocate(100).ok());
}

RC_GTEST_FIXTURE_PROP(MemoryTest, RandomUseKeepsContents, ()) {
  struct Piece {
    std::shared_ptr<Memory> memory;
    size_t bytes;
    char value;
  };
  const auto steps = *rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>());
  {
    Arena arenas[2] = {{device_, nullptr}, {device_, nullptr}};
    std::vector<Piece> pieces;
    char value = 0;
    for (const uint32_t step : steps) {
      if (step % 3 == 0 && !pieces.empty()) {
        const size_t at = step / 3 % pieces.size();
        const Piece& piece = pieces[at];
        const char* data = static_cast<const char*>(piece.memory->data());
        RC_ASSERT(data[0] == piece.value);
        RC_ASSERT(data[piece.bytes / 2] == piece.value);
        RC_ASSERT(data[piece.bytes - 1] == piece.value);
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const size_t bytes = step % 5 == 0 ? step % (3 * kGranuleBytes) + 1 : step % 5000 + 1;
      absl::StatusOr<std::shared_ptr<Memory>> memory = arenas[step & 1].Allocate(bytes);
      if (!memory.ok()) continue;
      std::memset((*memory)->data(), ++value, bytes);
      pieces.push_back({*std::move(memory), bytes, value});
      RC_ASSERT(device_.reserved() <= kLimit);
    }
    pieces.clear();
    RC_ASSERT(device_.used() == 0u);
  }
  RC_ASSERT(device_.reserved() == 0u);
}

}  // namespace
}  // namespace kernelbox::server
