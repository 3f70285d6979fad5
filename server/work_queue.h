// A session's queue: work in the order it came, bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace kernelbox::server {

class OpRunner;
struct SessionState;

// One piece of queued work. Except for construction and destruction, the executor thread calls
// everything, and exactly one of {Start until it returns true, then Finish} and {Drop}, unless
// stated otherwise.
class WorkItem {
 public:
  virtual ~WorkItem() = default;

  // How many ops it holds; 0 for other work. Constant.
  virtual size_t ops() const { return 0; }
  // True if the caller has gone and the item, if not started, should be dropped.
  virtual bool cancelled() const { return false; }
  // Whether Finish must wait until the device has done what the session's items so far, this one
  // included, have enqueued.
  virtual bool waits_for_device() const { return true; }

  // Runs, or enqueues on the device, the next part: one op. True when nothing is left.
  virtual bool Start(SessionState& session, OpRunner& runner) = 0;
  virtual void Finish(SessionState& session, OpRunner& runner) = 0;
  // It will never start, or, if it has started, never finish.
  virtual void Drop(const absl::Status& why) = 0;
  // It waited for room (Admission::kOrWait) and has it now.
  virtual void OnQueued() {}
};

// What becomes of an item that finds no room.
enum class Admission : uint8_t {
  kOrRefuse,
  kOrWait,
  kAlways,  // needs no room
};

enum class Pushed : uint8_t {
  kQueued,
  kWaiting,
  kFull,    // not taken
  kClosed,  // not taken: the session is ending
};

// Not thread-safe.
class WorkQueue {
 public:
  // At most `limit` ops, and as many items of other work, are queued or running.
  explicit WorkQueue(size_t limit) : limit_(limit) {}

  // Takes the item if the result says so. An item of more ops than the limit is kFull.
  Pushed Push(std::unique_ptr<WorkItem>& item, Admission admission);
  // The next item to run, null if there is none. It counts until it is released.
  std::unique_ptr<WorkItem> Pop();
  // Gives back the room of an item that was popped; the items that have come into the queue by
  // that are appended to `admitted`.
  void Release(size_t ops, std::vector<WorkItem*>& admitted);
  // Nothing more is taken; gives everything that has not been popped.
  std::vector<std::unique_ptr<WorkItem>> Close();

  bool empty() const { return items_.empty(); }
  // Nothing queued, waiting or running.
  bool idle() const { return items_.empty() && waiting_.empty() && running_ == 0; }

 private:
  bool HasRoom(size_t ops) const { return ops > 0 ? ops_ + ops <= limit_ : others_ + 1 <= limit_; }
  void Count(size_t ops) {
    if (ops > 0) {
      ops_ += ops;
    } else {
      ++others_;
    }
  }

  const size_t limit_;
  size_t ops_ = 0;     // queued and running
  size_t others_ = 0;  // items without ops, queued and running
  size_t running_ = 0;
  bool closed_ = false;
  std::deque<std::unique_ptr<WorkItem>> items_;
  std::deque<std::unique_ptr<WorkItem>> waiting_;
};

}  // namespace kernelbox::server
