// A device that runs behind the server, as a GPU does, but computes with the layers' Cpu functions
// on a thread of its own for each stream. A test can hold it still, so that what happens between
// launch and completion can be seen.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/layer.h"
#include "server/backend.h"

namespace kernelbox::server {

// Holds work still. Thread-safe.
class Gate {
 public:
  void Close();
  void Open();
  // Returns when the gate is open.
  void Pass();
  // Lets one thread pass a closed gate, once one is there, and waits until it has.
  void LetOnePass();
  // Waits until `count` threads are held at once.
  void WaitForHeld(int count);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int held_ = 0;
  int may_pass_ = 0;
};

// The registry's layers, with Cuda functions that enqueue their Cpu functions on a stream of
// FakeDevice, or run them there and then if the stream is null; either way they pass `gate`
// first. It is one for the process, as a layer's functions are.
struct FakeLayers {
  static const Layer* Head();
  static Gate& gate();
};

// `asynchronous` or not, kernels pass FakeLayers::gate().
Backend MakeFakeBackend(bool asynchronous);

// Makes the next fence of any FakeDevice report a failure of the device.
void BreakFakeDevices(bool broken);

}  // namespace kernelbox::server
