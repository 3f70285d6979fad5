#include "server/error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace kernelbox::server {
namespace {

constexpr char kPayloadUrl[] = "type.googleapis.com/kernelbox.v1.Error";

void SetPayload(absl::Status& status, const v1::Error& error) {
  status.SetPayload(kPayloadUrl, absl::Cord(error.SerializeAsString()));
}

v1::ErrorReason ReasonOf(kernelbox::Reason reason) {
  switch (reason) {
    case Reason::kInvalidShape:
      return v1::ERROR_REASON_INVALID_SHAPE;
    case Reason::kInvalidDType:
      return v1::ERROR_REASON_INVALID_DTYPE;
    case Reason::kInvalidAttribute:
      return v1::ERROR_REASON_INVALID_ATTRIBUTE;
    case Reason::kMissingField:
      return v1::ERROR_REASON_MISSING_FIELD;
    case Reason::kSizeOverflow:
      return v1::ERROR_REASON_SIZE_OVERFLOW;
    case Reason::kValueOutOfRange:
      return v1::ERROR_REASON_VALUE_OUT_OF_RANGE;
    case Reason::kUnsupported:
      return v1::ERROR_REASON_UNSUPPORTED;
    case Reason::kDeviceError:
      return v1::ERROR_REASON_DEVICE_ERROR;
    case Reason::kOk:
      break;
  }
  return v1::ERROR_REASON_INTERNAL;
}

}  // namespace

absl::StatusCode CodeOf(v1::ErrorReason reason) {
  switch (reason) {
    case v1::ERROR_REASON_SESSION_NOT_FOUND:
    case v1::ERROR_REASON_SERVER_RESTARTED:
    case v1::ERROR_REASON_UNKNOWN_HANDLE:
      return absl::StatusCode::kNotFound;
    case v1::ERROR_REASON_SERVER_DRAINING:
      return absl::StatusCode::kUnavailable;
    case v1::ERROR_REASON_ZERO_HANDLE:
    case v1::ERROR_REASON_INVALID_SHAPE:
    case v1::ERROR_REASON_INVALID_DTYPE:
    case v1::ERROR_REASON_INVALID_ATTRIBUTE:
    case v1::ERROR_REASON_MISSING_FIELD:
    case v1::ERROR_REASON_SIZE_OVERFLOW:
    case v1::ERROR_REASON_INVALID_REQUEST:
      return absl::StatusCode::kInvalidArgument;
    case v1::ERROR_REASON_DUPLICATE_HANDLE:
      return absl::StatusCode::kAlreadyExists;
    case v1::ERROR_REASON_TENSOR_NOT_READY:
    case v1::ERROR_REASON_NO_SUCH_DEVICE:
    case v1::ERROR_REASON_VERSION_MISMATCH:
      return absl::StatusCode::kFailedPrecondition;
    case v1::ERROR_REASON_VALUE_OUT_OF_RANGE:
      return absl::StatusCode::kOutOfRange;
    case v1::ERROR_REASON_UNSUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case v1::ERROR_REASON_SIZE_MISMATCH:
    case v1::ERROR_REASON_CHECKSUM_MISMATCH:
      return absl::StatusCode::kDataLoss;
    case v1::ERROR_REASON_OUT_OF_MEMORY:
    case v1::ERROR_REASON_QUEUE_FULL:
    case v1::ERROR_REASON_TOO_MANY_SESSIONS:
    case v1::ERROR_REASON_TOO_MANY_HANDLES:
      return absl::StatusCode::kResourceExhausted;
    case v1::ERROR_REASON_CANCELLED:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status MakeError(v1::ErrorReason reason, std::string_view message, Metadata metadata) {
  const absl::StatusCode code = CodeOf(reason);
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  v1::Error error;
  error.set_code(static_cast<int>(code));
  error.set_reason(reason);
  error.set_message(std::string(message));
  for (const auto& [key, value] : metadata) {
    (*error.mutable_metadata())[std::string(key)] = std::string(value);
  }
  SetPayload(status, error);
  return status;
}

absl::Status FieldError(v1::ErrorReason reason, std::string_view field, std::string_view expected,
                        std::string_view given) {
  std::string message(field);
  if (!expected.empty()) message.append(" must be ").append(expected);
  if (!given.empty()) message.append(", given ").append(given);
  return MakeError(reason, message, {{"field", field}, {"expected", expected}, {"given", given}});
}

absl::Status ServerDraining() {
  return MakeError(v1::ERROR_REASON_SERVER_DRAINING,
                   "the server is shutting down and takes no new work");
}

absl::Status FromKernel(const kernelbox::Status& status) {
  const v1::ErrorReason reason = ReasonOf(status.reason);
  switch (reason) {
    case v1::ERROR_REASON_DEVICE_ERROR:
      return MakeError(reason, std::string("the device reported: ") + status.given,
                       {{"device_error", status.given}});
    case v1::ERROR_REASON_MISSING_FIELD:
      return MakeError(reason,
                       std::string(status.field) + " is missing" +
                           (status.expected[0] ? std::string(": ") + status.expected : ""),
                       {{"field", status.field}});
    case v1::ERROR_REASON_SIZE_OVERFLOW:
      return MakeError(reason, std::string(status.field) + " is too large: " + status.given,
                       {{"field", status.field}, {"given", status.given}});
    default:
      return FieldError(reason, status.field, status.expected, status.given);
  }
}

absl::Status WithOp(const absl::Status& error, uint64_t op_id, std::string_view op) {
  v1::Error proto = ToProto(error);
  if (!proto.op().empty()) return error;
  proto.set_op(std::string(op));
  proto.set_op_id(op_id);
  proto.set_message(std::string(op) + ": " + proto.message());
  absl::Status status(error.code(), proto.message());
  SetPayload(status, proto);
  return status;
}

v1::Error ToProto(const absl::Status& error) {
  v1::Error proto;
  if (absl::optional<absl::Cord> payload = error.GetPayload(kPayloadUrl);
      payload.has_value() && proto.ParseFromString(std::string(*payload))) {
    return proto;
  }
  proto.set_code(static_cast<int>(error.code()));
  proto.set_reason(v1::ERROR_REASON_INTERNAL);
  proto.set_message(std::string(error.message()));
  return proto;
}

v1::ErrorReason ReasonOf(const absl::Status& error) { return ToProto(error).reason(); }

std::string ReasonName(v1::ErrorReason reason) {
  const std::string& name = v1::ErrorReason_Name(reason);
  if (name.empty()) return "INTERNAL";
  return std::string(absl::StripPrefix(name, "ERROR_REASON_"));
}

}  // namespace kernelbox::server
