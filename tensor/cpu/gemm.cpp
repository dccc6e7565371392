#include "tensor/cpu/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

// Goto & van de Geijn's algorithm (2008, ACM TOMS 34-3): B is packed into panels as wide as a tile
// of C, so that the innermost loop reads it in order, and a tile stays in registers while k runs.
// Why it is fast: for each k a tile of 14 rows loads 14 numbers of A and two vectors of B and makes
// 28 vector multiply-adds of them. A is read where it lies, along its rows or across them, unless
// that would be slow: see Rows.
//
// Eigen's vectors are used (Eigen 3.4 calls them packets, and internal), not its products: those
// allocate, choose blocks by M and N, and round an element differently at the edges of a matrix
// than inside it. Here the edges are padded, so that every element takes the same path.
namespace zl {
namespace {

namespace simd = Eigen::internal;

template <class T>
using Packet = typename simd::packet_traits<T>::type;

template <class T>
constexpr int64_t kPacket = simd::unpacket_traits<Packet<T>>::size;

// A tile of C: so many rows times two packets. Its sums, two packets of B and one number of A fill
// the registers.
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

// The least that suffices for the tiles of every instruction set, so that predicted bytes hold on
// every machine.
constexpr int64_t kWidest = 32, kMostRows = 14;
static_assert(kWidest % kWidth<float> == 0 && kWidest % kWidth<double> == 0 && kRows <= kMostRows);

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// One tile: c = start + alpha * a * b.
template <class T>
struct TileJob {
  int64_t depth;
  const T* a;
  int64_t stride_a;  // from one row or, across, from one k to the next
  const T* b;        // a panel: `depth` rows of kWidth
  T* c;
  int64_t stride_c;
  const T* start;  // null: 0
  int64_t stride_start;
  T alpha;
};

// across: the numbers of one k stand side by side, else those of one row.
template <class T, int rows, bool across>
void tile(const TileJob<T>& job) {
  using P = Packet<T>;
  P sum[rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sum[r][0] = sum[r][1] = simd::pset1<P>(T(0));
  const T *a = job.a, *b = job.b;
  const int64_t row_step = across ? 1 : job.stride_a, k_step = across ? job.stride_a : 1;
  for (int64_t k = 0; k < job.depth; ++k, a += k_step, b += kWidth<T>) {
    if constexpr (across)
      __builtin_prefetch(a + 16 * k_step);  // each k lies in a line, often a page, of its own
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
      if (job.start) {
        const P start = simd::ploadu<P>(job.start + r * job.stride_start + i * kPacket<T>);
        simd::pstoreu(to, simd::pmadd(alpha, sum[r][i], start));
      } else {
        simd::pstoreu(to, simd::pmul(alpha, sum[r][i]));
      }
    }
  }
}

template <class T, bool across, int... i>
constexpr std::array<void (*)(const TileJob<T>&), sizeof...(i)> tiles(
    std::integer_sequence<int, i...>) {
  return {tile<T, i + 1, across>...};
}
template <class T, bool across>
constexpr auto kTiles = tiles<T, across>(std::make_integer_sequence<int, kRows>());

// Columns [0, have) of a row-major B into a panel, padded with zeros.
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

// The same of a B stored as (N, K): squares of packets are transposed in registers.
template <class T>
void pack_panel_across(const T* from, int64_t stride, int64_t have, int64_t depth, T* to) {
  constexpr int64_t P = kPacket<T>;
  const int64_t whole = have == kWidth<T> ? depth / P * P : 0;
  for (int64_t k = 0; k < whole; k += P) {
    for (int64_t n = 0; n < kWidth<T>; n += P) {
      simd::PacketBlock<Packet<T>, int(P)> square;
      for (int64_t i = 0; i < P; ++i)
        square.packet[i] = simd::ploadu<Packet<T>>(from + (n + i) * stride + k);
      simd::ptranspose(square);
      for (int64_t i = 0; i < P; ++i) simd::pstore(to + (k + i) * kWidth<T> + n, square.packet[i]);
    }
  }
  for (int64_t k = whole; k < depth; ++k) {
    for (int64_t n = 0; n < kWidth<T>; ++n)
      to[k * kWidth<T> + n] = n < have ? from[n * stride + k] : T(0);
  }
}

// Rows of A as tiles read them. The group of kRows rows that begins with row m begins at data + m *
// row_step; in it, number k of row r stands at [r * stride + k] or, across, at [r + k * stride].
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  bool across;
  int64_t row_step;

  static Rows of(const GemmFactor<T>& a, int64_t row, int64_t k, int64_t rows, int64_t depth,
                 T* to) {
    const bool across = a.transpose == Transpose::yes;
    const T* from = a.data + (across ? k * a.stride + row : row * a.stride + k);
    const int64_t row_step = across ? 1 : a.stride, k_step = across ? a.stride : 1;
    // Copied are rows (or, across, numbers of one row) whose distance is a multiple of 4 KiB: they
    // would evict each other from the first cache. And, across, groups that use less than three
    // quarters of each cache line that they load.
    constexpr int64_t kSameSet = 4096, kLine = 64;  // [B]
    const bool evict = a.stride * int64_t(sizeof(T)) % kSameSet == 0,
               thin = kRows * int64_t(sizeof(T)) < kLine * 3 / 4;
    if (!evict && !(across && thin)) return {from, a.stride, across, row_step};
    for (int64_t r = 0; r < rows; r += kRows) {
      const int64_t have = std::min(kRows, rows - r);
      T* group = to + r * depth;
      for (int64_t i = 0; i < depth; ++i, group += kRows) {
        if (across && have == kRows)
          std::memcpy(group, from + r + i * k_step, sizeof(T) * kRows);
        else
          for (int64_t j = 0; j < have; ++j) group[j] = from[(r + j) * row_step + i * k_step];
      }
    }
    return {to, kRows, true, depth};
  }
};

// What a block of rows of C starts from: itself, a bias, or nothing.
template <class T>
struct Start {
  const T* data;
  int64_t stride;
  Start at(int64_t row, int64_t column) const {
    return {data ? data + row * stride + column : nullptr, stride};
  }
};

// C (rows, columns) from one block of k. `panels` are of B, `panel_rows` rows each, from the
// block's first row on.
template <class T>
struct Block {
  int64_t rows, columns, depth;
  Rows<T> a;
  const T* panels;
  int64_t panel_rows;
  T* c;
  int64_t stride_c;
  Start<T> start;
  T alpha;

  void run() const {
    const auto& tile_of = a.across ? kTiles<T, true> : kTiles<T, false>;
    for (int64_t n = 0; n < columns; n += kWidth<T>) {
      const T* b = panels + n * panel_rows;
      const int64_t have = std::min(kWidth<T>, columns - n);
      for (int64_t m = 0; m < rows; m += kRows) {
        const int64_t height = std::min(kRows, rows - m);
        const Start<T> from = start.at(m, n);
        const TileJob<T> job{depth,
                             a.data + m * a.row_step,
                             a.stride,
                             b,
                             c + m * stride_c + n,
                             stride_c,
                             from.data,
                             from.stride,
                             alpha};
        if (have == kWidth<T>)
          tile_of[size_t(height - 1)](job);
        else
          edge(job, height, have, tile_of[size_t(height - 1)]);
      }
    }
  }

  // A tile whose last columns exist only in the padding: computed beside C and copied in.
  static void edge(TileJob<T> job, int64_t height, int64_t have,
                   void (*compute)(const TileJob<T>&)) {
    T beside[kRows * kWidth<T>] = {};
    T* const c = std::exchange(job.c, beside);
    const int64_t stride_c = std::exchange(job.stride_c, kWidth<T>);
    if (job.start) {
      for (int64_t r = 0; r < height; ++r)
        std::copy_n(job.start + r * job.stride_start, have, beside + r * kWidth<T>);
      job.start = beside, job.stride_start = kWidth<T>;
    }
    compute(job);
    for (int64_t r = 0; r < height; ++r)
      std::copy_n(beside + r * kWidth<T>, have, c + r * stride_c);
  }
};

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
  const bool across = b.transpose == Transpose::yes;
  for (int64_t at = 0; at < n; at += kWidth<T>) {
    const int64_t have = std::min(kWidth<T>, n - at);
    if (across)
      pack_panel_across(b.data + at * b.stride, b.stride, have, k, to + at * k);
    else
      pack_panel(b.data + at, b.stride, have, k, to + at * k);
  }
}

template <class T>
void gemm_packed(const PackedGemmArguments<T>& g) {
  // Once even if K is 0, which sets C to zeros or the bias.
  int64_t k = 0;
  do {
    const int64_t depth = std::min(kDepthBlock, g.k - k);
    const bool first = g.write == Write::set && k == 0;
    for (int64_t m = 0; m < g.m; m += kRowBlock) {
      const int64_t rows = std::min(kRowBlock, g.m - m);
      T* c = g.c + m * g.stride_c;
      const Start<T> start = first ? Start<T>{g.bias, 0} : Start<T>{c, g.stride_c};
      Block<T>{rows,
               g.n,
               depth,
               Rows<T>::of(g.a, m, k, rows, depth, g.workspace),
               g.b + k * kWidth<T>,
               g.rows,
               c,
               g.stride_c,
               start,
               g.alpha}
          .run();
    }
    k += depth;
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
      const bool b_across = g.b.transpose == Transpose::yes,
                 a_across = g.a.transpose == Transpose::yes;
      GemmFactor<T> a = g.a, b = g.b;
      a.data += a_across ? k * a.stride : k;
      b.data += b_across ? n * b.stride + k : k * b.stride + n;
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
