// Instructions for tensor cores of compute capability 8.0 and later, as functions. PTX ISA: "Matrix
// Fragments for mma.m16n8k16 with floating point type", ldmatrix, cp.async. The threads of a warp
// call them together. Lane l of the warp is in row g = l / 4 of a fragment and has the neighbouring
// columns t = l % 4 * 2 and t + 1, or those + 8. A pair is two 16-bit elements, the first one low.
#pragma once

#include "tensor/cuda/launch.h"

#ifdef ZEROLAB_CUDA_ON_CPU
#include <mma_on_cpu.h>
#endif

namespace zl::ZEROLAB_CUDA {

// Elements in a word of 32 bits: two of 16 bits, or one that is rounded to TF32.
template <class T>
constexpr int kPerWord = 4 / int(sizeof(T));
// The columns of A in one product of fragments.
template <class T>
constexpr int depth_of = 8 * kPerWord<T>;

// Whether this code is compiled for such a GPU. Older ones get kernels that trap.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr bool kTensorCores = false;
#else
constexpr bool kTensorCores = true;
#endif

#ifndef ZEROLAB_CUDA_ON_CPU

__device__ inline unsigned in_shared(const void* address) {
  return unsigned(__cvta_generic_to_shared(address));
}

// sums += A B for A (16, 16), B (16, 8). The thread has
//   a: A[g][t..], A[g + 8][t..], A[g][t + 8..], A[g + 8][t + 8..]
//   b: B[t..][g], B[t + 8..][g]
//   sums: [g][t], [g][t + 1], [g + 8][t], [g + 8][t + 1]
// In TF32 A is (16, 8) and B (8, 8): with t = l % 4 the thread has
//   a: A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4]
//   b: B[t][g], B[t + 4][g]
template <class T>
__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, float>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices (8, 8) from shared memory. Lane l passes the address of row l % 8 of matrix l / 8
// and gets the pair [g][t..] of each. The transposed form returns [t..][g].
__device__ inline void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(in_shared(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(in_shared(row))
               : "memory");
}

// Starts to copy kBytes (4 or 16) from global to shared memory, or zeros if the source does not
// exist. The copying thread sees them after wait_for_copies, the block after a barrier behind it.
template <int kBytes>
__device__ void start_copy(void* to, const void* from, bool exists) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(in_shared(to)), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(in_shared(to)), "l"(from),
                 "r"(exists ? 4 : 0)
                 : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 2^x with a relative error of 2^-22.
__device__ inline float exp2_approximately(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The pair (low, high), rounded to nearest even.
template <class T>
__device__ uint32_t pair_of(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Rounded to the 10 bits of TF32, to nearest. Without it a tensor core ignores the last bits.
__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// A pair in global memory, at a multiple of 4 bytes.
template <class T>
__device__ uint32_t load_pair(const T* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}
template <class T>
__device__ void store_pair(uint32_t pair, T* to) {
  *reinterpret_cast<uint32_t*>(to) = pair;
}

__device__ inline void trap() { asm volatile("trap;"); }

#endif

// A word of a left factor from global memory, and two neighbouring results to it.
template <class T>
__device__ uint32_t load_word(const T* from) {
  if constexpr (std::is_same_v<T, float>)
    return to_tf32(*from);
  else
    return load_pair(from);
}
template <class T>
__device__ void store_two(float first, float second, T* to) {
  if constexpr (std::is_same_v<T, float>)
    to[0] = first, to[1] = second;
  else
    store_pair(pair_of<T>(first, second), to);
}

}  // namespace zl::ZEROLAB_CUDA
