// The host as a device: memory by mmap, layers by their Cpu function, everything done on return.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/backend.h"

namespace kernelbox::server {
namespace {

// 80 % of what this machine, or the container's limit, allows.
size_t DefaultMemoryLimit() {
  size_t bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0 && limit < bytes) bytes = limit;
  }
  return bytes / 10 * 8;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "cpu";
}

class CpuCopyToDevice final : public CopyToDevice {
 public:
  explicit CpuCopyToDevice(void* to) : to_(static_cast<char*>(to)) {}
  absl::Status Append(const void* data, size_t bytes) override {
    memcpy(to_, data, bytes);
    to_ += bytes;
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  char* to_;
};

// Device memory is host memory: nothing is copied.
class CpuCopyToHost final : public CopyToHost {
 public:
  explicit CpuCopyToHost(const void* from) : from_(static_cast<const char*>(from)) {}
  absl::StatusOr<std::shared_ptr<const void>> Next(size_t bytes) override {
    const void* chunk = from_;
    from_ += bytes;
    return std::shared_ptr<const void>(std::shared_ptr<void>(), chunk);
  }

 private:
  const char* from_;
};

class CpuDevice final : public DeviceBackend {
 public:
  CpuDevice() {
    description_.name = CpuName();
    description_.default_memory_limit = DefaultMemoryLimit();
  }

  const Device& device() const override { return device_; }
  const DeviceDescription& description() const override { return description_; }
  bool asynchronous() const override { return false; }

  absl::StatusOr<void*> ReserveAddresses(size_t bytes) override {
    // One granule more, so that the part kept can begin on a granule: huge pages need that.
    void* mapping = mmap(nullptr, bytes + kGranuleBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return Failure("mmap", bytes);
    const uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
    const uintptr_t base = (start + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
    const size_t before = base - start;
    if (before > 0) munmap(mapping, before);
    if (before < kGranuleBytes) {
      munmap(reinterpret_cast<void*>(base + bytes), kGranuleBytes - before);
    }
    madvise(reinterpret_cast<void*>(base), bytes, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(base);
  }
  void ReleaseAddresses(void* base, size_t bytes) override { munmap(base, bytes); }

  absl::StatusOr<uint64_t> Map(void* address, size_t bytes) override {
    if (mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0) return Failure("mprotect", bytes);
    return uint64_t{0};
  }
  void Unmap(void* address, size_t bytes, uint64_t) override {
    madvise(address, bytes, MADV_DONTNEED);
    mprotect(address, bytes, PROT_NONE);
  }

  absl::StatusOr<Stream> CreateStream() override { return Stream(nullptr); }
  void DestroyStream(Stream) override {}
  absl::Status Synchronize(Stream) override { return absl::OkStatus(); }
  absl::StatusOr<Fence> RecordFence(Stream) override { return Fence{0}; }
  absl::StatusOr<bool> PollFence(Fence) override { return true; }
  absl::Status CopyWithin(Stream, void* to, const void* from, size_t bytes) override {
    memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  Status (*FunctionOf(const Layer& layer) const)(const void*, Context&) override {
    return layer.cpu;
  }

  absl::StatusOr<DataErrorWord> AcquireWord() override { return DataErrorWord(); }
  void ReleaseWord(DataErrorWord) override {}
  absl::Status SetWord(Stream, DataErrorWord, const DataError*, const DataError*) override {
    return absl::OkStatus();
  }
  absl::Status FetchWord(Stream, DataErrorWord) override { return absl::OkStatus(); }

  absl::StatusOr<std::unique_ptr<CopyToDevice>> StartCopyToDevice(void* to, size_t) override {
    return std::make_unique<CpuCopyToDevice>(to);
  }
  absl::StatusOr<std::unique_ptr<CopyToHost>> StartCopyToHost(const void* from, size_t,
                                                              size_t) override {
    return std::make_unique<CpuCopyToHost>(from);
  }

 private:
  static absl::Status Failure(const char* call, size_t bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(call, " of ", bytes, " bytes: ", strerror(errno)));
  }

  Device device_;
  DeviceDescription description_;
};

}  // namespace

Backend MakeCpuBackend() {
  Backend backend;
  backend.name = "cpu";
  backend.devices.push_back(std::make_unique<CpuDevice>());
  return backend;
}

}  // namespace kernelbox::server
