// The device that a backend's layers run on in tests.
#pragma once

#include <string>

#include "block.h"
#include "kernels/layer.h"

namespace kernelbox::testing {

class TestDevice {
 public:
  // Made on first use; the process keeps it. For kCuda, CudaAvailable() must hold.
  static TestDevice& Of(Backend backend);

  const Device& device() const { return device_; }
  Stream stream() const { return stream_; }
  // Waits for the stream. Returns "" or what went wrong.
  std::string Finish();

 private:
  explicit TestDevice(Backend backend);

  Device device_;
  Stream stream_ = nullptr;
};

}  // namespace kernelbox::testing
