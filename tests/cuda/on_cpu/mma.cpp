#include <mma_on_cpu.h>

#include <algorithm>
#include <bit>

namespace zl::cuda_on_cpu {
namespace {

void require_aligned(const void* address, size_t bytes, const char* what) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    throw std::logic_error(std::string(what) + ": an address is not a multiple of " +
                           std::to_string(bytes) + " bytes");
}

// Element (r, c) of each 8x8 matrix is in row r from the address that lane 8 * matrix + r passes.
// Register m of lane l gets element (l / 4, l % 4 * 2) of matrix m and the next one in its row.
void load(uint32_t (&to)[4], const void* row, bool transposed) {
  require_aligned(row, 16, "ldmatrix");
  Offer mine;
  std::memcpy(mine.words.data(), &row, sizeof row);
  const Offers all = offer_to_warp(transposed ? "ldmatrix.trans" : "ldmatrix", mine);
  const unsigned lane = thread_index.x % kWarpThreads;
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned major = lane / 4, minor = lane % 4 * 2 + i;
      const unsigned r = transposed ? minor : major, c = transposed ? major : minor;
      const char* from;
      std::memcpy(&from, all[m * 8 + r]->words.data(), sizeof from);
      std::memcpy(&pair[i], from + c * 2, 2);
    }
    to[m] = uint32_t(pair[0]) | uint32_t(pair[1]) << 16;
  }
}

}  // namespace

void load_matrices(uint32_t (&to)[4], const void* row) { load(to, row, false); }
void load_matrices_transposed(uint32_t (&to)[4], const void* row) { load(to, row, true); }

// The ISA's tables. With groupID = l / 4 and threadID_in_group = l % 4:
//   a_i: row groupID for i < 2 or 4 <= i < 6, else groupID + 8;
//        column threadID_in_group * 2 + (i & 1), + 8 for i >= 4
//   b_i: row threadID_in_group * 2 + (i & 1), + 8 for i >= 2; column groupID
//   c_i: row groupID, + 8 for i >= 2; column threadID_in_group * 2 + (i & 1)
// The 12 numbers of a lane are its a_0 to a_7 and b_0 to b_3.
void multiply_fragments(float (&sums)[4], const std::array<float, 12>& mine) {
  Offer offer;
  std::memcpy(offer.words.data(), mine.data(), sizeof mine);
  const Offers all = offer_to_warp("mma", offer);
  const auto element = [&](unsigned lane, unsigned i) {
    float value;
    std::memcpy(&value, &all[lane]->words[i], sizeof value);
    return value;
  };
  const unsigned lane = thread_index.x % kWarpThreads;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of_group = k % 8 / 2, odd = k % 2, high = k / 8;
      sums[i] += element(row % 8 * 4 + of_group, high * 4 + row / 8 * 2 + odd) *
                 element(column * 4 + of_group, 8 + high * 2 + odd);
    }
  }
}

// The ISA's tables for m16n8k8 in TF32, whose elements have 32 bits: a_i is in row groupID, + 8 for
// odd i, and column threadID_in_group, + 4 for i >= 2; b_i in row threadID_in_group + 4 i, column
// groupID. The 13 low bits of an operand are not read.
void multiply_tf32_fragments(float (&sums)[4], const std::array<uint32_t, 6>& mine) {
  Offer offer;
  std::ranges::copy(mine, offer.words.begin());
  const Offers all = offer_to_warp("mma in TF32", offer);
  const auto element = [&](unsigned lane, unsigned i) {
    return std::bit_cast<float>(all[lane]->words[i] & ~uint32_t(0x1fff));
  };
  const unsigned lane = thread_index.x % kWarpThreads;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 8; ++k)
      sums[i] += element(row % 8 * 4 + k % 4, k / 4 * 2 + row / 8) *
                 element(column * 4 + k % 4, 4 + k / 4);
  }
}

uint32_t to_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::isnan(x) ? bits : (bits + 0x1000) & ~uint32_t(0x1fff);
}

// The bytes may arrive at any time until the wait: NaN before it, and the source is read at the
// end.
void start_copy(const Copy& copy) {
  require_aligned(copy.to, copy.bytes, "cp.async");
  require_aligned(copy.from, copy.bytes, "cp.async");
  std::memset(copy.to, 0xff, copy.bytes);
  copies_of_thread().push_back(copy);
}

void wait_for_copies() {
  for (const Copy& copy : copies_of_thread()) {
    if (copy.exists)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      std::memset(copy.to, 0, copy.bytes);
  }
  copies_of_thread().clear();
}

void trap() { throw std::logic_error("a kernel trapped: it was compiled for an older GPU"); }

}  // namespace zl::cuda_on_cpu
