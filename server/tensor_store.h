// A session's tensors by handle. Belongs to the device's executor thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kernels/tensor.h"
#include "server/memory.h"

namespace kernelbox::server {

class DataFault;

// Handles from here on are the server's to give; clients choose smaller ones.
inline constexpr uint64_t kFirstServerHandle = uint64_t{1} << 63;

// What a handle holds. Shared by the store and by ops and transfers in flight.
struct StoredTensor {
  enum class State : uint8_t {
    kUploading,
    kReady,
    kFailed,  // `error` says why
  };

  State state = State::kReady;
  // The op that used it last, and whether that op may write to it; see OpRunner.
  bool last_op_writes = false;
  uint64_t last_op = 0;
  Tensor tensor;                   // `data` points into `memory`
  std::shared_ptr<Memory> memory;  // null when there are no bytes
  absl::Status error;
  // On an asynchronous device: what may turn out to have failed, null if nothing can.
  std::shared_ptr<DataFault> fault;
};

class TensorStore {
 public:
  explicit TensorStore(uint64_t max_handles) : max_handles_(max_handles) {}

  // Null when the handle names nothing.
  StoredTensor* Find(uint64_t handle) const {
    const auto found = tensors_.find(handle);
    return found == tensors_.end() ? nullptr : found->second.get();
  }
  std::shared_ptr<StoredTensor> Share(uint64_t handle) const {
    const auto found = tensors_.find(handle);
    return found == tensors_.end() ? nullptr : found->second;
  }

  // Whether a new tensor may take the handle, named `field` in errors: ZERO_HANDLE,
  // INVALID_REQUEST (the server's range), DUPLICATE_HANDLE, TOO_MANY_HANDLES. `adding` handles
  // are about to be taken before this one.
  [[nodiscard]] absl::Status CheckFree(uint64_t handle, const char* field, size_t adding = 0) const;

  // Frees a handle that holds a tensor or an error: ZERO_HANDLE, UNKNOWN_HANDLE, or
  // TENSOR_NOT_READY while an upload fills it. Memory in use by a transfer goes back after that.
  [[nodiscard]] absl::Status Free(uint64_t handle);

  // The handle must be free.
  void Insert(uint64_t handle, std::shared_ptr<StoredTensor> tensor) {
    tensors_.emplace(handle, std::move(tensor));
  }
  void Remove(uint64_t handle) { tensors_.erase(handle); }
  void Clear() { tensors_.clear(); }

  // A free handle of the server's range.
  uint64_t AssignHandle() { return next_server_handle_++; }

  size_t size() const { return tensors_.size(); }

 private:
  const uint64_t max_handles_;
  uint64_t next_server_handle_ = kFirstServerHandle;
  absl::flat_hash_map<uint64_t, std::shared_ptr<StoredTensor>> tensors_;
};

absl::Status ZeroHandle(const char* field);

// Whether a tensor, null if its handle is unknown, can be read: ZERO_HANDLE, UNKNOWN_HANDLE,
// TENSOR_NOT_READY, or the error it holds. `field` names the handle in errors.
[[nodiscard]] absl::Status CheckUsable(const StoredTensor* tensor, const char* field,
                                       uint64_t handle);

}  // namespace kernelbox::server
