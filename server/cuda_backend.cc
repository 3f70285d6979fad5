// NVIDIA GPUs as devices: granules by the driver's virtual memory functions, layers by their Cuda
// function, completion by events.
#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/data_error.h"
#include "kernels/gemm.h"
#include "server/backend.h"
#include "server/cuda_driver.h"
#include "server/cuda_staging.h"
#include "server/error.h"
#include "spdlog/spdlog.h"

namespace kernelbox::server {
namespace {

absl::Status Check(const char* what, cudaError_t error) {
  return error == cudaSuccess ? absl::OkStatus() : CudaError(what, error);
}

cudaStream_t Native(Stream stream) { return static_cast<cudaStream_t>(stream); }

// Events that no fence uses at the moment. Thread-safe.
class EventPool {
 public:
  ~EventPool() {
    for (cudaEvent_t event : idle_) cudaEventDestroy(event);
  }
  absl::StatusOr<cudaEvent_t> Acquire() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        cudaEvent_t event = idle_.back();
        idle_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    KB_RETURN_IF_NOT_OK(
        Check("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    return event;
  }
  void Release(cudaEvent_t event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> idle_;
};

// Words of data errors, in slabs that live as long as the pool. Thread-safe.
class WordPool {
 public:
  ~WordPool() {
    for (const DataErrorWord& slab : slabs_) {
      cudaFree(slab.device);
      cudaFreeHost(slab.host);
    }
  }
  absl::StatusOr<DataErrorWord> Acquire() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) KB_RETURN_IF_NOT_OK(AddSlab());
    const DataErrorWord word = idle_.back();
    idle_.pop_back();
    return word;
  }
  void Release(DataErrorWord word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(word);
  }

 private:
  static constexpr size_t kWordsPerSlab = 1024;

  absl::Status AddSlab() {
    DataErrorWord slab;
    constexpr size_t kBytes = kWordsPerSlab * sizeof(DataError);
    void* host = nullptr;
    void* device = nullptr;
    KB_RETURN_IF_NOT_OK(Check("cudaMalloc", cudaMalloc(&device, kBytes)));
    if (cudaError_t error = cudaHostAlloc(&host, kBytes, cudaHostAllocDefault);
        error != cudaSuccess) {
      cudaFree(device);
      return CudaError("cudaHostAlloc", error);
    }
    slab.device = static_cast<DataError*>(device);
    slab.host = static_cast<DataError*>(host);
    slabs_.push_back(slab);
    for (size_t i = 0; i < kWordsPerSlab; ++i) {
      idle_.push_back({slab.device + i, slab.host + i});
    }
    return absl::OkStatus();
  }

  std::mutex mutex_;
  std::vector<DataErrorWord> idle_;
  std::vector<DataErrorWord> slabs_;
};

class CudaDevice final : public DeviceBackend {
 public:
  CudaDevice(int index, const CudaDriver& driver)
      : index_(index), driver_(driver), staging_(index) {}
  ~CudaDevice() override { Use(); }

  // Reads the device's properties and runs a kernel on it.
  absl::Status Open() {
    KB_RETURN_IF_NOT_OK(Check("cudaSetDevice", cudaSetDevice(index_)));
    cudaDeviceProp properties;
    KB_RETURN_IF_NOT_OK(
        Check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, index_)));
    device_.index = index_;
    device_.multiprocessors = properties.multiProcessorCount;
    device_.compute_capability = properties.major * 10 + properties.minor;
    device_.shared_memory_per_block = properties.sharedMemPerBlockOptin;
    description_.name = properties.name;
    description_.compute_capability = absl::StrCat(properties.major, ".", properties.minor);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    KB_RETURN_IF_NOT_OK(Check("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes)));
    description_.default_memory_limit = free_bytes / 100 * 95;
    absl::StatusOr<DataErrorWord> word = words_.Acquire();
    if (!word.ok()) return word.status();
    // Fails when this build holds no code for the device.
    absl::Status status = SetWord(nullptr, *word, nullptr, nullptr);
    if (status.ok()) status = Synchronize(nullptr);
    words_.Release(*word);
    KB_RETURN_IF_NOT_OK(status);
    kernelbox::Status blas_status;
    device_.blas = LoadBlasLibrary(&blas_status);
    if (device_.blas == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("matrix products need ", blas_status.expected, ": ", blas_status.given));
    }
    return absl::OkStatus();
  }

  const Device& device() const override { return device_; }
  const DeviceDescription& description() const override { return description_; }
  bool asynchronous() const override { return true; }

  absl::StatusOr<void*> ReserveAddresses(size_t bytes) override {
    CUdeviceptr base = 0;
    KB_RETURN_IF_NOT_OK(
        Driver("cuMemAddressReserve", driver_.reserve(&base, bytes, kGranuleBytes, 0, 0)));
    return reinterpret_cast<void*>(base);
  }

  void ReleaseAddresses(void* base, size_t bytes) override {
    LogFailure(Driver("cuMemAddressFree", driver_.release(Address(base), bytes)));
  }

  absl::StatusOr<uint64_t> Map(void* address, size_t bytes) override {
    Use();
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = index_;
    // So that a worker process can be given a session's granules, and only those.
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    if (CUresult result = driver_.create(&handle, bytes, &properties, 0); result != CUDA_SUCCESS) {
      return absl::ResourceExhaustedError(absl::StrCat("cuMemCreate: ", driver_.Describe(result)));
    }
    if (absl::Status status = MapHandle(address, bytes, handle); !status.ok()) {
      LogFailure(Driver("cuMemRelease", driver_.destroy(handle)));
      return status;
    }
    return handle;
  }

  void Unmap(void* address, size_t bytes, uint64_t token) override {
    Use();
    LogFailure(Driver("cuMemUnmap", driver_.unmap(Address(address), bytes)));
    LogFailure(Driver("cuMemRelease", driver_.destroy(token)));
  }

  absl::StatusOr<Stream> CreateStream() override {
    Use();
    cudaStream_t stream = nullptr;
    KB_RETURN_IF_NOT_OK(
        Check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    return Stream(stream);
  }

  void DestroyStream(Stream stream) override {
    Use();
    LogFailure(Check("cudaStreamDestroy", cudaStreamDestroy(Native(stream))));
  }

  absl::Status Synchronize(Stream stream) override {
    Use();
    return Check("cudaStreamSynchronize", cudaStreamSynchronize(Native(stream)));
  }

  absl::StatusOr<Fence> RecordFence(Stream stream) override {
    Use();
    absl::StatusOr<cudaEvent_t> event = events_.Acquire();
    if (!event.ok()) return event.status();
    if (cudaError_t error = cudaEventRecord(*event, Native(stream)); error != cudaSuccess) {
      events_.Release(*event);
      return CudaError("cudaEventRecord", error);
    }
    return reinterpret_cast<Fence>(*event);
  }

  absl::StatusOr<bool> PollFence(Fence fence) override {
    if (fence == 0) return true;
    Use();
    cudaEvent_t event = reinterpret_cast<cudaEvent_t>(fence);
    const cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) return false;
    events_.Release(event);
    KB_RETURN_IF_NOT_OK(Check("cudaEventQuery", error));
    return true;
  }

  absl::Status CopyWithin(Stream stream, void* to, const void* from, size_t bytes) override {
    Use();
    return Check("cudaMemcpyAsync",
                 cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, Native(stream)));
  }

  Status (*FunctionOf(const Layer& layer) const)(const void*, Context&) override {
    return layer.cuda;
  }

  absl::StatusOr<DataErrorWord> AcquireWord() override {
    Use();
    return words_.Acquire();
  }
  void ReleaseWord(DataErrorWord word) override { words_.Release(word); }

  absl::Status SetWord(Stream stream, DataErrorWord word, const DataError* a,
                       const DataError* b) override {
    Use();
    const Status status = device::SetDataError(stream, word.device, a, b);
    return status.ok() ? absl::OkStatus() : FromKernel(status);
  }

  absl::Status FetchWord(Stream stream, DataErrorWord word) override {
    Use();
    return Check("cudaMemcpyAsync", cudaMemcpyAsync(word.host, word.device, sizeof(DataError),
                                                    cudaMemcpyDeviceToHost, Native(stream)));
  }

  absl::StatusOr<std::unique_ptr<CopyToDevice>> StartCopyToDevice(void* to, size_t) override {
    return StartStagedCopyToDevice(staging_, to);
  }
  absl::StatusOr<std::unique_ptr<CopyToHost>> StartCopyToHost(const void* from, size_t bytes,
                                                              size_t chunk_bytes) override {
    return StartStagedCopyToHost(staging_, from, bytes, chunk_bytes);
  }

 private:
  // Makes this the calling thread's device; next to nothing when it is already.
  void Use() const { cudaSetDevice(index_); }

  static CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

  absl::Status Driver(const char* what, CUresult result) const {
    if (result == CUDA_SUCCESS) return absl::OkStatus();
    return MakeError(v1::ERROR_REASON_DEVICE_ERROR,
                     absl::StrCat(what, ": ", driver_.Describe(result)),
                     {{"device_error", driver_.Describe(result)}});
  }

  // For calls that give something back: nobody can do more than know of it.
  static void LogFailure(const absl::Status& status) {
    if (!status.ok()) spdlog::error("{}", std::string(status.message()));
  }

  absl::Status MapHandle(void* address, size_t bytes, CUmemGenericAllocationHandle handle) {
    KB_RETURN_IF_NOT_OK(Driver("cuMemMap", driver_.map(Address(address), bytes, 0, handle, 0)));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = index_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    absl::Status status =
        Driver("cuMemSetAccess", driver_.set_access(Address(address), bytes, &access, 1));
    if (!status.ok()) LogFailure(Driver("cuMemUnmap", driver_.unmap(Address(address), bytes)));
    return status;
  }

  const int index_;
  const CudaDriver driver_;
  Device device_;
  DeviceDescription description_;
  EventPool events_;
  WordPool words_;
  StagingPool staging_;
};

}  // namespace

absl::StatusOr<Backend> MakeCudaBackend() {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
  }
  absl::StatusOr<CudaDriver> driver = CudaDriver::Load();
  if (!driver.ok()) return driver.status();
  Backend backend;
  backend.name = "cuda";
  for (int index = 0; index < count; ++index) {
    auto device = std::make_unique<CudaDevice>(index, *driver);
    // One unusable device would shift the others' indices, so it makes the backend unusable.
    if (absl::Status status = device->Open(); !status.ok()) {
      return absl::UnavailableError(
          absl::StrCat("CUDA device ", index, " is not usable: ", status.message()));
    }
    backend.devices.push_back(std::move(device));
  }
  if (backend.devices.empty()) return absl::UnavailableError("no CUDA device is visible");
  return backend;
}

}  // namespace kernelbox::server
