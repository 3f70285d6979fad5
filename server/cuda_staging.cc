#include "server/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "absl/strings/str_cat.h"
#include "server/error.h"

namespace kernelbox::server {
namespace {

// Chunks in flight in one transfer: enough to keep the link busy while the host copies one.
constexpr size_t kDepth = 4;

absl::Status Check(const char* what, cudaError_t error) {
  return error == cudaSuccess ? absl::OkStatus() : CudaError(what, error);
}

// What both directions share: a stream of their own and buffers in the order of their use.
class StagedCopy {
 public:
  StagedCopy(StagingPool& pool, cudaStream_t stream) : pool_(pool), stream_(stream) {}
  ~StagedCopy() {
    cudaSetDevice(pool_.device());
    cudaStreamSynchronize(stream_);
    for (const StagingPool::Buffer& buffer : in_flight_) pool_.Release(buffer);
    pool_.ReleaseStream(stream_);
  }
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  absl::Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                    const StagingPool::Buffer& buffer) {
    KB_RETURN_IF_NOT_OK(Check("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, kind, stream_)));
    KB_RETURN_IF_NOT_OK(Check("cudaEventRecord", cudaEventRecord(buffer.done, stream_)));
    return absl::OkStatus();
  }

  absl::Status Wait() { return Check("cudaStreamSynchronize", cudaStreamSynchronize(stream_)); }

  StagingPool& pool() { return pool_; }
  std::deque<StagingPool::Buffer>& in_flight() { return in_flight_; }

 private:
  StagingPool& pool_;
  const cudaStream_t stream_;
  std::deque<StagingPool::Buffer> in_flight_;
};

class StagedCopyToDevice final : public CopyToDevice {
 public:
  StagedCopyToDevice(StagingPool& pool, cudaStream_t stream, void* to)
      : copy_(pool, stream), to_(static_cast<char*>(to)) {}

  absl::Status Append(const void* data, size_t bytes) override {
    cudaSetDevice(copy_.pool().device());
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      absl::StatusOr<StagingPool::Buffer> buffer = NextBuffer();
      if (!buffer.ok()) return buffer.status();
      const size_t part = std::min(bytes, StagingPool::kBufferBytes);
      copy_.in_flight().push_back(*buffer);
      memcpy(buffer->data, from, part);
      KB_RETURN_IF_NOT_OK(copy_.Copy(to_, buffer->data, part, cudaMemcpyHostToDevice, *buffer));
      to_ += part;
      from += part;
      bytes -= part;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    cudaSetDevice(copy_.pool().device());
    return copy_.Wait();
  }

 private:
  // The oldest buffer once the device has done with it, or a further one up to kDepth.
  absl::StatusOr<StagingPool::Buffer> NextBuffer() {
    if (copy_.in_flight().size() < kDepth) return copy_.pool().Acquire();
    const StagingPool::Buffer buffer = copy_.in_flight().front();
    KB_RETURN_IF_NOT_OK(Check("cudaEventSynchronize", cudaEventSynchronize(buffer.done)));
    copy_.in_flight().pop_front();
    return buffer;
  }

  StagedCopy copy_;
  char* to_;
};

class StagedCopyToHost final : public CopyToHost {
 public:
  StagedCopyToHost(StagingPool& pool, cudaStream_t stream, const void* from, size_t bytes,
                   size_t chunk_bytes)
      : copy_(pool, stream),
        from_(static_cast<const char*>(from)),
        remaining_(bytes),
        chunk_(std::min(chunk_bytes, StagingPool::kBufferBytes)) {}

  // Starts copies until kDepth are under way or everything is.
  absl::Status Fill() {
    while (remaining_ > 0 && copy_.in_flight().size() < kDepth) {
      absl::StatusOr<StagingPool::Buffer> buffer = copy_.pool().Acquire();
      if (!buffer.ok()) return buffer.status();
      copy_.in_flight().push_back(*buffer);
      KB_RETURN_IF_NOT_OK(Start(*buffer));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const void>> Next(size_t) override {
    StagingPool& pool = copy_.pool();
    cudaSetDevice(pool.device());
    KB_RETURN_IF_NOT_OK(Fill());
    const StagingPool::Buffer buffer = copy_.in_flight().front();
    KB_RETURN_IF_NOT_OK(Check("cudaEventSynchronize", cudaEventSynchronize(buffer.done)));
    copy_.in_flight().pop_front();
    return std::shared_ptr<const void>(buffer.data,
                                       [&pool, buffer](const void*) { pool.Release(buffer); });
  }

 private:
  absl::Status Start(const StagingPool::Buffer& buffer) {
    const size_t part = std::min(remaining_, chunk_);
    KB_RETURN_IF_NOT_OK(copy_.Copy(buffer.data, from_, part, cudaMemcpyDeviceToHost, buffer));
    from_ += part;
    remaining_ -= part;
    return absl::OkStatus();
  }

  StagedCopy copy_;
  const char* from_;
  size_t remaining_;
  const size_t chunk_;
};

}  // namespace

absl::Status CudaError(const char* what, cudaError_t error) {
  return MakeError(v1::ERROR_REASON_DEVICE_ERROR,
                   absl::StrCat(what, ": ", cudaGetErrorString(error)),
                   {{"device_error", cudaGetErrorName(error)}});
}

StagingPool::~StagingPool() {
  cudaSetDevice(device_);
  for (const Buffer& buffer : idle_) Destroy(buffer);
  for (cudaStream_t stream : idle_streams_) cudaStreamDestroy(stream);
}

absl::StatusOr<StagingPool::Buffer> StagingPool::Acquire() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      const Buffer buffer = idle_.back();
      idle_.pop_back();
      return buffer;
    }
  }
  cudaSetDevice(device_);
  Buffer buffer;
  void* data = nullptr;
  KB_RETURN_IF_NOT_OK(
      Check("cudaHostAlloc", cudaHostAlloc(&data, kBufferBytes, cudaHostAllocPortable)));
  buffer.data = static_cast<char*>(data);
  const cudaError_t error =
      cudaEventCreateWithFlags(&buffer.done, cudaEventDisableTiming | cudaEventBlockingSync);
  if (error != cudaSuccess) {
    cudaFreeHost(data);
    return CudaError("cudaEventCreate", error);
  }
  return buffer;
}

void StagingPool::Release(Buffer buffer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kMaxIdle) {
      idle_.push_back(buffer);
      return;
    }
  }
  Destroy(buffer);
}

void StagingPool::Destroy(Buffer buffer) {
  cudaEventDestroy(buffer.done);
  cudaFreeHost(buffer.data);
}

absl::StatusOr<cudaStream_t> StagingPool::AcquireStream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_streams_.empty()) {
      const cudaStream_t stream = idle_streams_.back();
      idle_streams_.pop_back();
      return stream;
    }
  }
  cudaSetDevice(device_);
  cudaStream_t stream = nullptr;
  KB_RETURN_IF_NOT_OK(
      Check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  return stream;
}

void StagingPool::ReleaseStream(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_streams_.push_back(stream);
}

absl::StatusOr<std::unique_ptr<CopyToDevice>> StartStagedCopyToDevice(StagingPool& pool, void* to) {
  absl::StatusOr<cudaStream_t> stream = pool.AcquireStream();
  if (!stream.ok()) return stream.status();
  return std::make_unique<StagedCopyToDevice>(pool, *stream, to);
}

absl::StatusOr<std::unique_ptr<CopyToHost>> StartStagedCopyToHost(StagingPool& pool,
                                                                  const void* from, size_t bytes,
                                                                  size_t chunk_bytes) {
  absl::StatusOr<cudaStream_t> stream = pool.AcquireStream();
  if (!stream.ok()) return stream.status();
  auto copy = std::make_unique<StagedCopyToHost>(pool, *stream, from, bytes, chunk_bytes);
  KB_RETURN_IF_NOT_OK(copy->Fill());
  return copy;
}

}  // namespace kernelbox::server
