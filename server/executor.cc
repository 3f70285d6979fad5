#include "server/executor.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/error.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

// A session's share of time in each round of turns. Short, so that others, and transfers, wait
// little; long against an op's own overhead.
constexpr auto kShare = std::chrono::microseconds(200);
// Waiting for the device: look often at first, for small kernels, then save the processor.
constexpr auto kPollEagerly = std::chrono::microseconds(100);
constexpr auto kPollInterval = std::chrono::microseconds(50);

absl::Status Cancelled() {
  return MakeError(v1::ERROR_REASON_CANCELLED, "the call was cancelled before its turn");
}

}  // namespace

class Executor::CloseItem final : public WorkItem {
 public:
  CloseItem(Executor& executor, std::shared_ptr<Session> session, std::function<void()> done)
      : executor_(executor), session_(std::move(session)), done_(std::move(done)) {}

  bool Start(SessionState&, OpRunner&) override {
    executor_.DropAll(*session_, absl::Status(MakeError(v1::ERROR_REASON_SESSION_NOT_FOUND,
                                                        "the session was closed",
                                                        {{"session_id", session_->id()}})));
    return true;
  }
  void Finish(SessionState&, OpRunner&) override {
    executor_.EndSession(*session_);
    done_();
  }
  void Drop(const absl::Status&) override {
    executor_.EndSession(*session_);
    done_();
  }

 private:
  Executor& executor_;
  const std::shared_ptr<Session> session_;
  const std::function<void()> done_;
};

Executor::Executor(const Binder& binder, DeviceBackend& backend, std::string backend_name,
                   size_t memory_limit, std::function<void(const absl::Status&)> on_failure)
    : backend_(backend),
      memory_(backend, memory_limit),
      runner_(binder, backend, std::move(backend_name)),
      on_failure_(std::move(on_failure)),
      thread_([this] { Loop(); }) {}

Executor::~Executor() { Stop(); }

Pushed Executor::Enqueue(const std::shared_ptr<Session>& session, std::unique_ptr<WorkItem>& item,
                         Admission admission) {
  bool wake = false;
  Pushed pushed;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Pushed::kClosed;
    pushed = session->queue_.Push(item, admission);
    if (pushed == Pushed::kFull || pushed == Pushed::kClosed) return pushed;
    ++items_;
    if (pushed == Pushed::kQueued) MarkReady(session);
    wake = sleeping_;
  }
  if (wake) wake_.notify_one();
  return pushed;
}

void Executor::Post(std::function<void()> task) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      posted_.push_back(std::move(task));
      task = nullptr;
      wake = sleeping_;
    }
  }
  if (wake) wake_.notify_one();
  if (task != nullptr) task();
}

void Executor::CloseSession(std::shared_ptr<Session> session, std::function<void()> done) {
  std::unique_ptr<WorkItem> item = std::make_unique<CloseItem>(*this, session, std::move(done));
  if (Enqueue(session, item, Admission::kAlways) == Pushed::kQueued) return;
  Post([item = std::shared_ptr<WorkItem>(std::move(item))] { item->Drop(ServerDraining()); });
}

void Executor::TransferBegins(SessionState& state) {
  ++state.transfers;
  ++transfers_;
}

void Executor::TransferEnds(Session& session) {
  --transfers_;
  --session.state_->transfers;
  if (session.ended_) EndSession(session);
}

bool Executor::WaitIdle(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return items_ == 0 && posted_.empty(); });
}

void Executor::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Executor::MarkReady(const std::shared_ptr<Session>& session) {
  if (session->ready_) return;
  session->ready_ = true;
  ready_.push_back(session);
}

void Executor::Loop() {
  std::unique_lock lock(mutex_);
  Clock::time_point last_progress = Clock::now();
  while (true) {
    RunPosted(lock);
    if (stopping_) break;
    if (!ready_.empty()) {
      const std::shared_ptr<Session> session = std::move(ready_.front());
      ready_.pop_front();
      const bool alone = ready_.empty();
      lock.unlock();
      TakeTurn(session, alone);
      if (!unfinished_.empty()) PollUnfinished();
      last_progress = Clock::now();
      lock.lock();
      continue;
    }
    if (items_ == 0) idle_.notify_all();
    if (unfinished_.empty()) {
      sleeping_ = true;
      wake_.wait(lock, [this] { return HasWork(); });
      sleeping_ = false;
      last_progress = Clock::now();
      continue;
    }
    lock.unlock();
    const bool progress = PollUnfinished();
    const Clock::time_point now = Clock::now();
    if (progress) last_progress = now;
    lock.lock();
    if (!progress && now - last_progress > kPollEagerly && !HasWork()) {
      sleeping_ = true;
      wake_.wait_for(lock, kPollInterval, [this] { return HasWork(); });
      sleeping_ = false;
    }
  }
  lock.unlock();
  Shutdown();
}

void Executor::RunPosted(std::unique_lock<std::mutex>& lock) {
  while (!posted_.empty()) {
    std::vector<std::function<void()>> tasks;
    tasks.swap(posted_);
    lock.unlock();
    for (std::function<void()>& task : tasks) {
      task();
      task = nullptr;  // what it holds goes here, on this thread
    }
    lock.lock();
  }
}

void Executor::TakeTurn(const std::shared_ptr<Session>& session, bool alone) {
  session->credit_ = alone ? kShare : session->credit_ + kShare;
  Clock::time_point before = Clock::now();
  while (session->credit_ > Clock::duration::zero()) {
    bool fresh = false;
    if (session->started_ == nullptr) {
      const std::lock_guard lock(mutex_);
      session->started_ = session->queue_.Pop();
      if (session->started_ == nullptr) {
        session->ready_ = false;
        session->credit_ = Clock::duration::zero();
        return;
      }
      fresh = true;
    }
    if (fresh && session->started_->cancelled()) {
      Drop(session, Cancelled());
      continue;
    }
    Step(session);
    const Clock::time_point after = Clock::now();
    session->credit_ -= after - before;
    before = after;
  }
  const std::lock_guard lock(mutex_);
  ready_.push_back(session);
}

void Executor::Step(const std::shared_ptr<Session>& session) {
  std::unique_ptr<WorkItem>& item = session->started_;
  absl::Status status = broken_;
  if (status.ok()) status = EnsureState(*session);
  if (!status.ok()) {
    Drop(session, status);
    return;
  }
  if (!item->Start(*session->state_, runner_)) return;
  // What other items have enqueued must be finished before this one is.
  if (backend_.asynchronous() && item->waits_for_device()) {
    absl::StatusOr<Fence> fence = backend_.RecordFence(session->state_->stream);
    if (fence.ok()) {
      if (session->unfinished_.empty()) unfinished_.push_back(session);
      session->unfinished_.push_back({std::move(item), *fence});
      return;
    }
    Fail(fence.status());
    Drop(session, broken_);
    return;
  }
  item->Finish(*session->state_, runner_);
  Release(session, std::move(item));
}

void Executor::Drop(const std::shared_ptr<Session>& session, const absl::Status& why) {
  session->started_->Drop(why);
  Release(session, std::move(session->started_));
}

void Executor::Release(const std::shared_ptr<Session>& session, std::unique_ptr<WorkItem> item) {
  std::vector<WorkItem*> admitted;
  {
    const std::lock_guard lock(mutex_);
    session->queue_.Release(item->ops(), admitted);
    if (!session->queue_.empty()) MarkReady(session);
    --items_;
  }
  for (WorkItem* other : admitted) other->OnQueued();
}

bool Executor::PollUnfinished() {
  bool progress = false;
  for (size_t i = 0; i < unfinished_.size();) {
    const std::shared_ptr<Session> session = unfinished_[i];
    std::deque<Session::Unfinished>& items = session->unfinished_;
    while (!items.empty()) {
      absl::StatusOr<bool> passed =
          broken_.ok() ? backend_.PollFence(items.front().fence) : absl::StatusOr<bool>(broken_);
      if (passed.ok() && !*passed) break;
      if (!passed.ok()) Fail(passed.status());
      std::unique_ptr<WorkItem> item = std::move(items.front().item);
      items.pop_front();
      if (broken_.ok()) {
        item->Finish(*session->state_, runner_);
      } else {
        item->Drop(broken_);
      }
      Release(session, std::move(item));
      progress = true;
    }
    if (items.empty()) {
      std::swap(unfinished_[i], unfinished_.back());
      unfinished_.pop_back();
    } else {
      ++i;
    }
  }
  return progress;
}

void Executor::DropAll(Session& session, const absl::Status& why) {
  std::vector<std::unique_ptr<WorkItem>> rest;
  {
    const std::lock_guard lock(mutex_);
    rest = session.queue_.Close();
    items_ -= rest.size();
  }
  for (const auto& item : rest) item->Drop(why);
}

void Executor::EndSession(Session& session) {
  session.ended_ = true;
  if (session.state_ == nullptr) return;
  session.state_->tensors.Clear();
  if (session.state_->transfers > 0) return;  // TransferEnds comes back here
  const Stream stream = session.state_->stream;
  // Idle already, unless work was broken off.
  if (absl::Status status = backend_.Synchronize(stream); !status.ok()) Fail(status);
  session.state_.reset();
  backend_.DestroyStream(stream);
}

void Executor::Fail(const absl::Status& why) {
  if (!broken_.ok()) return;
  broken_ = why;
  spdlog::critical("the device failed: {}", std::string(why.message()));
  on_failure_(why);
}

absl::Status Executor::EnsureState(Session& session) {
  if (session.state_ != nullptr) return absl::OkStatus();
  absl::StatusOr<Stream> stream = backend_.CreateStream();
  if (!stream.ok()) return stream.status();
  session.state_ = std::make_unique<SessionState>(memory_, *stream, session.options().max_handles);
  return absl::OkStatus();
}

void Executor::Shutdown() {
  std::deque<std::shared_ptr<Session>> sessions;
  {
    const std::lock_guard lock(mutex_);
    sessions.swap(ready_);
  }
  while (!unfinished_.empty()) {
    if (!PollUnfinished()) std::this_thread::sleep_for(kPollInterval);
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    if (session->started_ != nullptr) Drop(session, ServerDraining());
    DropAll(*session, ServerDraining());
  }
  std::unique_lock lock(mutex_);
  RunPosted(lock);
  while (transfers_ > 0) {
    sleeping_ = true;
    wake_.wait(lock, [this] { return !posted_.empty(); });
    sleeping_ = false;
    RunPosted(lock);
  }
  stopped_ = true;
  idle_.notify_all();
}

}  // namespace kernelbox::server
