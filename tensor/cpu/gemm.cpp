#include "tensor/cpu/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

// Goto & van de Geijn's algorithm (2008, ACM TOMS 34-3). B is packed into panels as wide as a tile
// of C, so that the innermost loop reads it in order. A tile of C stays in registers while k runs.
// It is fast because, for each k, a tile of 14 rows loads 14 numbers of A and two vectors of B, and
// makes 28 vector multiply-adds of them. A is read in place or copied (prepare_rows).
//
// This file uses Eigen's vectors (Eigen 3.4 calls them packets, in a namespace `internal`), but not
// its GEMM, which allocates, chooses blocks by M and N, and rounds an element at the edge of a
// matrix differently from one inside. Here edges are padded: all elements take the same path.
namespace zl {
namespace {

namespace simd = Eigen::internal;

template <class T>
using Packet = typename simd::packet_traits<T>::type;

template <class T>
constexpr int64_t kPacket = simd::unpacket_traits<Packet<T>>::size;

// Rows of a tile of C: its sums, two packets of B and one number of A fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int64_t kRows = 14;  // of 32 registers
#else
constexpr int64_t kRows = 6;  // of 16
#endif
template <class T>
constexpr int64_t kWidth = 2 * kPacket<T>;

// Blocks of fp32: columns of B for the L3 cache, rows of A for half of an L2 cache of 1 MiB.
constexpr int64_t kColumnBlock = 768, kRowBlock = 252;
static_assert(kRowBlock % kRows == 0);

// Workspace fits the tiles of every instruction set, so that predicted bytes hold on every machine.
constexpr int64_t kWidest = 32, kMostRows = 14;
static_assert(kWidest % kWidth<float> == 0 && kWidest % kWidth<double> == 0 && kRows <= kMostRows);

// One tile: c = initial + alpha * a * b.
template <class T>
struct TileJob {
  int64_t depth;
  const T* a;
  int64_t stride_a;  // from row to row; if a is column-major, from k to k
  const T* b;        // a panel: `depth` rows of kWidth
  T* c;
  int64_t stride_c;
  const T* initial;  // null: 0
  int64_t stride_initial;
  T alpha;
};

template <class T, int rows, bool column_major>
void tile(const TileJob<T>& job) {
  using P = Packet<T>;
  P sum[rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sum[r][0] = sum[r][1] = simd::pset1<P>(T(0));
  const T *a = job.a, *b = job.b;
  const int64_t row_step = column_major ? 1 : job.stride_a,
                k_step = column_major ? job.stride_a : 1;
  for (int64_t k = 0; k < job.depth; ++k, a += k_step, b += kWidth<T>) {
    // Each k is in another cache line, and often in another page.
    if constexpr (column_major) __builtin_prefetch(a + 16 * k_step);
    const P b0 = simd::pload<P>(b), b1 = simd::pload<P>(b + kPacket<T>);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const P left = simd::pset1<P>(a[r * row_step]);
      sum[r][0] = simd::pmadd(left, b0, sum[r][0]);
      sum[r][1] = simd::pmadd(left, b1, sum[r][1]);
    }
  }
  const P alpha = simd::pset1<P>(job.alpha);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < 2; ++i) {
      T* to = job.c + r * job.stride_c + i * kPacket<T>;
      if (job.initial) {
        const P initial = simd::ploadu<P>(job.initial + r * job.stride_initial + i * kPacket<T>);
        simd::pstoreu(to, simd::pmadd(alpha, sum[r][i], initial));
      } else {
        simd::pstoreu(to, simd::pmul(alpha, sum[r][i]));
      }
    }
  }
}

// kTiles[r - 1] computes a tile of r rows.
template <class T, bool column_major, int... i>
constexpr std::array<void (*)(const TileJob<T>&), sizeof...(i)> tiles(
    std::integer_sequence<int, i...>) {
  return {tile<T, i + 1, column_major>...};
}
template <class T, bool column_major>
constexpr auto kTiles = tiles<T, column_major>(std::make_integer_sequence<int, kRows>());

// Packs columns [0, have) of a row-major B into a panel, padded with zeros.
template <class T>
void pack_panel(const T* from, int64_t stride, int64_t have, int64_t depth, T* to) {
  using P = Packet<T>;
  for (int64_t k = 0; k < depth; ++k, from += stride, to += kWidth<T>) {
    if (have == kWidth<T>) {
      simd::pstore(to, simd::ploadu<P>(from));
      simd::pstore(to + kPacket<T>, simd::ploadu<P>(from + kPacket<T>));
    } else {
      std::fill(std::copy_n(from, have, to), to + kWidth<T>, T(0));
    }
  }
}

// The same for a B stored as (N, K). Squares of packets are transposed in registers.
template <class T>
void pack_panel_transposed(const T* from, int64_t stride, int64_t have, int64_t depth, T* to) {
  constexpr int64_t P = kPacket<T>;
  const int64_t in_squares = have == kWidth<T> ? depth / P * P : 0;
  for (int64_t k = 0; k < in_squares; k += P) {
    for (int64_t n = 0; n < kWidth<T>; n += P) {
      simd::PacketBlock<Packet<T>, int(P)> square;
      for (int64_t i = 0; i < P; ++i)
        square.packet[i] = simd::ploadu<Packet<T>>(from + (n + i) * stride + k);
      simd::ptranspose(square);
      for (int64_t i = 0; i < P; ++i) simd::pstore(to + (k + i) * kWidth<T> + n, square.packet[i]);
    }
  }
  for (int64_t k = in_squares; k < depth; ++k) {
    for (int64_t n = 0; n < kWidth<T>; ++n)
      to[k * kWidth<T> + n] = n < have ? from[n * stride + k] : T(0);
  }
}

// Rows of A as tiles read them, in groups of kRows. The group of row m begins at data + m *
// row_step. In it, number k of row r is at [r * stride + k], or at [r + k * stride] if it is
// column-major.
template <class T>
struct RowGroups {
  const T* data;
  int64_t stride;
  bool column_major;
  int64_t row_step;
};

// Numbers [k, k + depth) of rows [row, row + rows) of A, in place if tiles can read them fast.
// Otherwise they are copied into `to`: if the distance from row to row (column-major: from k to k)
// is a multiple of 4 KiB, so that they would evict each other from the first-level cache; and if
// column-major groups use less than three quarters of each cache line that they load.
template <class T>
RowGroups<T> prepare_rows(const GemmFactor<T>& a, int64_t row, int64_t k, int64_t rows,
                          int64_t depth, T* to) {
  constexpr int64_t kSameSet = 4096, kLine = 64;  // [B]
  const bool column_major = a.transpose == Transpose::yes;
  const int64_t row_step = column_major ? 1 : a.stride, k_step = column_major ? a.stride : 1;
  const T* from = a.data + row * row_step + k * k_step;
  const bool evict = a.stride * int64_t(sizeof(T)) % kSameSet == 0,
             thin = kRows * int64_t(sizeof(T)) < kLine * 3 / 4;
  if (!evict && !(column_major && thin)) return {from, a.stride, column_major, row_step};
  for (int64_t r = 0; r < rows; r += kRows) {
    const int64_t have = std::min(kRows, rows - r);
    T* group = to + r * depth;
    for (int64_t i = 0; i < depth; ++i, group += kRows) {
      if (column_major && have == kRows)
        std::memcpy(group, from + r + i * k_step, sizeof(T) * kRows);
      else
        for (int64_t j = 0; j < have; ++j) group[j] = from[(r + j) * row_step + i * k_step];
    }
  }
  return {to, kRows, true, depth};
}

// A tile whose last columns are padding, `have` of them are not: computed outside C, then copied.
template <class T>
void edge_tile(TileJob<T> job, int64_t height, int64_t have, void (*compute)(const TileJob<T>&)) {
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

// Rows [row, row + rows) of C, for the block of k that begins at k. The first block starts from the
// bias or 0 if C is set; the others start from C.
template <class T>
void multiply_block(const PackedGemmArguments<T>& g, int64_t row, int64_t rows, int64_t k) {
  const int64_t depth = std::min(kDepthBlock, g.k - k);
  const RowGroups<T> a = prepare_rows(g.a, row, k, rows, depth, g.workspace);
  const auto& tile_of = a.column_major ? kTiles<T, true> : kTiles<T, false>;
  const bool set = g.write == Write::set && k == 0;
  T* const c = g.c + row * g.stride_c;
  const T* const initial = set ? g.bias : c;
  const int64_t stride_initial = set ? 0 : g.stride_c;
  for (int64_t n = 0; n < g.n; n += kWidth<T>) {
    const T* const b = g.b + k * kWidth<T> + n * g.rows;
    const int64_t have = std::min(kWidth<T>, g.n - n);
    for (int64_t m = 0; m < rows; m += kRows) {
      TileJob<T> job{depth, a.data + m * a.row_step, a.stride, b};
      job.c = c + m * g.stride_c + n;
      job.stride_c = g.stride_c;
      job.initial = initial ? initial + m * stride_initial + n : nullptr;
      job.stride_initial = stride_initial;
      job.alpha = g.alpha;
      const int64_t height = std::min(kRows, rows - m);
      const auto compute = tile_of[size_t(height - 1)];
      if (have == kWidth<T>)
        compute(job);
      else
        edge_tile(job, height, have, compute);
    }
  }
}

}  // namespace

int64_t packed_elements(int64_t k, int64_t n) { return round_up(n, kWidest) * k; }

int64_t copied_rows_elements(int64_t m, int64_t k) {
  return round_up((std::min(m, kRowBlock) + kMostRows - 1) * std::min(k, kDepthBlock), 16);
}

int64_t gemm_workspace(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0 || k == 0) return 0;
  return packed_elements(std::min(k, kDepthBlock), std::min(n, kColumnBlock)) +
         copied_rows_elements(m, k);
}

template <class T>
void pack(const GemmFactor<T>& b, int64_t k, int64_t n, T* to) {
  for (int64_t at = 0; at < n; at += kWidth<T>) {
    const int64_t have = std::min(kWidth<T>, n - at);
    if (b.transpose == Transpose::yes)
      pack_panel_transposed(b.data + at * b.stride, b.stride, have, k, to + at * k);
    else
      pack_panel(b.data + at, b.stride, have, k, to + at * k);
  }
}

template <class T>
void gemm_packed(const PackedGemmArguments<T>& g) {
  int64_t k = 0;
  do {  // at least once: K = 0 sets C to zeros or the bias
    for (int64_t m = 0; m < g.m; m += kRowBlock)
      multiply_block(g, m, std::min(kRowBlock, g.m - m), k);
    k += kDepthBlock;
  } while (k < g.k);
}

template <class T>
void gemm(const GemmArguments<T>& g) {
  if (g.m == 0 || g.n == 0) return;
  T* packed = g.workspace;
  T* rest = packed + packed_elements(std::min(g.k, kDepthBlock), std::min(g.n, kColumnBlock));
  for (int64_t n = 0; n < g.n; n += kColumnBlock) {
    const int64_t columns = std::min(kColumnBlock, g.n - n);
    int64_t k = 0;
    do {
      const int64_t depth = std::min(kDepthBlock, g.k - k);
      GemmFactor<T> a = g.a, b = g.b;
      a.data += a.transpose == Transpose::yes ? k * a.stride : k;
      b.data += b.transpose == Transpose::yes ? n * b.stride + k : k * b.stride + n;
      pack(b, depth, columns, packed);
      gemm_packed<T>({g.m, columns, depth, a, packed, depth, g.c + n, g.stride_c,
                      k == 0 ? g.write : Write::add, g.alpha, rest, g.bias ? g.bias + n : nullptr});
      k += depth;
    } while (k < g.k);
  }
}

template void pack<float>(const GemmFactor<float>&, int64_t, int64_t, float*);
template void pack<double>(const GemmFactor<double>&, int64_t, int64_t, double*);
template void gemm_packed<float>(const PackedGemmArguments<float>&);
template void gemm_packed<double>(const PackedGemmArguments<double>&);
template void gemm<float>(const GemmArguments<float>&);
template void gemm<double>(const GemmArguments<double>&);

}  // namespace zl
