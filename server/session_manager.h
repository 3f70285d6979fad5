// All sessions: opens, finds, closes and expires them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "kernelbox/v1/service.pb.h"
#include "server/executor.h"
#include "server/session.h"

namespace kernelbox::server {

struct SessionManagerOptions {
  std::chrono::milliseconds default_ttl{60'000};
  std::chrono::milliseconds max_ttl{3'600'000};
  uint64_t max_sessions = 64;
  uint64_t max_handles = uint64_t{1} << 20;
  uint64_t max_queued_ops = 4096;
};

// Thread-safe.
class SessionManager {
 public:
  // The executors, one for each device by its index, outlive the manager.
  SessionManager(SessionManagerOptions options, std::vector<Executor*> executors);
  // Every session was closed, or its calls are over: see CloseAll.
  ~SessionManager();

  // Tells this run of the server from others.
  const std::string& epoch() const { return epoch_; }
  const SessionManagerOptions& options() const { return options_; }

  // Errors: SERVER_DRAINING, NO_SUCH_DEVICE, TOO_MANY_SESSIONS, INVALID_REQUEST.
  absl::StatusOr<std::shared_ptr<Session>> Create(const v1::CreateSessionRequest& request);

  // Errors: SERVER_DRAINING, SESSION_NOT_FOUND, SERVER_RESTARTED.
  absl::StatusOr<SessionCall> Find(const std::string& id);

  // Ends a session after what it has queued; `done` comes when its memory has gone back.
  // Errors, without a call of `done`, are those of Find.
  [[nodiscard]] absl::Status Close(const std::string& id, std::function<void()> done);

  // From now on Create and Find fail with SERVER_DRAINING, and the listeners are told.
  void Drain();
  // Has `listener` called if Drain is, unless its owner has gone by then: for streams, which find
  // their session only once.
  void OnDrain(std::weak_ptr<void> owner, std::function<void()> listener);
  bool draining() const;
  // Ends every session and returns when that is done.
  void CloseAll();

  size_t size() const;

 private:
  void Reap();
  absl::Status NotFound(const std::string& id) const;

  const SessionManagerOptions options_;
  const std::vector<Executor*> executors_;
  const std::string epoch_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::unordered_map<std::string, std::shared_ptr<Session>> sessions_;
  std::vector<std::pair<std::weak_ptr<void>, std::function<void()>>> drain_listeners_;
  bool draining_ = false;
  bool stopping_ = false;
  std::thread reaper_;
};

}  // namespace kernelbox::server
