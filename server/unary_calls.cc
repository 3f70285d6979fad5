#include "server/unary_calls.h"

#include <memory>
#include <vector>

#include "server/call.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

class RunCall final : public UnaryCall<v1::RunRequest, v1::RunResponse> {
 public:
  using UnaryCall::UnaryCall;

  size_t ops() const { return 1; }

  bool Start(SessionState& state, OpRunner& runner) {
    OpOptions options;
    options.assign_handles = request().assign_handles();
    options.want_outputs = true;
    outcome_ = runner.Run(state, request().op(), options);
    return true;
  }

  void Finish(SessionState& state, OpRunner& runner) {
    if (outcome_.unsettled()) runner.Settle(state, outcome_);
    if (outcome_.status.ok()) {
      runner.Fill(outcome_, *response().mutable_result());
    } else {
      spdlog::debug("[{}] op {} failed: {}", session()->tag(), outcome_.op_id,
                    std::string(outcome_.status.message()));
    }
    outcome_.outputs.clear();
    Complete(outcome_.status);
  }

 private:
  OpOutcome outcome_;
};

class FreeCall final : public UnaryCall<v1::FreeRequest, v1::FreeResponse> {
 public:
  static constexpr bool kWaitsForDevice = false;
  using UnaryCall::UnaryCall;

  bool Start(SessionState& state, OpRunner&) {
    for (const uint64_t handle : request().handles()) {
      absl::Status status = state.tensors.Free(handle);
      if (first_error_.ok()) first_error_ = std::move(status);
    }
    return true;
  }
  void Finish(SessionState&, OpRunner&) { Complete(first_error_); }

 private:
  absl::Status first_error_;
};

class DescribeCall final : public UnaryCall<v1::DescribeRequest, v1::DescribeResponse> {
 public:
  using UnaryCall::UnaryCall;

  bool Start(SessionState& state, OpRunner&) {
    for (const uint64_t handle : request().handles()) {
      tensors_.push_back(state.tensors.Share(handle));
    }
    return true;
  }

  void Finish(SessionState&, OpRunner&) {
    for (int i = 0; i < request().handles_size(); ++i) {
      const uint64_t handle = request().handles(i);
      v1::TensorState& state = *response().add_tensors();
      state.set_handle(handle);
      const std::shared_ptr<StoredTensor>& tensor = tensors_[static_cast<size_t>(i)];
      if (absl::Status status = CheckUsable(tensor.get(), "handles", handle); !status.ok()) {
        *state.mutable_error() = ToProto(status);
      } else {
        FillSpec(tensor->tensor, *state.mutable_spec());
      }
    }
    tensors_.clear();
    Complete(absl::OkStatus());
  }

 private:
  std::vector<std::shared_ptr<StoredTensor>> tensors_;
};

class SyncCall final : public UnaryCall<v1::SyncRequest, v1::SyncResponse> {
 public:
  using UnaryCall::UnaryCall;

  bool Start(SessionState&, OpRunner&) { return true; }

  void Finish(SessionState& state, OpRunner&) {
    for (const absl::Status& error : state.failures.first) {
      *response().add_errors() = ToProto(error);
    }
    response().set_failed_ops(state.failures.count);
    state.failures = FailureLog();
    Complete(absl::OkStatus());
  }
};

}  // namespace

grpc::ServerUnaryReactor* StartRun(SessionManager& sessions, const v1::RunRequest& request,
                                   v1::RunResponse& response) {
  return RunCall::Begin(std::make_shared<RunCall>(request, response), sessions,
                        request.request_id(), Admission::kOrRefuse);
}

grpc::ServerUnaryReactor* StartFree(SessionManager& sessions, const v1::FreeRequest& request,
                                    v1::FreeResponse& response) {
  return FreeCall::Begin(std::make_shared<FreeCall>(request, response), sessions,
                         request.request_id(), Admission::kOrRefuse);
}

grpc::ServerUnaryReactor* StartDescribe(SessionManager& sessions,
                                        const v1::DescribeRequest& request,
                                        v1::DescribeResponse& response) {
  return DescribeCall::Begin(std::make_shared<DescribeCall>(request, response), sessions, "",
                             Admission::kOrRefuse);
}

grpc::ServerUnaryReactor* StartSync(SessionManager& sessions, const v1::SyncRequest& request,
                                    v1::SyncResponse& response) {
  return SyncCall::Begin(std::make_shared<SyncCall>(request, response), sessions, "",
                         Admission::kAlways);
}

}  // namespace kernelbox::server
