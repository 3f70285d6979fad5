// WorkQueue: bounded, in order, ops and other work apart.
#include "server/work_queue.h"

#include "gtest/gtest.h"

namespace kernelbox::server {
namespace {

class Item final : public WorkItem {
 public:
  explicit Item(size_t ops) : ops_(ops) {}
  size_t ops() const override { return ops_; }
  bool Start(SessionState&, OpRunner&) override { return true; }
  void Finish(SessionState&, OpRunner&) override {}
  void Drop(const absl::Status&) override {}

 private:
  const size_t ops_;
};

Pushed Push(WorkQueue& queue, size_t ops, Admission admission) {
  std::unique_ptr<WorkItem> item = std::make_unique<Item>(ops);
  const Pushed pushed = queue.Push(item, admission);
  const bool taken = pushed == Pushed::kQueued || pushed == Pushed::kWaiting;
  EXPECT_EQ(item == nullptr, taken);
  return pushed;
}

TEST(WorkQueueTest, CountsOpsUntilTheyAreReleased) {
  WorkQueue queue(4);
  EXPECT_EQ(Push(queue, 3, Admission::kOrRefuse), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 2, Admission::kOrRefuse), Pushed::kFull);
  EXPECT_EQ(Push(queue, 1, Admission::kOrRefuse), Pushed::kQueued);
  const std::unique_ptr<WorkItem> running = queue.Pop();
  EXPECT_EQ(running->ops(), 3u);
  EXPECT_EQ(Push(queue, 1, Admission::kOrRefuse), Pushed::kFull);
  std::vector<WorkItem*> admitted;
  queue.Release(3, admitted);
  EXPECT_TRUE(admitted.empty());
  EXPECT_EQ(Push(queue, 3, Admission::kOrRefuse), Pushed::kQueued);
}

TEST(WorkQueueTest, WaitingItemsComeInAsRoomIsMade) {
  WorkQueue queue(4);
  EXPECT_EQ(Push(queue, 4, Admission::kOrWait), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 3, Admission::kOrWait), Pushed::kWaiting);
  EXPECT_EQ(Push(queue, 1, Admission::kOrRefuse), Pushed::kFull) << "ops do not overtake";
  EXPECT_EQ(Push(queue, 5, Admission::kOrWait), Pushed::kFull) << "it would never have room";
  queue.Pop();
  std::vector<WorkItem*> admitted;
  queue.Release(4, admitted);
  ASSERT_EQ(admitted.size(), 1u);
  EXPECT_EQ(queue.Pop().get(), admitted[0]);
}

TEST(WorkQueueTest, OtherWorkHasRoomOfItsOwn) {
  WorkQueue queue(2);
  EXPECT_EQ(Push(queue, 2, Admission::kOrRefuse), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 0, Admission::kOrRefuse), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 0, Admission::kOrRefuse), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 0, Admission::kOrRefuse), Pushed::kFull);
  EXPECT_EQ(Push(queue, 0, Admission::kAlways), Pushed::kQueued);
}

TEST(WorkQueueTest, ClosedTakesNothing) {
  WorkQueue queue(4);
  EXPECT_EQ(Push(queue, 4, Admission::kOrRefuse), Pushed::kQueued);
  EXPECT_EQ(Push(queue, 1, Admission::kOrWait), Pushed::kWaiting);
  EXPECT_EQ(queue.Close().size(), 2u);
  EXPECT_EQ(Push(queue, 1, Admission::kAlways), Pushed::kClosed);
  EXPECT_TRUE(queue.idle());
}

}  // namespace
}  // namespace kernelbox::server
