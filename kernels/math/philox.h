// The counter-based random number generator Philox4x32-10.
//
// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Ten
// rounds; each multiplies two of the counter's words by constants and mixes the halves of the
// products with the other two words and the key, which grows by a Weyl constant a round.
#pragma once

#include <cstdint>

#include "kernels/math/portable.h"

namespace kernelbox::math {

// Four random words.
struct PhiloxBlock {
  uint32_t lanes[4];
};

KB_HOST_DEVICE PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t a = counter.lanes[0], b = counter.lanes[1], c = counter.lanes[2], d = counter.lanes[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_a = uint64_t{0xD2511F53u} * a;
    const uint64_t product_c = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(product_c >> 32) ^ b ^ key0;
    b = static_cast<uint32_t>(product_c);
    c = static_cast<uint32_t>(product_a >> 32) ^ d ^ key1;
    d = static_cast<uint32_t>(product_a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

// Where a stream of random numbers is: block i of it is Philox4x32 of key `seed` and counter
// `offset` + i.
struct Rng {
  uint64_t seed;
  uint64_t offset;

  KB_HOST_DEVICE PhiloxBlock Block(int64_t i) const {
    const uint64_t counter = offset + static_cast<uint64_t>(i);
    return Philox4x32(
        {{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}},
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }
};

}  // namespace kernelbox::math
