// The tiles of GEMM: the innermost loops, and the only code for particular instruction sets.
//
// A tile of C stays in registers while k runs. For each k, a tile of 14 rows loads 14 numbers of A
// and two vectors of B, and makes 28 vector multiply-adds of them. Vectors are the compiler's
// (GCC's vector extension). Missing columns are padded, and missing rows make a shorter tile. So
// all elements take the same operations and are rounded alike.
//
// Only gemm.cpp includes this file. Sizes and strides are [n] elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace zl {
namespace {  // internal linkage: each instruction set has its own tiles

// The number of bytes of a vector, a tile's rows, and a * b + c with one rounding where the machine
// has that. A tile's sums, two vectors of B and one number of A fit into the registers.
#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64, kRows = 14;  // of 32 registers
inline __m512 multiply_add(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
inline __m512d multiply_add(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__FMA__)
constexpr int64_t kVectorBytes = 32, kRows = 6;  // of 16 registers
inline __m256 multiply_add(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256d multiply_add(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#elif defined(__aarch64__)
constexpr int64_t kVectorBytes = 16, kRows = 14;  // of 32 registers
inline float32x4_t multiply_add(float32x4_t a, float32x4_t b, float32x4_t c) {
  return vfmaq_f32(c, a, b);
}
inline float64x2_t multiply_add(float64x2_t a, float64x2_t b, float64x2_t c) {
  return vfmaq_f64(c, a, b);
}
#else
constexpr int64_t kVectorBytes = 16, kRows = 6;  // SSE2: 16 registers, two roundings
template <class V>
V multiply_add(V a, V b, V c) {
  return a * b + c;
}
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
template <class T>
constexpr int64_t kWidth = 2 * kLanes<T>;  // columns of a tile

template <class V, class T>
V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <class V, class T>
void store(const V& v, T* to) {
  std::memcpy(to, &v, sizeof(V));
}
template <class T>
Vector<T> broadcast(T x) {
  return x - Vector<T>{};  // minus 0 keeps every value, -0 too
}

// One tile: c = initial + alpha * a * b.
template <class T>
struct TileJob {
  int64_t depth;
  const T* a;
  int64_t stride_a;  // from row to row; if a is column-major, from k to k
  const T* b;        // a strip: `depth` rows of kWidth
  T* c;
  int64_t stride_c;
  const T* initial;  // null: 0
  int64_t stride_initial;
  T alpha;
};

template <class T, int rows, bool column_major>
void tile(const TileJob<T>& job) {
  using V = Vector<T>;
  V sum[rows][2] = {};
  const T *a = job.a, *b = job.b;
  const int64_t row_step = column_major ? 1 : job.stride_a,
                k_step = column_major ? job.stride_a : 1;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) __builtin_prefetch(job.c + r * job.stride_c, 1);
#pragma GCC unroll 4
  for (int64_t k = 0; k < job.depth; ++k, a += k_step, b += kWidth<T>) {
    const V b0 = load<V>(b), b1 = load<V>(b + kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V left = broadcast(a[r * row_step]);
      sum[r][0] = multiply_add(left, b0, sum[r][0]);
      sum[r][1] = multiply_add(left, b1, sum[r][1]);
    }
  }
  const V alpha = broadcast(job.alpha);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    T* const c = job.c + r * job.stride_c;
    if (job.initial) {
      const T* const initial = job.initial + r * job.stride_initial;
      store(multiply_add(alpha, sum[r][0], load<V>(initial)), c);
      store(multiply_add(alpha, sum[r][1], load<V>(initial + kLanes<T>)), c + kLanes<T>);
    } else {
      store(alpha * sum[r][0], c);
      store(alpha * sum[r][1], c + kLanes<T>);
    }
  }
}

// kTiles[r - 1] computes a tile of r rows.
template <class T>
using Tile = void (*)(const TileJob<T>&);
template <class T, bool column_major, int... i>
constexpr std::array<Tile<T>, sizeof...(i)> tiles(std::integer_sequence<int, i...>) {
  return {tile<T, i + 1, column_major>...};
}
template <class T, bool column_major>
constexpr auto kTiles = tiles<T, column_major>(std::make_integer_sequence<int, kRows>());

// A tile of which only the first `have` columns exist in C: computed in a buffer, then copied.
template <class T>
void edge_tile(TileJob<T> job, int64_t height, int64_t have, Tile<T> compute) {
  T padded[kRows * kWidth<T>] = {};
  T* const c = std::exchange(job.c, padded);
  const int64_t stride_c = std::exchange(job.stride_c, kWidth<T>);
  if (job.initial) {
    for (int64_t r = 0; r < height; ++r)
      std::copy_n(job.initial + r * job.stride_initial, have, padded + r * kWidth<T>);
    job.initial = padded;
    job.stride_initial = kWidth<T>;
  }
  compute(job);
  for (int64_t r = 0; r < height; ++r) std::copy_n(padded + r * kWidth<T>, have, c + r * stride_c);
}

}  // namespace
}  // namespace zl
