// The outcome of a kernel function: a reason, the field at fault, what was expected and given.
// Plain bytes, so that kernels/ needs neither exceptions nor a library.
#pragma once

#include <cstdint>
#include <cstdio>

namespace kernelbox {

enum class Reason : int32_t {
  kOk = 0,
  kInvalidShape,
  kInvalidDType,
  kInvalidAttribute,
  kMissingField,
  kSizeOverflow,
  kValueOutOfRange,
  kUnsupported,
  kDeviceError,
};

struct [[nodiscard]] Status {
  static constexpr int kTextBytes = 120;

  Reason reason = Reason::kOk;
  char field[48] = "";  // the message's field, with an index for lists: "params[3]"
  char expected[kTextBytes] = "";
  char given[kTextBytes] = "";

  bool ok() const { return reason == Reason::kOk; }

  static Status Ok() { return Status(); }

  // `expected` and `given` are cut to kTextBytes - 1 characters.
  static Status Error(Reason reason, const char* field, const char* expected, const char* given) {
    Status status;
    status.reason = reason;
    snprintf(status.field, sizeof status.field, "%s", field);
    snprintf(status.expected, sizeof status.expected, "%s", expected);
    snprintf(status.given, sizeof status.given, "%s", given);
    return status;
  }
};

}  // namespace kernelbox

// Returns from the calling function when `expression` is not ok.
#define KB_RETURN_IF_ERROR(expression)                                   \
  do {                                                                   \
    if (::kernelbox::Status kb_status = (expression); !kb_status.ok()) { \
      return kb_status;                                                  \
    }                                                                    \
  } while (false)
