// Philox4x32-10 written a second time, from the paper, for references.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "array.h"

namespace kernelbox::testing {

// The words of blocks offset, offset + 1, ... one after the other: `count` of them.
inline std::vector<uint32_t> PhiloxWords(uint64_t seed, uint64_t offset, int64_t count) {
  std::vector<uint32_t> words;
  for (uint64_t block = offset; static_cast<int64_t>(words.size()) < count; ++block) {
    std::array<uint64_t, 4> c = {block & 0xffffffff, block >> 32, 0, 0};
    std::array<uint64_t, 2> key = {seed & 0xffffffff, seed >> 32};
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = 0xD2511F53 * c[0];
      const uint64_t p1 = 0xCD9E8D57 * c[2];
      c = {(p1 >> 32) ^ c[1] ^ key[0], p1 & 0xffffffff, (p0 >> 32) ^ c[3] ^ key[1],
           p0 & 0xffffffff};
      key = {(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff};
    }
    for (uint64_t word : c) words.push_back(static_cast<uint32_t>(word));
  }
  words.resize(static_cast<size_t>(count));
  return words;
}

inline std::vector<uint32_t> PhiloxWords(const Array& state, int64_t count) {
  const std::vector<int64_t> values = state.Integers();
  return PhiloxWords(static_cast<uint64_t>(values[0]), static_cast<uint64_t>(values[1]), count);
}

}  // namespace kernelbox::testing
