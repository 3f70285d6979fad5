// Errors inside the server: an absl::Status whose payload is a serialized kernelbox.v1.Error, so
// that reason, metadata and the op that failed first travel with it wherever it is kept.
//
// All functions can be called from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kernelbox/v1/errors.pb.h"
#include "kernels/status.h"

namespace kernelbox::server {

using Metadata = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// The canonical code that errors.proto states for `reason`.
absl::StatusCode CodeOf(v1::ErrorReason reason);

// An error of this reason. `message` is one sentence for a person; `metadata` has the keys that
// errors.proto lists for the reason.
absl::Status MakeError(v1::ErrorReason reason, std::string_view message, Metadata metadata = {});

// "<field> must be <expected>, given <given>" with these three as metadata.
absl::Status FieldError(v1::ErrorReason reason, std::string_view field, std::string_view expected,
                        std::string_view given);

absl::Status ServerDraining();

// The error of a kernel function; its status must not be ok.
absl::Status FromKernel(const kernelbox::Status& status);

// Names the op that failed: prefixes the message with "<op>: " and sets op and op_id. An error
// that names an op already is returned as it is: that one failed first.
absl::Status WithOp(const absl::Status& error, uint64_t op_id, std::string_view op);

// The error for the wire. A status without payload becomes INTERNAL.
v1::Error ToProto(const absl::Status& error);

v1::ErrorReason ReasonOf(const absl::Status& error);

// "UNKNOWN_HANDLE": the name that ErrorInfo.reason carries.
std::string ReasonName(v1::ErrorReason reason);

}  // namespace kernelbox::server

// Returns from the calling function when `expression`, an absl::Status, is not ok.
#define KB_RETURN_IF_NOT_OK(expression)                         \
  do {                                                          \
    if (absl::Status kb_error = (expression); !kb_error.ok()) { \
      return kb_error;                                          \
    }                                                           \
  } while (false)
