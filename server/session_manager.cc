#include "server/session_manager.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <future>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/error.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

// Hexadecimal digits from the system's generator: whoever has a session's id may use it.
template <size_t kBytes>
std::string RandomHex() {
  unsigned char bytes[kBytes];
  size_t filled = 0;
  while (filled < kBytes) {
    const ssize_t got = getrandom(bytes + filled, kBytes - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  std::string hex;
  for (const unsigned char byte : bytes) absl::StrAppend(&hex, absl::Hex(byte, absl::kZeroPad2));
  return hex;
}

}  // namespace

SessionManager::SessionManager(SessionManagerOptions options, std::vector<Executor*> executors)
    : options_(options),
      executors_(std::move(executors)),
      epoch_(RandomHex<8>()),
      reaper_([this] { Reap(); }) {}

SessionManager::~SessionManager() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  reaper_.join();
}

absl::StatusOr<std::shared_ptr<Session>> SessionManager::Create(
    const v1::CreateSessionRequest& request) {
  if (request.device() < 0 || static_cast<size_t>(request.device()) >= executors_.size()) {
    return MakeError(
        v1::ERROR_REASON_NO_SUCH_DEVICE,
        absl::StrCat("device must be in [0, ", executors_.size(), "), given ", request.device()),
        {{"expected", absl::StrCat("[0, ", executors_.size(), ")")},
         {"given", absl::StrCat(request.device())}});
  }
  if (request.ttl_ms() > static_cast<uint64_t>(options_.max_ttl.count())) {
    return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "ttl_ms",
                      absl::StrCat("at most ", options_.max_ttl.count()),
                      absl::StrCat(request.ttl_ms()));
  }
  SessionOptions options;
  options.id = absl::StrCat(epoch_, "-", RandomHex<16>());
  options.client_name = request.client_name();
  options.ttl =
      request.ttl_ms() == 0 ? options_.default_ttl : std::chrono::milliseconds(request.ttl_ms());
  options.max_handles = options_.max_handles;
  options.max_queued_ops = options_.max_queued_ops;
  auto session = std::make_shared<Session>(std::move(options),
                                           *executors_[static_cast<size_t>(request.device())]);
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return ServerDraining();
    if (sessions_.size() >= options_.max_sessions) {
      return MakeError(
          v1::ERROR_REASON_TOO_MANY_SESSIONS,
          absl::StrCat("the server has ", options_.max_sessions, " sessions, the most allowed"),
          {{"limit", absl::StrCat(options_.max_sessions)}});
    }
    sessions_.emplace(session->id(), session);
  }
  wake_.notify_all();  // its time to live may be the shortest
  spdlog::info("[{}] session opened: client=\"{}\" device={} ttl_ms={}", session->tag(),
               absl::CEscape(session->options().client_name), request.device(),
               session->options().ttl.count());
  return session;
}

absl::StatusOr<SessionCall> SessionManager::Find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (draining_) return ServerDraining();
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NotFound(id);
  return SessionCall(found->second);
}

absl::Status SessionManager::Close(const std::string& id, std::function<void()> done) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return ServerDraining();
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return NotFound(id);
    session = std::move(found->second);
    sessions_.erase(found);
  }
  session->executor().CloseSession(session, [session, done = std::move(done)] {
    spdlog::info("[{}] session closed", session->tag());
    done();
  });
  return absl::OkStatus();
}

void SessionManager::Drain() {
  decltype(drain_listeners_) listeners;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    listeners.swap(drain_listeners_);
  }
  for (const auto& [owner, listener] : listeners) {
    if (const std::shared_ptr<void> alive = owner.lock(); alive != nullptr) listener();
  }
}

void SessionManager::OnDrain(std::weak_ptr<void> owner, std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(drain_listeners_, [](const auto& other) { return other.first.expired(); });
  drain_listeners_.emplace_back(std::move(owner), std::move(listener));
}

bool SessionManager::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

void SessionManager::CloseAll() {
  std::unordered_map<std::string, std::shared_ptr<Session>> sessions;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    sessions.swap(sessions_);
  }
  std::vector<std::future<void>> closed;
  for (const auto& [id, session] : sessions) {
    auto done = std::make_shared<std::promise<void>>();
    closed.push_back(done->get_future());
    session->executor().CloseSession(session, [done] { done->set_value(); });
  }
  for (std::future<void>& future : closed) future.wait();
}

size_t SessionManager::size() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

void SessionManager::Reap() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<std::shared_ptr<Session>> expired;
    const Session::Clock::time_point now = Session::Clock::now();
    std::chrono::milliseconds interval(1000);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      interval = std::min(interval, it->second->options().ttl / 4);
      if (it->second->Expired(now)) {
        expired.push_back(std::move(it->second));
        it = sessions_.erase(it);
      } else {
        ++it;
      }
    }
    if (!expired.empty()) {
      lock.unlock();
      for (const std::shared_ptr<Session>& session : expired) {
        spdlog::info("[{}] session expired", session->tag());
        session->executor().CloseSession(session, [] {});
      }
      lock.lock();
      continue;
    }
    wake_.wait_for(lock, std::max(interval, std::chrono::milliseconds(5)));
  }
}

absl::Status SessionManager::NotFound(const std::string& id) const {
  const std::string epoch = id.substr(0, id.find('-'));
  const bool has_form = epoch.size() == epoch_.size() && id.size() > epoch.size();
  if (has_form && epoch != epoch_) {
    return MakeError(v1::ERROR_REASON_SERVER_RESTARTED,
                     "the session belongs to an earlier run of the server: its tensors are gone",
                     {{"session_epoch", epoch}, {"server_epoch", epoch_}});
  }
  return MakeError(v1::ERROR_REASON_SESSION_NOT_FOUND,
                   "the session was closed, has expired or never was", {{"session_id", id}});
}

}  // namespace kernelbox::server
