// What the server needs of a device: memory in granules, streams, fences, copies and launches.
// One implementation computes on the host, the other through CUDA; nothing else in the server
// knows which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/layer.h"

namespace kernelbox::server {

// Device memory is mapped in multiples of this many bytes.
inline constexpr size_t kGranuleBytes = size_t{2} << 20;

// Marks a point in a stream. 0 is no fence.
using Fence = uint64_t;

struct DeviceDescription {
  std::string name;
  std::string compute_capability;  // "9.0"; empty on cpu
  // What sessions may hold if no option says otherwise, in bytes.
  size_t default_memory_limit = 0;
};

// Where a layer's kernels report faults in their data: a word in device memory and its copy in
// host memory.
struct DataErrorWord {
  DataError* device = nullptr;
  DataError* host = nullptr;
};

// Copies host bytes to consecutive device addresses. One thread at a time.
class CopyToDevice {
 public:
  virtual ~CopyToDevice() = default;
  // Takes the next `bytes` bytes; `data` may be reused on return. Waits at most for copies that
  // this object started earlier.
  [[nodiscard]] virtual absl::Status Append(const void* data, size_t bytes) = 0;
  // Returns when everything taken is in device memory. The destructor does so too.
  [[nodiscard]] virtual absl::Status Finish() = 0;
};

// Copies consecutive device bytes to the host, some chunks ahead. One thread at a time.
class CopyToHost {
 public:
  virtual ~CopyToHost() = default;
  // The next `bytes` bytes, at most the chunk size given at the start. On cpu they are the
  // tensor's own. Waits at most for copies that this object started earlier.
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<const void>> Next(size_t bytes) = 0;
};

// One device. Functions on streams, words and memory are called by the device's executor thread
// only; copies by any thread.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual const Device& device() const = 0;
  virtual const DeviceDescription& description() const = 0;
  // False when Launch returns only after the layer has run: then streams are null, fences are
  // not needed and data errors come back as Launch's status.
  virtual bool asynchronous() const = 0;

  // Address space without memory behind it.
  [[nodiscard]] virtual absl::StatusOr<void*> ReserveAddresses(size_t bytes) = 0;
  virtual void ReleaseAddresses(void* base, size_t bytes) = 0;
  // Puts memory behind reserved addresses; `bytes` is a multiple of kGranuleBytes. Gives a token
  // for Unmap. Fails with RESOURCE_EXHAUSTED when the device has none left.
  [[nodiscard]] virtual absl::StatusOr<uint64_t> Map(void* address, size_t bytes) = 0;
  // Takes back exactly what one Map gave. The device must not be using it.
  virtual void Unmap(void* address, size_t bytes, uint64_t token) = 0;

  [[nodiscard]] virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual void DestroyStream(Stream stream) = 0;
  // Waits until everything enqueued on the stream has run.
  [[nodiscard]] virtual absl::Status Synchronize(Stream stream) = 0;
  [[nodiscard]] virtual absl::StatusOr<Fence> RecordFence(Stream stream) = 0;
  // True once the stream has passed the fence; the fence is then gone. An error is the device's:
  // it is unusable from then on.
  [[nodiscard]] virtual absl::StatusOr<bool> PollFence(Fence fence) = 0;
  // Enqueues a copy within the device.
  [[nodiscard]] virtual absl::Status CopyWithin(Stream stream, void* to, const void* from,
                                                size_t bytes) = 0;

  // Null if this backend has no kernel for the layer.
  virtual Status (*FunctionOf(const Layer& layer) const)(const void* args, Context& context) = 0;

  [[nodiscard]] virtual absl::StatusOr<DataErrorWord> AcquireWord() = 0;
  // The device must not be using it.
  virtual void ReleaseWord(DataErrorWord word) = 0;
  // Enqueues word = a, b (the first of them that is found, else zero). Either may be null.
  [[nodiscard]] virtual absl::Status SetWord(Stream stream, DataErrorWord word, const DataError* a,
                                             const DataError* b) = 0;
  // Enqueues the copy to word.host.
  [[nodiscard]] virtual absl::Status FetchWord(Stream stream, DataErrorWord word) = 0;

  // The device has passed whatever used the memory before.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<CopyToDevice>> StartCopyToDevice(
      void* to, size_t bytes) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<CopyToHost>> StartCopyToHost(
      const void* from, size_t bytes, size_t chunk_bytes) = 0;
};

struct Backend {
  std::string name;  // "cpu" or "cuda"
  std::vector<std::unique_ptr<DeviceBackend>> devices;
};

Backend MakeCpuBackend();
// UNAVAILABLE with the reason when the server was built without CUDA or finds no usable device.
absl::StatusOr<Backend> MakeCudaBackend();

}  // namespace kernelbox::server
