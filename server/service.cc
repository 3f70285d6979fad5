#include "server/service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/call.h"
#include "server/download_call.h"
#include "server/execute_call.h"
#include "server/transfer.h"
#include "server/unary_calls.h"
#include "server/upload_call.h"

namespace kernelbox::server {
namespace {

// The answer of a call that is done when its handler returns.
grpc::ServerUnaryReactor* Answered(grpc::CallbackServerContext* context,
                                   const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::Status CheckVersion(uint32_t given) {
  if (given >= kApiVersionMin && given <= kApiVersion) return absl::OkStatus();
  const std::string expected = absl::StrCat("[", kApiVersionMin, ", ", kApiVersion, "]");
  return MakeError(v1::ERROR_REASON_VERSION_MISMATCH,
                   absl::StrCat("the server speaks minor versions ", expected,
                                " of kernelbox.v1, the client ", given),
                   {{"expected", expected}, {"given", absl::StrCat(given)}});
}

}  // namespace

Service::Service(ServiceInfo info, const Binder& binder, SessionManager& sessions,
                 std::vector<Executor*> executors)
    : info_(std::move(info)),
      binder_(binder),
      sessions_(sessions),
      executors_(std::move(executors)) {}

grpc::ServerUnaryReactor* Service::GetServerInfo(grpc::CallbackServerContext* context,
                                                 const v1::GetServerInfoRequest*,
                                                 v1::GetServerInfoResponse* response) {
  response->set_server_version(info_.version);
  response->set_api_version_min(kApiVersionMin);
  response->set_api_version_max(kApiVersion);
  response->set_epoch(sessions_.epoch());
  response->set_backend(info_.backend);
  for (Executor* executor : executors_) {
    DeviceMemory& memory = executor->memory();
    v1::DeviceInfo& device = *response->add_devices();
    device.set_index(response->devices_size() - 1);
    device.set_name(memory.backend().description().name);
    device.set_compute_capability(memory.backend().description().compute_capability);
    device.set_memory_limit_bytes(memory.limit());
    device.set_memory_used_bytes(memory.used());
    device.set_memory_reserved_bytes(memory.reserved());
  }
  FillLimits(context->peer(), *response->mutable_limits());
  for (const OpPlan& plan : binder_.plans()) response->add_ops(plan.name);
  for (int dtype = v1::DType_MIN + 1; dtype <= v1::DType_MAX; ++dtype) {
    response->add_dtypes(static_cast<v1::DType>(dtype));
  }
  return Answered(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* Service::CreateSession(grpc::CallbackServerContext* context,
                                                 const v1::CreateSessionRequest* request,
                                                 v1::CreateSessionResponse* response) {
  if (absl::Status status = CheckVersion(request->api_version()); !status.ok()) {
    return Answered(context, status);
  }
  // Creating takes no time, so a repeat need never wait for the first call's answer.
  const std::string& id = request->request_id();
  Answer answer;
  if (requests_.Begin(id, answer, [](const Answer*) {}) == RequestCache::Turn::kAnswered) {
    const auto* first = dynamic_cast<const v1::CreateSessionResponse*>(answer.message.get());
    if (first == nullptr) return Answered(context, RequestIdReused(id));
    *response = *first;
    return Answered(context, absl::OkStatus());
  }
  absl::StatusOr<std::shared_ptr<Session>> session = sessions_.Create(*request);
  if (!session.ok()) {
    requests_.Abandon(id);
    return Answered(context, session.status());
  }
  response->set_session_id((*session)->id());
  response->set_epoch(sessions_.epoch());
  response->set_ttl_ms(static_cast<uint64_t>((*session)->options().ttl.count()));
  FillLimits(context->peer(), *response->mutable_limits());
  requests_.Complete(id,
                     {absl::OkStatus(), std::make_shared<v1::CreateSessionResponse>(*response)});
  return Answered(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* Service::KeepAlive(grpc::CallbackServerContext* context,
                                             const v1::KeepAliveRequest* request,
                                             v1::KeepAliveResponse* response) {
  const absl::StatusOr<SessionCall> session = sessions_.Find(request->session_id());
  if (!session.ok()) return Answered(context, session.status());
  response->set_ttl_ms(static_cast<uint64_t>((*session)->options().ttl.count()));
  return Answered(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* Service::CloseSession(grpc::CallbackServerContext* context,
                                                const v1::CloseSessionRequest* request,
                                                v1::CloseSessionResponse*) {
  // The session is unknown after this, so its repeats are known here.
  const std::string key =
      request->request_id().empty()
          ? ""
          : absl::StrCat("close ", request->session_id(), " ", request->request_id());
  Answer answer;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto reply = [reactor](const Answer* first) {
    reactor->Finish(first == nullptr ? grpc::Status::CANCELLED : ToGrpc(first->status));
  };
  switch (requests_.Begin(key, answer, reply)) {
    case RequestCache::Turn::kAnswered:
      reply(&answer);
      return reactor;
    case RequestCache::Turn::kRunning:
      return reactor;
    case RequestCache::Turn::kFirst:
      break;
  }
  const absl::Status status = sessions_.Close(request->session_id(), [this, key, reactor] {
    requests_.Complete(key, Answer());
    reactor->Finish(grpc::Status::OK);
  });
  if (!status.ok()) {
    requests_.Abandon(key);
    reactor->Finish(ToGrpc(status));
  }
  return reactor;
}

grpc::ServerUnaryReactor* Service::Describe(grpc::CallbackServerContext*,
                                            const v1::DescribeRequest* request,
                                            v1::DescribeResponse* response) {
  return StartDescribe(sessions_, *request, *response);
}

grpc::ServerUnaryReactor* Service::Free(grpc::CallbackServerContext*,
                                        const v1::FreeRequest* request,
                                        v1::FreeResponse* response) {
  return StartFree(sessions_, *request, *response);
}

grpc::ServerUnaryReactor* Service::Run(grpc::CallbackServerContext*, const v1::RunRequest* request,
                                       v1::RunResponse* response) {
  return StartRun(sessions_, *request, *response);
}

grpc::ServerUnaryReactor* Service::Sync(grpc::CallbackServerContext*,
                                        const v1::SyncRequest* request,
                                        v1::SyncResponse* response) {
  return StartSync(sessions_, *request, *response);
}

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Service::Execute(
    grpc::CallbackServerContext*) {
  return StartExecute(sessions_);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* Service::Upload(grpc::CallbackServerContext*,
                                                           grpc::ByteBuffer* response) {
  return StartUpload(sessions_, *response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::Download(grpc::CallbackServerContext* context,
                                                              const grpc::ByteBuffer* request) {
  return StartDownload(sessions_, *request, PreferredChunkBytes(context->peer()));
}

void Service::FillLimits(const std::string& peer, v1::Limits& limits) const {
  const SessionManagerOptions& options = sessions_.options();
  limits.set_max_message_bytes(info_.max_message_bytes);
  limits.set_preferred_chunk_bytes(PreferredChunkBytes(peer));
  limits.set_max_queued_ops(options.max_queued_ops);
  limits.set_max_sessions(options.max_sessions);
  limits.set_max_handles(options.max_handles);
  limits.set_max_session_ttl_ms(static_cast<uint64_t>(options.max_ttl.count()));
}

}  // namespace kernelbox::server
