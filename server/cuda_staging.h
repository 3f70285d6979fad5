// Pinned host memory for transfers, and the two transfers that go through it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "server/backend.h"

namespace kernelbox::server {

// DEVICE_ERROR for a failed runtime call; `what` says which.
absl::Status CudaError(const char* what, cudaError_t error);

// Pinning memory takes milliseconds, so buffers are kept and used again. Thread-safe.
class StagingPool {
 public:
  // The size of every buffer, in bytes; the largest chunk a transfer can have.
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  // A buffer and the event that says when the device has done with it.
  struct Buffer {
    char* data = nullptr;
    cudaEvent_t done = nullptr;
  };

  explicit StagingPool(int device) : device_(device) {}
  // Every buffer is back by now.
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  int device() const { return device_; }

  absl::StatusOr<Buffer> Acquire();
  // The device must not be using the buffer.
  void Release(Buffer buffer);

  // A stream for one transfer.
  absl::StatusOr<cudaStream_t> AcquireStream();
  void ReleaseStream(cudaStream_t stream);

 private:
  static void Destroy(Buffer buffer);

  // Buffers kept when nobody uses them.
  static constexpr size_t kMaxIdle = 64;

  const int device_;
  std::mutex mutex_;
  std::vector<Buffer> idle_;
  std::vector<cudaStream_t> idle_streams_;
};

// The pool outlives them, and what Next gave.
absl::StatusOr<std::unique_ptr<CopyToDevice>> StartStagedCopyToDevice(StagingPool& pool, void* to);
absl::StatusOr<std::unique_ptr<CopyToHost>> StartStagedCopyToHost(StagingPool& pool,
                                                                  const void* from, size_t bytes,
                                                                  size_t chunk_bytes);

}  // namespace kernelbox::server
