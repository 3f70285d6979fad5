// The unary calls that do queued work: Run, Free, Describe and Sync.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "kernelbox/v1/service.pb.h"
#include "server/session_manager.h"

namespace kernelbox::server {

// Each starts the call and gives its reactor, which deletes itself. Request and response live
// until then.
grpc::ServerUnaryReactor* StartRun(SessionManager& sessions, const v1::RunRequest& request,
                                   v1::RunResponse& response);
grpc::ServerUnaryReactor* StartFree(SessionManager& sessions, const v1::FreeRequest& request,
                                    v1::FreeResponse& response);
grpc::ServerUnaryReactor* StartDescribe(SessionManager& sessions,
                                        const v1::DescribeRequest& request,
                                        v1::DescribeResponse& response);
grpc::ServerUnaryReactor* StartSync(SessionManager& sessions, const v1::SyncRequest& request,
                                    v1::SyncResponse& response);

}  // namespace kernelbox::server
