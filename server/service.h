// The rpc service: checks what needs no session, hands the rest to the calls.
#pragma once

#include <string>
#include <vector>

#include "kernelbox/v1/service.grpc.pb.h"
#include "server/binder.h"
#include "server/executor.h"
#include "server/session_manager.h"

namespace kernelbox::server {

// What GetServerInfo tells, besides what changes.
struct ServiceInfo {
  std::string version;
  std::string backend;
  uint64_t max_message_bytes = 0;
};

// The newest minor version of kernelbox.v1 that this server speaks, and the oldest.
inline constexpr uint32_t kApiVersion = 0;
inline constexpr uint32_t kApiVersionMin = 0;

// Handlers run on gRPC's threads; none of them blocks. Uploads and downloads take bytes.
using ServiceBase = v1::KernelboxService::WithRawCallbackMethod_Upload<
    v1::KernelboxService::WithRawCallbackMethod_Download<v1::KernelboxService::CallbackService>>;

class Service final : public ServiceBase {
 public:
  // Everything given outlives the service.
  Service(ServiceInfo info, const Binder& binder, SessionManager& sessions,
          std::vector<Executor*> executors);

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const v1::CreateSessionRequest* request,
                                          v1::CreateSessionResponse* response) override;
  grpc::ServerUnaryReactor* KeepAlive(grpc::CallbackServerContext* context,
                                      const v1::KeepAliveRequest* request,
                                      v1::KeepAliveResponse* response) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* response) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeResponse* response) override;
  grpc::ServerUnaryReactor* Free(grpc::CallbackServerContext* context,
                                 const v1::FreeRequest* request,
                                 v1::FreeResponse* response) override;
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const v1::RunRequest* request,
                                v1::RunResponse* response) override;
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context,
                                 const v1::SyncRequest* request,
                                 v1::SyncResponse* response) override;
  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

 private:
  void FillLimits(const std::string& peer, v1::Limits& limits) const;

  const ServiceInfo info_;
  const Binder& binder_;
  SessionManager& sessions_;
  const std::vector<Executor*> executors_;
  // Calls that name themselves and have no session, or end it.
  RequestCache requests_;
};

}  // namespace kernelbox::server
