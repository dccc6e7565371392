// The functions of tensor/cuda/attention/mma.h on the CPU, with the fragments of the PTX ISA
// ("Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async"). A warp
// exchanges fragments, so that a value in a wrong lane gives a wrong number. What is copied to
// shared memory is NaN until its thread waits.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace zl::cuda_on_cpu {

constexpr unsigned kWarpThreads = 32;

// What a thread passes to the others of its warp.
struct Offer {
  const char* call = "";
  std::array<uint32_t, 12> words{};
};
using Offers = std::array<const Offer*, kWarpThreads>;
// Returns what the threads of the warp pass at this call, until the next; null for threads that the
// block does not have. Throws std::logic_error if they are not all at a call with this very `call`.
Offers offer_to_warp(const char* call, const Offer& mine);

// A copy to shared memory that a thread has started.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool exists;
};
std::vector<Copy>& copies_of_thread();

void multiply_fragments(float (&sums)[4], const std::array<float, 12>& mine);
void multiply_tf32_fragments(float (&sums)[4], const std::array<uint32_t, 6>& mine);
uint32_t to_tf32(float x);
void load_matrices(uint32_t (&to)[4], const void* row);
void load_matrices_transposed(uint32_t (&to)[4], const void* row);
void start_copy(const Copy& copy);
void wait_for_copies();
[[noreturn]] void trap();

template <int kBytes>
void start_copy(void* to, const void* from, bool exists) {
  start_copy({to, from, kBytes, exists});
}

inline float exp2_approximately(float x) { return std::exp2(x); }

template <class T>
uint32_t pair_of(float low, float high) {
  return uint32_t(T(low).bits) | uint32_t(T(high).bits) << 16;
}

template <class T>
uint32_t load_pair(const T* from) {
  uint32_t pair;
  std::memcpy(&pair, from, 4);
  if (reinterpret_cast<uintptr_t>(from) % 4 != 0) throw std::logic_error("a misaligned load");
  return pair;
}
template <class T>
void store_pair(uint32_t pair, T* to) {
  if (reinterpret_cast<uintptr_t>(to) % 4 != 0) throw std::logic_error("a misaligned store");
  std::memcpy(static_cast<void*>(to), &pair, 4);
}

template <class T>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, float>)
    return multiply_tf32_fragments(sums, {a[0], a[1], a[2], a[3], b0, b1});
  else {
    std::array<float, 12> mine;
    const uint32_t pairs[6] = {a[0], a[1], a[2], a[3], b0, b1};
    for (size_t i = 0; i < mine.size(); ++i) {
      T element;
      element.bits = uint16_t(pairs[i / 2] >> (i % 2 * 16));
      mine[i] = float(element);
    }
    multiply_fragments(sums, mine);
  }
}

}  // namespace zl::cuda_on_cpu

inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
