#include "server/execute_call.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/arena.h"
#include "server/call.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

// Answers that may wait for the client before the server stops reading requests.
constexpr size_t kMaxUnsent = 64;

// A request with its answer.
class Batch {
 public:
  Batch() : request_(google::protobuf::Arena::CreateMessage<v1::ExecuteRequest>(&arena_)) {}

  v1::ExecuteRequest& request() { return *request_; }
  v1::ExecuteResponse& response() { return response_; }
  size_t ops() const { return std::max<size_t>(static_cast<size_t>(request_->ops_size()), 1); }

  // Runs the next op, after the last one frees. True when nothing is left.
  bool Start(SessionState& state, OpRunner& runner);
  // The device has passed all ops: the response is complete after this.
  void Finish(SessionState& state, OpRunner& runner, std::string_view tag);

  // Why there is no answer; and whether there is one, or an error in its place.
  absl::Status status;
  bool done = false;

 private:
  bool report_all() const { return request_->report() == v1::REPORT_ALL; }
  void Report(const OpOutcome& outcome, OpRunner& runner, std::string_view tag);

  google::protobuf::Arena arena_;
  v1::ExecuteRequest* const request_;
  v1::ExecuteResponse response_;
  int next_op_ = 0;
  // What Finish has to settle or report, in order.
  std::vector<OpOutcome> outcomes_;
};

bool Batch::Start(SessionState& state, OpRunner& runner) {
  if (next_op_ < request_->ops_size()) {
    OpOptions options;
    options.want_outputs = report_all();
    OpOutcome outcome = runner.Run(state, request_->ops(next_op_++), options);
    if (outcome.status.ok() && !outcome.unsettled() && !report_all()) {
      response_.set_completed_ops(response_.completed_ops() + 1);
    } else {
      outcomes_.push_back(std::move(outcome));
    }
    if (next_op_ < request_->ops_size()) return false;
  }
  for (const uint64_t handle : request_->free_handles()) {
    if (absl::Status status = state.tensors.Free(handle); !status.ok()) {
      *response_.add_free_errors() = ToProto(status);
    }
  }
  return true;
}

void Batch::Finish(SessionState& state, OpRunner& runner, std::string_view tag) {
  for (OpOutcome& outcome : outcomes_) {
    if (outcome.unsettled()) runner.Settle(state, outcome);
    Report(outcome, runner, tag);
  }
  outcomes_.clear();
}

void Batch::Report(const OpOutcome& outcome, OpRunner& runner, std::string_view tag) {
  if (outcome.status.ok()) {
    response_.set_completed_ops(response_.completed_ops() + 1);
    if (report_all()) runner.Fill(outcome, *response_.add_results());
    return;
  }
  response_.set_failed_ops(response_.failed_ops() + 1);
  runner.Fill(outcome, *response_.add_results());
  spdlog::debug("[{}] op {} failed: {}", tag, outcome.op_id, std::string(outcome.status.message()));
}

class ExecuteStream final : public grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>,
                            public std::enable_shared_from_this<ExecuteStream> {
 public:
  explicit ExecuteStream(SessionManager& sessions) : sessions_(sessions) {}

  void Begin() {
    self_ = shared_from_this();
    const std::lock_guard lock(mutex_);
    Proceed();
  }

  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  Session& session() { return *session_; }

  // The batch has its answer, or an error in its place that ends the stream.
  void BatchDone(Batch& batch, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    batch.status = status;
    batch.done = true;
    Proceed();
  }

  void BatchQueued() {
    const std::lock_guard lock(mutex_);
    waiting_ = false;
    Proceed();
  }

 private:
  void OnReadDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) {
      read_all_ = true;
    } else if (!read_all_ && !finished_) {
      if (absl::Status status = Accept(std::move(next_)); !status.ok()) EndAfterAnswers(status);
    }
    Proceed();
  }

  void OnWriteDone(bool) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    batches_.pop_front();
    Proceed();
  }

  void OnCancel() override {
    cancelled_ = true;
    const std::lock_guard lock(mutex_);
    Proceed();
  }

  void OnDone() override { self_.reset(); }

  void OnDrain() {
    const std::lock_guard lock(mutex_);
    if (!read_all_) EndAfterAnswers(ServerDraining());
    Proceed();
  }

  // Takes a request that was read.
  absl::Status Accept(std::shared_ptr<Batch> batch) {
    const v1::ExecuteRequest& request = batch->request();
    if (!session_) {
      absl::StatusOr<SessionCall> session = sessions_.Find(request.session_id());
      if (!session.ok()) return session.status();
      session_ = *std::move(session);
      sessions_.OnDrain(weak_from_this(), [this] { OnDrain(); });
    } else if (!request.session_id().empty() && request.session_id() != session_->id()) {
      return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "session_id",
                        "that of the stream's first request", request.session_id());
    }
    if (batch->ops() > session_->options().max_queued_ops) {
      return QueueFull(*session_, batch->ops());
    }
    batch->response().set_sequence(++sequence_);
    batches_.push_back(batch);
    Answer answer;
    const RequestCache::Turn turn = session_->requests().Begin(
        request.request_id(), answer, [stream = shared_from_this(), batch](const Answer* first) {
          const std::lock_guard lock(stream->mutex_);
          if (first == nullptr) {
            stream->Queue(batch);
          } else {
            Repeat(*first, *batch);
          }
          stream->Proceed();
        });
    if (turn == RequestCache::Turn::kFirst) Queue(batch);
    if (turn == RequestCache::Turn::kAnswered) Repeat(answer, *batch);
    return absl::OkStatus();
  }

  void Queue(const std::shared_ptr<Batch>& batch);

  // Answers with an earlier answer.
  static void Repeat(const Answer& answer, Batch& batch) {
    batch.done = true;
    batch.status = answer.status;
    if (!answer.status.ok()) return;
    const auto* response = dynamic_cast<const v1::ExecuteResponse*>(answer.message.get());
    if (response == nullptr) {
      batch.status = RequestIdReused(batch.request().request_id());
      return;
    }
    const uint64_t sequence = batch.response().sequence();
    batch.response() = *response;
    batch.response().set_sequence(sequence);
  }

  // Reads no more, and ends the stream when what was read before is answered.
  void EndAfterAnswers(const absl::Status& status) {
    read_all_ = true;
    end_ = status;
  }

  // Sends, reads and finishes, whatever can be done now.
  void Proceed() {
    if (finished_) return;
    if (!writing_) {
      if (cancelled()) return End(CallCancelled());
      if (batches_.empty()) {
        if (read_all_) return End(end_);
      } else if (Batch& batch = *batches_.front(); batch.done) {
        if (!batch.status.ok()) return End(batch.status);
        writing_ = true;
        StartWrite(&batch.response());
      }
    }
    if (!reading_ && !read_all_ && !waiting_ && batches_.size() < kMaxUnsent) {
      reading_ = true;
      next_ = std::make_shared<Batch>();
      StartRead(&next_->request());
    }
  }

  void End(const absl::Status& status) {
    finished_ = true;
    Finish(ToGrpc(status));
  }

  SessionManager& sessions_;
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  SessionCall session_;
  absl::Status end_;  // what the stream ends with when the client does not cancel
  uint64_t sequence_ = 0;
  std::shared_ptr<Batch> next_;                 // being read
  std::deque<std::shared_ptr<Batch>> batches_;  // read and not yet answered, in order
  bool reading_ = false;
  bool read_all_ = false;
  bool waiting_ = false;  // the last batch has no room in the queue yet
  bool writing_ = false;
  bool finished_ = false;
  std::shared_ptr<ExecuteStream> self_;
};

// A batch in the session's queue.
class BatchItem final : public WorkItem {
 public:
  BatchItem(std::shared_ptr<ExecuteStream> stream, std::shared_ptr<Batch> batch)
      : stream_(std::move(stream)), batch_(std::move(batch)) {}

  size_t ops() const override { return batch_->ops(); }
  bool cancelled() const override { return stream_->cancelled(); }
  void OnQueued() override { stream_->BatchQueued(); }

  bool Start(SessionState& state, OpRunner& runner) override {
    return batch_->Start(state, runner);
  }
  void Finish(SessionState& state, OpRunner& runner) override {
    batch_->Finish(state, runner, stream_->session().tag());
    if (const std::string& id = batch_->request().request_id(); !id.empty()) {
      stream_->session().requests().Complete(
          id, {absl::OkStatus(), std::make_shared<v1::ExecuteResponse>(batch_->response())});
    }
    stream_->BatchDone(*batch_, absl::OkStatus());
  }
  void Drop(const absl::Status& why) override {
    stream_->session().requests().Abandon(batch_->request().request_id());
    stream_->BatchDone(*batch_, why);
  }

 private:
  const std::shared_ptr<ExecuteStream> stream_;
  const std::shared_ptr<Batch> batch_;
};

// With the mutex held.
void ExecuteStream::Queue(const std::shared_ptr<Batch>& batch) {
  std::unique_ptr<WorkItem> item = std::make_unique<BatchItem>(shared_from_this(), batch);
  const std::shared_ptr<Session>& session = session_.shared();
  switch (session->executor().Enqueue(session, item, Admission::kOrWait)) {
    case Pushed::kQueued:
      break;
    case Pushed::kWaiting:
      waiting_ = true;
      break;
    case Pushed::kFull:
    case Pushed::kClosed:
      // Elsewhere: whoever takes its place may be a batch of this stream.
      session->executor().Post(
          [session, id = batch->request().request_id()] { session->requests().Abandon(id); });
      batch->status = SessionClosed(*session);
      batch->done = true;
      break;
  }
}

}  // namespace

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* StartExecute(
    SessionManager& sessions) {
  const auto stream = std::make_shared<ExecuteStream>(sessions);
  stream->Begin();
  return stream.get();
}

}  // namespace kernelbox::server
