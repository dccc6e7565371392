#include "tensor/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/gemm_tile.h"

// Goto & van de Geijn's algorithm (2008, ACM TOMS 34-3). A strip is what one tile needs of A or of
// B. Both are packed, so that the innermost loop reads them in order: a strip of A stays in the
// first-level cache while the strips of a block of B, which is in the second-level cache, pass by.
namespace zl {
namespace {

// Blocks of fp32: a block of B has 384 KiB, for the second-level cache; a block of A 2 MiB, for the
// third-level cache.
constexpr int64_t kColumnBlock = 192, kRowBlock = 1050;
static_assert(kRowBlock % kRows == 0);

// Workspace fits the tiles of every instruction set, so that predicted bytes hold on every machine.
constexpr int64_t kWidest = 32, kMostRows = 14;
static_assert(kWidest % kWidth<float> == 0 && kWidest % kWidth<double> == 0 && kRows <= kMostRows);

// Rows of A as tiles read them, in strips of kRows: the strip of row m begins at data + m *
// row_step. In it, number k of row r is at [r * stride + k], or at [r + k * stride] if it is
// column-major.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  bool column_major;
  int64_t row_step;
};

// A block of C and what it is made of.
template <class T>
struct Block {
  int64_t m, n, depth;
  Rows<T> a;
  const T* b;        // packed
  int64_t packed_k;  // its rows, at least depth
  T* c;
  int64_t stride_c;
  const T* initial;  // null: 0
  int64_t stride_initial;
  T alpha;
  Triangle triangle = Triangle::none;
  int64_t diagonal = 0;
};

template <class T>
void multiply(const Block<T>& g) {
  const auto& tile_of = g.a.column_major ? kTiles<T, true> : kTiles<T, false>;
  for (int64_t m = 0; m < g.m; m += kRows) {
    const int64_t height = std::min(kRows, g.m - m);
    const Tile<T> compute = tile_of[size_t(height - 1)];
    const int64_t reach = std::max<int64_t>(0, g.diagonal + m + height);
    const int64_t columns = g.triangle == Triangle::c ? std::min(g.n, reach) : g.n;
    const int64_t depth = g.triangle == Triangle::a ? std::min(g.depth, reach) : g.depth;
    for (int64_t n = 0; n < columns; n += kWidth<T>) {
      TileJob<T> job{depth, g.a.data + m * g.a.row_step, g.a.stride, g.b + n * g.packed_k};
      job.c = g.c + m * g.stride_c + n;
      job.stride_c = g.stride_c;
      job.initial = g.initial ? g.initial + m * g.stride_initial + n : nullptr;
      job.stride_initial = g.stride_initial;
      job.alpha = g.alpha;
      if (const int64_t have = g.n - n; have < kWidth<T>)
        edge_tile(job, height, have, compute);
      else
        compute(job);
    }
  }
}

// ---- packing ---------------------------------------------------------------------------------

using Quad [[gnu::vector_size(16)]] = float;

// Four rows of four numbers, transposed.
std::array<Quad, 4> transposed(const Quad& a, const Quad& b, const Quad& c, const Quad& d) {
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
             ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7),
             cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
             cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
}

// Packs four numbers of each of four rows, of which the last `missing` do not exist.
template <int64_t width, int64_t missing>
void pack_four(const float* from, int64_t stride, float* to) {
  const float* const last = from + (missing > 0 ? 1 : 3) * stride;  // an even width misses 0 or 2
  const std::array<Quad, 4> columns =
      transposed(load<Quad>(from), load<Quad>(from + stride),
                 load<Quad>(missing > 0 ? from : from + 2 * stride), load<Quad>(last));
  for (int64_t k = 0; k < 4; ++k)
    std::memcpy(to + k * width, &columns[size_t(k)], sizeof(float) * (4 - missing));
}

// A strip: number k of row (of B: column) r comes to [k * width + r]. `have` rows exist, the others
// are zeros. along_k: in memory each row is contiguous along k, `stride` from the next. Otherwise
// each k is contiguous along the rows.
template <class T, int64_t width>
void pack_strip(const T* from, int64_t stride, bool along_k, int64_t have, int64_t depth, T* to) {
  int64_t k = 0;
  if (have == width && !along_k) {
    for (; k < depth; ++k) std::memcpy(to + k * width, from + k * stride, sizeof(T) * width);
  }
  if constexpr (std::is_same_v<T, float>) {
    for (; have == width && along_k && k + 4 <= depth; k += 4) {
      int64_t r = 0;
      for (; r + 4 <= width; r += 4)
        pack_four<width, 0>(from + r * stride + k, stride, to + k * width + r);
      if constexpr (width % 4 > 0)
        pack_four<width, 4 - width % 4>(from + r * stride + k, stride, to + k * width + r);
    }
  }
  const int64_t row_step = along_k ? stride : 1, k_step = along_k ? 1 : stride;
  for (; k < depth; ++k)
    for (int64_t r = 0; r < width; ++r)
      to[k * width + r] = r < have ? from[r * row_step + k * k_step] : T(0);
}

// A factor without the rows before `row` and the columns before `column` of the matrix.
template <class T>
GemmFactor<T> without(GemmFactor<T> f, int64_t row, int64_t column) {
  if (f.transpose == Transpose::yes) std::swap(row, column);
  f.data += row * f.stride + column;
  return f;
}

template <class T>
Rows<T> pack_rows(const GemmFactor<T>& a, int64_t rows, int64_t depth, T* to) {
  const bool transposed = a.transpose == Transpose::yes;
  for (int64_t m = 0; m < rows; m += kRows)
    pack_strip<T, kRows>(without(a, m, 0).data, a.stride, !transposed, std::min(kRows, rows - m),
                         depth, to + m * depth);
  return {to, kRows, true, depth};
}

// Rows in place if tiles can read them fast, otherwise packed: if the distance from row to row
// (column-major: from k to k) is a multiple of 4 KiB, so that they would evict each other from the
// first-level cache.
template <class T>
Rows<T> rows_in_place(const GemmFactor<T>& a, int64_t rows, int64_t depth, T* to) {
  constexpr int64_t kSameSet = 4096;  // [B]
  if (a.stride * int64_t(sizeof(T)) % kSameSet == 0) return pack_rows(a, rows, depth, to);
  const bool column_major = a.transpose == Transpose::yes;
  return {a.data, a.stride, column_major, column_major ? 1 : a.stride};
}

}  // namespace

int64_t packed_elements(int64_t k, int64_t n) { return round_up(n, kWidest) * k; }

int64_t packed_rows_elements(int64_t m, int64_t k) {
  return round_up((std::min(m, kRowBlock) + kMostRows - 1) * std::min(k, kDepthBlock), 16);
}

namespace {

// How threads share a GEMM: each computes a part of the rows of C, or of the columns, whichever are
// more.
struct Split {
  bool by_rows;
  int64_t n, grain;  // [n] rows or columns

  Split(int64_t m, int64_t columns, int64_t k) : by_rows(m >= columns), n(std::max(m, columns)) {
    constexpr double kLeast = 1 << 19;  // multiply-adds: some 10 µs
    grain = double(m) * double(columns) * double(k) < kLeast ? n : kWidest;
  }
  int64_t parts() const { return parallel_parts(n, grain); }
};

int64_t workspace_of_part(int64_t m, int64_t n, int64_t k) {
  return packed_elements(std::min(k, kDepthBlock), std::min(n, kColumnBlock)) +
         packed_rows_elements(m, k);
}

}  // namespace

// Each thread gets the workspace of the whole GEMM, so that a smaller GEMM never needs more.
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0 || k == 0) return 0;
  return Split(m, n, k).parts() * workspace_of_part(m, n, k);
}

template <class T>
void pack(const GemmFactor<T>& b, int64_t k, int64_t n, T* to) {
  const bool transposed = b.transpose == Transpose::yes;
  for (int64_t at = 0; at < n; at += kWidth<T>)
    pack_strip<T, kWidth<T>>(without(b, 0, at).data, b.stride, transposed,
                             std::min(kWidth<T>, n - at), k, to + at * k);
}

template <class T>
void gemm_packed(const PackedGemmArguments<T>& g) {
  int64_t k = 0;
  do {  // at least once: K = 0 sets C to zeros
    const int64_t depth = std::min(kDepthBlock, g.k - k);
    for (int64_t m = 0; m < g.m; m += kRowBlock) {
      const int64_t rows = std::min(kRowBlock, g.m - m);
      T* const c = g.c + m * g.stride_c;
      const bool set = g.write == Write::set && k == 0;
      multiply<T>({rows, g.n, depth, rows_in_place(without(g.a, m, k), rows, depth, g.workspace),
                   g.b + k * kWidth<T>, g.packed_k, c, g.stride_c, set ? nullptr : c, g.stride_c,
                   g.alpha, g.triangle, g.diagonal + m - (g.triangle == Triangle::a ? k : 0)});
    }
    k += kDepthBlock;
  } while (k < g.k);
}

namespace {

// A GEMM on one thread. If C is set, the first block of k starts from the bias or 0, and the others
// start from C.
template <class T>
void gemm_part(const GemmArguments<T>& g) {
  T* const b = g.workspace;
  T* const a = b + packed_elements(std::min(g.k, kDepthBlock), std::min(g.n, kColumnBlock));
  for (int64_t m = 0; m < g.m; m += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, g.m - m);
    int64_t k = 0;
    do {  // at least once
      const int64_t depth = std::min(kDepthBlock, g.k - k);
      const Rows<T> packed = pack_rows(without(g.a, m, k), rows, depth, a);
      const bool set = g.write == Write::set && k == 0;
      for (int64_t n = 0; n < g.n; n += kColumnBlock) {
        const int64_t columns = std::min(kColumnBlock, g.n - n);
        pack(without(g.b, k, n), depth, columns, b);
        T* const c = g.c + m * g.stride_c + n;
        const T* const bias = g.bias ? g.bias + n : nullptr;
        multiply<T>({rows, columns, depth, packed, b, depth, c, g.stride_c, set ? bias : c,
                     set ? 0 : g.stride_c, g.alpha});
      }
      k += depth;
    } while (k < g.k);
  }
}

}  // namespace

template <class T>
void gemm(const GemmArguments<T>& g) {
  if (g.m == 0 || g.n == 0) return;
  const Split split(g.m, g.n, g.k);
  const int64_t each = workspace_of_part(g.m, g.n, g.k);
  in_parallel(split.n, split.grain, [&](int64_t index, int64_t begin, int64_t end) {
    GemmArguments<T> p = g;
    if (g.workspace) p.workspace += index * each;
    if (split.by_rows) {
      p.m = end - begin;
      p.a = without(g.a, begin, 0);
      p.c += begin * g.stride_c;
    } else {
      p.n = end - begin;
      p.b = without(g.b, 0, begin);
      p.c += begin;
      if (g.bias) p.bias += begin;
    }
    gemm_part(p);
  });
}

template void pack<float>(const GemmFactor<float>&, int64_t, int64_t, float*);
template void pack<double>(const GemmFactor<double>&, int64_t, int64_t, double*);
template void gemm_packed<float>(const PackedGemmArguments<float>&);
template void gemm_packed<double>(const PackedGemmArguments<double>&);
template void gemm<float>(const GemmArguments<float>&);
template void gemm<double>(const GemmArguments<double>&);

}  // namespace zl
