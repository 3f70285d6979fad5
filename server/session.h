// One client's namespace: tensors, memory, a queue and a lease.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/memory.h"
#include "server/request_cache.h"
#include "server/tensor_store.h"
#include "server/work_queue.h"

namespace kernelbox::server {

class Executor;

// The failures that Sync tells.
struct FailureLog {
  static constexpr size_t kMaxListed = 100;

  std::vector<absl::Status> first;  // oldest first, without those that inherited a failure
  uint64_t count = 0;
};

// What only the device's executor thread may touch. Exists from the session's first turn to its
// end.
struct SessionState {
  SessionState(DeviceMemory& memory, Stream stream, uint64_t max_handles)
      : stream(stream), arena(memory, stream), tensors(max_handles) {}

  const Stream stream;
  Arena arena;
  TensorStore tensors;  // after the arena: its tensors' memory goes back to it
  FailureLog failures;
  uint64_t ops = 0;   // how many were run
  int transfers = 0;  // uploads and downloads that hold memory of the arena
};

struct SessionOptions {
  std::string id;
  std::string client_name;
  std::chrono::milliseconds ttl{0};
  uint64_t max_handles = 0;
  uint64_t max_queued_ops = 0;
};

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  Session(SessionOptions options, Executor& executor);

  const std::string& id() const { return options_.id; }
  // A short form of the id for logs.
  std::string_view tag() const { return tag_; }
  const SessionOptions& options() const { return options_; }
  Executor& executor() { return executor_; }

  // The lease: a call begins and ends; the session expires when its time to live has passed
  // since the last end and no call is open. Any thread.
  void BeginCall();
  void EndCall();
  bool Expired(Clock::time_point now) const;

  RequestCache& requests() { return requests_; }

 private:
  friend class Executor;

  const SessionOptions options_;
  const std::string tag_;
  Executor& executor_;
  RequestCache requests_;
  std::atomic<int64_t> open_calls_{0};
  std::atomic<Clock::rep> last_used_;

  // Started, and not yet passed by the device.
  struct Unfinished {
    std::unique_ptr<WorkItem> item;
    Fence fence;
  };

  // The executor's mutex guards these.
  WorkQueue queue_;
  bool ready_ = false;  // it has its turn or waits for it

  // The executor thread's.
  std::unique_ptr<SessionState> state_;
  bool ended_ = false;
  std::unique_ptr<WorkItem> started_;  // in part
  std::deque<Unfinished> unfinished_;
  Clock::duration credit_{0};  // of time, for its turn
};

// An open call on a session, for the lease.
class SessionCall {
 public:
  SessionCall() = default;
  explicit SessionCall(std::shared_ptr<Session> session) : session_(std::move(session)) {
    if (session_ != nullptr) session_->BeginCall();
  }
  ~SessionCall() {
    if (session_ != nullptr) session_->EndCall();
  }
  SessionCall(SessionCall&& other) noexcept = default;
  SessionCall& operator=(SessionCall&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }

  explicit operator bool() const { return session_ != nullptr; }
  Session& operator*() const { return *session_; }
  Session* operator->() const { return session_.get(); }
  const std::shared_ptr<Session>& shared() const { return session_; }

 private:
  std::shared_ptr<Session> session_;
};

}  // namespace kernelbox::server
