// A device's one thread: it runs the queued work of all sessions of the device, one op after the
// other, fairly between sessions, and finishes it in order when the device has passed it.
//
// Fair means by time: sessions with queued work take turns; a turn lasts one op at least and goes
// on until the session has used its share; what it used beyond is taken off its next turns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/memory.h"
#include "server/op_runner.h"
#include "server/session.h"
#include "server/work_queue.h"

namespace kernelbox::server {

class Executor {
 public:
  using Clock = std::chrono::steady_clock;

  // `binder` and `backend` outlive the executor. `on_failure` is called by its thread, once, when
  // the device has failed: all work is then dropped with that error.
  Executor(const Binder& binder, DeviceBackend& backend, std::string backend_name,
           size_t memory_limit, std::function<void(const absl::Status&)> on_failure);
  // Stop, if that was not called.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Puts work at the end of the session's queue. The item is taken if the result says so. Any
  // thread, items' functions included.
  Pushed Enqueue(const std::shared_ptr<Session>& session, std::unique_ptr<WorkItem>& item,
                 Admission admission);

  // Runs `task` on the executor thread before any further op. Tasks run in the order posted. Any
  // thread. After Stop, tasks are run by the caller.
  void Post(std::function<void()> task);

  // Ends the session after the work it has queued: its tensors go, its memory too unless a
  // transfer still reads it. `done` is then called by the executor thread. Any thread; once for
  // each session.
  void CloseSession(std::shared_ptr<Session> session, std::function<void()> done);

  // The session's state; null before its first turn and after its end. Executor thread.
  static SessionState* StateOf(Session& session) { return session.state_.get(); }
  // A transfer holds memory of the session from Begin to End. Executor thread.
  void TransferBegins(SessionState& state);
  void TransferEnds(Session& session);

  // Waits until no session has work queued or running; false if that takes until `deadline`.
  bool WaitIdle(Clock::time_point deadline);
  // Drops what is queued with SERVER_DRAINING, waits for what runs and for transfers to end, and
  // ends the thread. Calls of Enqueue after this find their session closed.
  void Stop();

  DeviceMemory& memory() { return memory_; }
  OpRunner& runner() { return runner_; }

 private:
  class CloseItem;

  void Loop();
  // Both with the mutex held.
  void MarkReady(const std::shared_ptr<Session>& session);
  bool HasWork() const { return !posted_.empty() || !ready_.empty() || stopping_; }

  void RunPosted(std::unique_lock<std::mutex>& lock);
  void TakeTurn(const std::shared_ptr<Session>& session, bool alone);
  void Step(const std::shared_ptr<Session>& session);
  // Drops the started item.
  void Drop(const std::shared_ptr<Session>& session, const absl::Status& why);
  // The item has finished or was dropped: its room in the queue is free.
  void Release(const std::shared_ptr<Session>& session, std::unique_ptr<WorkItem> item);
  // Finishes what the device has passed; true if there was any.
  bool PollUnfinished();
  void DropAll(Session& session, const absl::Status& why);
  void EndSession(Session& session);
  void Fail(const absl::Status& why);
  [[nodiscard]] absl::Status EnsureState(Session& session);
  void Shutdown();

  DeviceBackend& backend_;
  DeviceMemory memory_;
  OpRunner runner_;
  const std::function<void(const absl::Status&)> on_failure_;

  // The executor thread's.
  std::vector<std::shared_ptr<Session>> unfinished_;  // sessions with unfinished items
  absl::Status broken_;                               // what the device died of
  int transfers_ = 0;                                 // of all sessions

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Guarded by mutex_, as are the sessions' queues.
  std::deque<std::shared_ptr<Session>> ready_;  // with queued or started work, in turn
  std::vector<std::function<void()>> posted_;
  size_t items_ = 0;  // in all sessions, taken and not finished
  bool sleeping_ = false;
  bool stopping_ = false;
  bool stopped_ = false;

  std::thread thread_;  // last: it uses the others
};

}  // namespace kernelbox::server
