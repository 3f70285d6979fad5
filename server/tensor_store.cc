#include "server/tensor_store.h"

#include "absl/strings/str_cat.h"
#include "server/error.h"

namespace kernelbox::server {

absl::Status ZeroHandle(const char* field) {
  return MakeError(v1::ERROR_REASON_ZERO_HANDLE, absl::StrCat(field, " must be a handle, given 0"),
                   {{"field", field}});
}

absl::Status CheckUsable(const StoredTensor* tensor, const char* field, uint64_t handle) {
  if (tensor == nullptr) {
    if (handle == 0) return ZeroHandle(field);
    return MakeError(v1::ERROR_REASON_UNKNOWN_HANDLE,
                     absl::StrCat(field, ": handle ", handle, " names no tensor of this session"),
                     {{"field", field}, {"handle", absl::StrCat(handle)}});
  }
  switch (tensor->state) {
    case StoredTensor::State::kUploading:
      return MakeError(v1::ERROR_REASON_TENSOR_NOT_READY,
                       absl::StrCat(field, ": the upload of handle ", handle, " has not ended"),
                       {{"field", field}, {"handle", absl::StrCat(handle)}});
    case StoredTensor::State::kFailed:
      return tensor->error;
    case StoredTensor::State::kReady:
      break;
  }
  return absl::OkStatus();
}

absl::Status TensorStore::Free(uint64_t handle) {
  const StoredTensor* tensor = Find(handle);
  const bool has_error = tensor != nullptr && tensor->state == StoredTensor::State::kFailed;
  if (!has_error) KB_RETURN_IF_NOT_OK(CheckUsable(tensor, "handles", handle));
  tensors_.erase(handle);
  return absl::OkStatus();
}

absl::Status TensorStore::CheckFree(uint64_t handle, const char* field, size_t adding) const {
  if (handle == 0) return ZeroHandle(field);
  if (tensors_.contains(handle)) {
    return MakeError(v1::ERROR_REASON_DUPLICATE_HANDLE,
                     absl::StrCat(field, ": handle ", handle, " is in use"),
                     {{"field", field}, {"handle", absl::StrCat(handle)}});
  }
  if (handle >= kFirstServerHandle) {
    return FieldError(v1::ERROR_REASON_INVALID_REQUEST, field, "a handle less than 2^63",
                      absl::StrCat(handle));
  }
  if (tensors_.size() + adding >= max_handles_) {
    return MakeError(
        v1::ERROR_REASON_TOO_MANY_HANDLES,
        absl::StrCat(field, ": the session has ", max_handles_, " handles, the most allowed"),
        {{"limit", absl::StrCat(max_handles_)}});
  }
  return absl::OkStatus();
}

}  // namespace kernelbox::server
