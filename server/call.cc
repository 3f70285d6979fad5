#include "server/call.h"

#include "absl/strings/str_cat.h"

namespace kernelbox::server {

absl::Status QueueFull(const Session& session, size_t ops) {
  const uint64_t limit = session.options().max_queued_ops;
  return MakeError(v1::ERROR_REASON_QUEUE_FULL,
                   absl::StrCat("the session's queue holds at most ", limit,
                                " ops: wait for answers, then send again"),
                   {{"limit", absl::StrCat(limit)}, {"given", absl::StrCat(ops)}});
}

absl::Status SessionClosed(const Session& session) {
  return MakeError(v1::ERROR_REASON_SESSION_NOT_FOUND, "the session was closed",
                   {{"session_id", session.id()}});
}

absl::Status CallCancelled() {
  return MakeError(v1::ERROR_REASON_CANCELLED, "the call was cancelled");
}

absl::Status RequestIdReused(const std::string& request_id) {
  return FieldError(v1::ERROR_REASON_INVALID_REQUEST, "request_id",
                    "one that no call of another kind has used", request_id);
}

}  // namespace kernelbox::server
