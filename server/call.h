// What the unary calls on a session share: lifetime, cancellation, the one answer, and repeats by
// request_id.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"
#include "server/error.h"
#include "server/executor.h"
#include "server/grpc_status.h"
#include "server/session.h"
#include "server/session_manager.h"
#include "server/work_queue.h"

namespace kernelbox::server {

absl::Status QueueFull(const Session& session, size_t ops);
absl::Status SessionClosed(const Session& session);
absl::Status CallCancelled();
absl::Status RequestIdReused(const std::string& request_id);

// Work queued for a call. The call has Start, Finish, Drop, cancelled and ops as WorkItem has
// them, and lives as long as its work.
template <class Call>
class CallItem final : public WorkItem {
 public:
  explicit CallItem(std::shared_ptr<Call> call) : call_(std::move(call)) {}

  size_t ops() const override { return call_->ops(); }
  bool cancelled() const override { return call_->cancelled(); }
  bool waits_for_device() const override { return Call::kWaitsForDevice; }
  bool Start(SessionState& session, OpRunner& runner) override {
    return call_->Start(session, runner);
  }
  void Finish(SessionState& session, OpRunner& runner) override { call_->Finish(session, runner); }
  void Drop(const absl::Status& why) override { call_->Drop(why); }

 private:
  const std::shared_ptr<Call> call_;
};

// A unary call that does queued work. gRPC owns request and response until OnDone; the call
// keeps itself alive until then and is answered once.
template <class Request, class Response>
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  static constexpr bool kWaitsForDevice = true;

  UnaryCall(const Request& request, Response& response) : request_(request), response_(response) {}

  size_t ops() const { return 0; }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Starts the call `self`: finds its session, answers a repeat, else queues its work.
  template <class Call>
  static grpc::ServerUnaryReactor* Begin(const std::shared_ptr<Call>& self,
                                         SessionManager& sessions, const std::string& request_id,
                                         Admission admission) {
    self->self_ = self;
    absl::StatusOr<SessionCall> session = sessions.Find(self->request_.session_id());
    if (!session.ok()) {
      self->Reply(session.status());
      return self.get();
    }
    self->session_ = *std::move(session);
    self->request_id_ = request_id;
    Queue(self, admission);
    return self.get();
  }

  // The work was dropped without an effect.
  void Drop(const absl::Status& why) {
    session_->requests().Abandon(request_id_);
    Reply(why);
  }

 protected:
  const Request& request() const { return request_; }
  Response& response() { return response_; }
  SessionCall& session() { return session_; }

  // The work is done: answers this call and its repeats.
  void Complete(const absl::Status& status) {
    if (!request_id_.empty()) {
      auto copy = std::make_shared<Response>();
      if (status.ok()) *copy = response_;
      session_->requests().Complete(request_id_, {status, std::move(copy)});
    }
    Reply(status);
  }

 private:
  template <class Call>
  static void Queue(const std::shared_ptr<Call>& self, Admission admission) {
    Answer answer;
    const RequestCache::Turn turn = self->session_->requests().Begin(
        self->request_id_, answer, [self, admission](const Answer* first) {
          if (first == nullptr) {
            Push(self, admission);
          } else {
            self->Repeat(*first);
          }
        });
    if (turn == RequestCache::Turn::kFirst) Push(self, admission);
    if (turn == RequestCache::Turn::kAnswered) self->Repeat(answer);
  }

  template <class Call>
  static void Push(const std::shared_ptr<Call>& self, Admission admission) {
    std::unique_ptr<WorkItem> item = std::make_unique<CallItem<Call>>(self);
    const std::shared_ptr<Session>& session = self->session_.shared();
    switch (session->executor().Enqueue(session, item, admission)) {
      case Pushed::kQueued:
      case Pushed::kWaiting:
        break;
      case Pushed::kFull:
        self->Drop(QueueFull(*session, self->ops()));
        break;
      case Pushed::kClosed:
        self->Drop(SessionClosed(*session));
        break;
    }
  }

  void Repeat(const Answer& answer) {
    if (answer.status.ok()) {
      const auto* message = dynamic_cast<const Response*>(answer.message.get());
      if (message == nullptr) {
        Reply(RequestIdReused(request_id_));
        return;
      }
      response_ = *message;
    }
    Reply(answer.status);
  }

  void Reply(const absl::Status& status) {
    session_ = SessionCall();  // the lease runs from here
    grpc::ServerUnaryReactor::Finish(ToGrpc(status));
  }

  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { self_.reset(); }

  const Request& request_;
  Response& response_;
  SessionCall session_;
  std::string request_id_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace kernelbox::server
