// The checksum of bulk data: XXH3, 64 bits, seed 0, over pieces as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

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

}  // namespace kernelbox::server
