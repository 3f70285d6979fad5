// The one place where the server's errors become gRPC's.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace kernelbox::server {

// The status with code, message and, as details, a google.rpc.Status that holds ErrorInfo: the
// reason's name, the domain "kernelbox" and the metadata, to which "op" and "op_id" are added
// when an op failed.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace kernelbox::server
