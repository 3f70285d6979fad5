#include "block.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#ifdef KERNELBOX_CUDA
#include <cuda_runtime.h>
#endif

namespace kernelbox::testing {
namespace {

constexpr size_t kGuard = 256;
constexpr uint8_t kGuardByte = 0xA7;

Backend& Tested() {
  static Backend backend = Backend::kCpu;
  return backend;
}

#ifdef KERNELBOX_CUDA
void Check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

void* Allocate(Backend backend, size_t bytes) {
  if (backend == Backend::kCpu) return std::aligned_alloc(256, bytes);
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes));
  return memory;
}

void Release(Backend backend, void* memory) {
  if (backend == Backend::kCpu) {
    std::free(memory);
  } else {
    cudaFree(memory);
  }
}

void CopyBytes(Backend backend, void* to, const void* from, size_t bytes) {
  if (backend == Backend::kCpu) {
    std::memcpy(to, from, bytes);
  } else {
    Check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  }
}

void FillBytes(Backend backend, void* to, uint8_t value, size_t bytes) {
  if (backend == Backend::kCpu) {
    std::memset(to, value, bytes);
  } else {
    Check(cudaMemset(to, value, bytes));
    Check(cudaDeviceSynchronize());  // the tests' stream does not wait for the default one
  }
}
#else
void* Allocate(Backend, size_t bytes) { return std::aligned_alloc(256, bytes); }
void Release(Backend, void* memory) { std::free(memory); }
void CopyBytes(Backend, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void FillBytes(Backend, void* to, uint8_t value, size_t bytes) { std::memset(to, value, bytes); }
#endif

}  // namespace

Backend TestedBackend() { return Tested(); }
void SetTestedBackend(Backend backend) { Tested() = backend; }

bool CudaAvailable() {
#ifdef KERNELBOX_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return false;
#endif
}

Block::Block(Backend backend, size_t bytes, size_t shift, uint8_t fill)
    : backend_(backend),
      bytes_(bytes),
      before_(kGuard + shift),
      after_((before_ + bytes + kGuard + 255) / 256 * 256 - before_ - bytes),
      memory_(static_cast<uint8_t*>(Allocate(backend, before_ + bytes + after_))) {
  FillBytes(backend, memory_, kGuardByte, before_);
  FillBytes(backend, memory_ + before_, fill, bytes);
  FillBytes(backend, memory_ + before_ + bytes, kGuardByte, after_);
}

Block::Block(Block&& other) noexcept
    : backend_(other.backend_),
      bytes_(other.bytes_),
      before_(other.before_),
      after_(other.after_),
      memory_(std::exchange(other.memory_, nullptr)) {}

Block::~Block() {
  if (memory_ != nullptr) Release(backend_, memory_);
}

void* Block::data() const { return bytes_ == 0 ? nullptr : memory_ + before_; }

void Block::Write(const void* from) {
  if (bytes_ > 0) CopyBytes(backend_, data(), from, bytes_);
}

std::vector<uint8_t> Block::ReadAt(size_t offset, size_t bytes) const {
  std::vector<uint8_t> result(bytes);
  if (bytes > 0) CopyBytes(backend_, result.data(), memory_ + offset, bytes);
  return result;
}

std::vector<uint8_t> Block::Read() const { return ReadAt(before_, bytes_); }

bool Block::GuardsIntact() const {
  return ReadAt(0, before_) == std::vector<uint8_t>(before_, kGuardByte) &&
         ReadAt(before_ + bytes_, after_) == std::vector<uint8_t>(after_, kGuardByte);
}

}  // namespace kernelbox::testing
