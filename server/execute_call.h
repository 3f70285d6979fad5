// The Execute stream.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "kernelbox/v1/service.pb.h"
#include "server/session_manager.h"

namespace kernelbox::server {

// Starts the stream and gives its reactor, which deletes itself.
//
// The next request is read when the previous one has found room in the session's queue and not
// too many answers wait to be sent. When the client cancels, requests that have not started are
// dropped as if they had never been sent; one that has started runs to its end.
grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* StartExecute(
    SessionManager& sessions);

}  // namespace kernelbox::server
