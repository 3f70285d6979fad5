#include "server/grpc_status.h"

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/error.h"

namespace kernelbox::server {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const v1::Error error = ToProto(status);
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonName(error.reason()));
  info.set_domain("kernelbox");
  *info.mutable_metadata() = error.metadata();
  if (!error.op().empty()) {
    (*info.mutable_metadata())["op"] = error.op();
    (*info.mutable_metadata())["op_id"] = std::to_string(error.op_id());
  }
  google::rpc::Status details;
  details.set_code(error.code());
  details.set_message(error.message());
  details.add_details()->PackFrom(info);
  // The canonical codes have the same numbers in both.
  return grpc::Status(static_cast<grpc::StatusCode>(error.code()), error.message(),
                      details.SerializeAsString());
}

}  // namespace kernelbox::server
