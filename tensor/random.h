// Counter-based random numbers: a value is a function of (seed, stream, index) alone. So a rank can
// initialise its shard without the full parameter, and the initial values do not depend on the
// number of ranks.
//
// Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "tensor/dtype.h"

namespace zl {

// FNV-1a, 64 bits. Numbers streams by name and hashes weights; the same on every machine.
constexpr uint64_t kFnvOffset = 0xcbf29ce484222325u;
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = kFnvOffset) {
  for (char c : bytes) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

ZL_DEVICE inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                                    std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * counter[0], b = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Random bits of one (seed, stream): four words per block.
struct PhiloxStream {
  uint64_t seed, stream;
  ZL_DEVICE std::array<uint32_t, 4> block(uint64_t index) const {
    return philox4x32(
        {uint32_t(index), uint32_t(index >> 32), uint32_t(seed), uint32_t(seed >> 32)},
        {uint32_t(stream), uint32_t(stream >> 32)});
  }
  // Uniform in [0, 1), 53 bits.
  ZL_DEVICE double uniform(uint64_t index) const {
    const auto w = block(index);
    return double((uint64_t(w[0]) << 21) ^ (w[1] >> 11)) * 0x1p-53;
  }
  // Standard normal numbers 2 * index and 2 * index + 1: Box-Muller in double on one block.
  ZL_DEVICE std::array<double, 2> normal_pair(uint64_t index) const {
    const auto w = block(index);
    // In (0, 1], so that the logarithm is finite.
    const double u = (double((uint64_t(w[0]) << 20) ^ (w[1] >> 12)) + 1.0) * 0x1p-52;
    const double angle = 2 * std::numbers::pi * (double(w[2]) * 0x1p-32);
    const double radius = std::sqrt(-2 * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  ZL_DEVICE double normal(uint64_t index) const { return normal_pair(index / 2)[index % 2]; }
};

}  // namespace zl
