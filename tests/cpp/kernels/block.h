// Memory on the tested backend, with guard bytes on both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kernelbox::testing {

enum class Backend { kCpu, kCuda };

// The backend that tests run on: cpu, or what --backend or KERNELBOX_TEST_BACKEND says.
Backend TestedBackend();
void SetTestedBackend(Backend backend);
// A CUDA device can be used by this program.
bool CudaAvailable();

// `bytes` of memory. It starts 256-byte aligned and `shift` bytes further.
class Block {
 public:
  // Every byte is `fill` at first.
  Block(Backend backend, size_t bytes, size_t shift, uint8_t fill);
  Block(Block&& other) noexcept;
  Block& operator=(Block&&) = delete;
  ~Block();

  void* data() const;  // null when there are no bytes
  void Write(const void* from);
  std::vector<uint8_t> Read() const;
  // Nothing was written beside it.
  bool GuardsIntact() const;

 private:
  std::vector<uint8_t> ReadAt(size_t offset, size_t bytes) const;

  Backend backend_;
  size_t bytes_;
  size_t before_;  // bytes of guard and shift
  size_t after_;   // bytes of guard
  uint8_t* memory_ = nullptr;
};

}  // namespace kernelbox::testing
