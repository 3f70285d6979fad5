// The checksum of bulk data: XXH3, 64 bits, seed 0, over pieces as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

// On x86 the library chooses the widest vectors that the machine has: twice as fast as the
// baseline's.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace kernelbox::server {

// Not thread-safe.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }

  void Add(const void* data, size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  uint64_t Value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// A checksum whose pieces are added by whichever thread has the time, in the order of their
// Push. Thread-safe, but for the order of the calls of Push.
class ChecksumQueue {
 public:
  // The next piece. `owner` keeps its bytes until they are added.
  void Push(const void* data, size_t bytes, std::shared_ptr<const void> owner);
  // Adds what was pushed, unless another thread is about it.
  void Work();
  // Calls `done` with the value when all that was pushed is added: from here, or from Work in
  // another thread. Nothing is pushed after this.
  void Finish(std::function<void(uint64_t)> done);

 private:
  struct Piece {
    const void* data;
    size_t bytes;
    std::shared_ptr<const void> owner;
  };

  std::mutex mutex_;
  std::deque<Piece> pieces_;
  bool working_ = false;
  std::function<void(uint64_t)> done_;
  Checksum checksum_;  // of whoever is working
};

}  // namespace kernelbox::server
