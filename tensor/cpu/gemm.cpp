#include "tensor/cpu/gemm.h"

#include <algorithm>

#include <Eigen/Core>

// Eigen's packing routines and micro-kernel are called directly, because its product expressions allocate their
// packing buffers, choose blocks by M and N, and round an element differently at the edges of a matrix than inside it.
// Here the edges are padded with zeros, so that every element takes the same path.
namespace zl {
namespace {

using Index = Eigen::Index;
namespace internal = Eigen::internal;

// Eigen computes column-major results, so it is given C^T = B^T A^T: its left factor is our B, its right one our A.
template <class T>
struct Types {
  using Traits = internal::gebp_traits<T, T>;
  using Result = internal::blas_data_mapper<T, Index, Eigen::ColMajor, Eigen::Unaligned, 1>;
  using Kernel = internal::gebp_kernel<T, T, Index, Result, Traits::mr, Traits::nr, false, false>;
  // The kernel handles columns of C in panels of these widths with one accumulator per element. (It could do
  // narrower ones too, but those split the sum over k in two and so round differently.)
  static constexpr Index kWide = Traits::mr, kNarrow = 2 * Traits::LhsProgress;
  static constexpr Index kRows = Traits::nr;  // rows of C that it handles at once
};

// Packed blocks: rows of A for half of an L2 cache of 1 MiB, columns of B for the L3 cache.
constexpr Index kRowBlock = 256, kColumnBlock = 1536;
// C is zeroed, and edges are computed, in pieces of this many elements of a row.
constexpr Index kChunkPanels = 16, kEdgeRows = 64;

constexpr Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

// How the columns of a block of C are cut: `wide` panels, then up to two narrow ones; `padded` columns in all.
struct Cut {
  Index wide, narrow, padded;
};

template <class T>
Cut cut_columns(Index n) {
  constexpr Index step = Types<T>::Traits::LhsProgress, wide = Types<T>::kWide / step;
  const Index steps = std::max<Index>(2, round_up(n, step) / step);
  if constexpr (wide == 2) return {round_up(steps, 2) / 2, 0, round_up(steps, 2) * step};
  // 3 a + 2 b = steps, with b as small as possible.
  const Index b = (3 - steps % 3) % 3;
  return {(steps - 2 * b) / 3, b, steps * step};
}

template <class T>
Index edge_elements() {
  return std::max(kEdgeRows * Types<T>::kWide, Types<T>::kRows * kChunkPanels * Types<T>::kWide);
}

// Rows or columns that do not fill a panel: element (i, k) stands at from[i * step + k * step_k].
template <class T>
struct Edge {
  const T* from;
  Index step, step_k, have;
};

// Packs them into a panel of `width`, padded with zeros.
template <class T>
void pack_edge(const Edge<T>& edge, Index width, Index depth, T* to) {
  for (Index k = 0; k < depth; ++k) {
    for (Index i = 0; i < width; ++i) to[k * width + i] = i < edge.have ? edge.from[i * edge.step + k * edge.step_k] : T(0);
  }
}

template <class T>
class Product {
  using P = Types<T>;

 public:
  explicit Product(const GemmArguments<T>& g) : g_(g) {
    const Index depth = std::min<Index>(g.k, kDepthBlock);
    packed_a_ = g.workspace;
    packed_b_ = packed_a_ + round_up(round_up(std::min<Index>(g.m, kRowBlock), P::kRows) * depth, 16);
    edge_ = packed_b_ + round_up(cut_columns<T>(std::min<Index>(g.n, kColumnBlock)).padded * depth, 16);
  }

  void run() {
    for (n0_ = 0; n0_ < g_.n; n0_ += kColumnBlock) {
      columns_ = std::min<Index>(kColumnBlock, g_.n - n0_);
      for (k0_ = 0; k0_ < g_.k; k0_ += kDepthBlock) {
        depth_ = std::min<Index>(kDepthBlock, g_.k - k0_);
        pack_b();
        for (m0_ = 0; m0_ < g_.m; m0_ += kRowBlock) {
          rows_ = std::min<Index>(kRowBlock, g_.m - m0_);
          pack_a();
          multiply();
        }
      }
    }
  }

 private:
  template <int Order>
  void pack_b_as(const T* from) {
    using Mapper = internal::const_blas_data_mapper<T, Index, Order>;
    internal::gemm_pack_lhs<T, Index, Mapper, P::Traits::mr, P::Traits::LhsProgress,
                            typename P::Traits::LhsPacket4Packing, Order> pack;
    const bool transposed = Order == Eigen::RowMajor;
    const Index step = transposed ? g_.b.stride : 1, step_k = transposed ? 1 : g_.b.stride;
    const Cut cut = cut_columns<T>(columns_);
    const auto pack_panels = [&](Index begin, Index width, Index count) {
      const Index whole = std::min(count, (columns_ - begin) / width);
      if (whole > 0) pack(packed_b_ + begin * depth_, Mapper(from + begin * step, g_.b.stride), depth_, whole * width);
      if (whole == count) return;  // else the last panel sticks out
      const Index at = begin + whole * width;
      pack_edge<T>({from + at * step, step, step_k, columns_ - at}, width, depth_, packed_b_ + at * depth_);
    };
    pack_panels(0, P::kWide, cut.wide);
    for (Index i = 0; i < cut.narrow; ++i) pack_panels(cut.wide * P::kWide + i * P::kNarrow, P::kNarrow, 1);
  }

  void pack_b() {
    const bool transposed = g_.b.transpose == Transpose::yes;
    const T* from = g_.b.data + (transposed ? n0_ * g_.b.stride + k0_ : k0_ * g_.b.stride + n0_);
    transposed ? pack_b_as<Eigen::RowMajor>(from) : pack_b_as<Eigen::ColMajor>(from);
  }

  template <int Order>
  void pack_a_as(const T* from) {
    using Mapper = internal::const_blas_data_mapper<T, Index, Order>;
    internal::gemm_pack_rhs<T, Index, Mapper, P::Traits::nr, Order> pack;
    const bool transposed = Order == Eigen::RowMajor;
    const Index step = transposed ? 1 : g_.a.stride, step_k = transposed ? g_.a.stride : 1;
    const Index whole = rows_ / P::kRows * P::kRows;
    if (whole > 0) pack(packed_a_, Mapper(from, g_.a.stride), depth_, whole);
    if (whole < rows_) pack_edge<T>({from + whole * step, step, step_k, rows_ - whole}, P::kRows, depth_, packed_a_ + whole * depth_);
  }

  void pack_a() {
    const bool transposed = g_.a.transpose == Transpose::yes;
    const T* from = g_.a.data + (transposed ? k0_ * g_.a.stride + m0_ : m0_ * g_.a.stride + k0_);
    transposed ? pack_a_as<Eigen::RowMajor>(from) : pack_a_as<Eigen::ColMajor>(from);
  }

  // The packed blocks into their block of C, panel group by panel group.
  void multiply() {
    const Cut cut = cut_columns<T>(columns_);
    for (Index i = 0; i < cut.wide; i += kChunkPanels) panels(i * P::kWide, std::min(kChunkPanels, cut.wide - i), P::kWide);
    for (Index i = 0; i < cut.narrow; ++i) panels(cut.wide * P::kWide + i * P::kNarrow, 1, P::kNarrow);
  }

  void panels(Index begin, Index count, Index width) {
    const Index whole = std::min(count, (columns_ - begin) / width), rows = rows_ / P::kRows * P::kRows;
    if (whole > 0) {
      inside(begin, whole * width, rows);
      if (rows < rows_) edge(rows, rows_ - rows, begin, whole * width, whole * width);
    }
    if (whole == count) return;
    const Index at = begin + whole * width;
    for (Index r = 0; r < rows_; r += kEdgeRows) edge(r, std::min(kEdgeRows, rows_ - r), at, columns_ - at, width);
  }

  T* block(Index row, Index column) const { return g_.c + (m0_ + row) * g_.stride_c + n0_ + column; }
  bool overwrites() const { return g_.write == Write::set && k0_ == 0; }

  void inside(Index column, Index columns, Index rows) {
    if (rows == 0) return;
    if (overwrites()) {
      for (Index r = 0; r < rows; ++r) std::fill_n(block(r, column), columns, T(0));
    }
    kernel_(typename P::Result(block(0, column), g_.stride_c), packed_b_ + column * depth_, packed_a_, columns, depth_, rows,
            g_.alpha);
  }

  // A part whose last rows or columns exist only in the padding: computed beside C and copied in.
  void edge(Index row, Index rows, Index column, Index columns, Index width) {
    const Index padded = round_up(rows, P::kRows);
    std::fill_n(edge_, padded * width, T(0));
    if (!overwrites()) {
      for (Index r = 0; r < rows; ++r) std::copy_n(block(row + r, column), columns, edge_ + r * width);
    }
    kernel_(typename P::Result(edge_, width), packed_b_ + column * depth_, packed_a_ + row * depth_, width, depth_, padded,
            g_.alpha);
    for (Index r = 0; r < rows; ++r) std::copy_n(edge_ + r * width, columns, block(row + r, column));
  }

  const GemmArguments<T>& g_;
  T *packed_a_, *packed_b_, *edge_;
  Index m0_ = 0, n0_ = 0, k0_ = 0;               // the current block begins here
  Index rows_ = 0, columns_ = 0, depth_ = 0;     // and is this large
  typename P::Kernel kernel_;
};

}  // namespace

template <class T>
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0 || k == 0) return 0;
  const Index depth = std::min<Index>(k, kDepthBlock);
  return round_up(round_up(std::min<Index>(m, kRowBlock), Types<T>::kRows) * depth, 16) +
         round_up(cut_columns<T>(std::min<Index>(n, kColumnBlock)).padded * depth, 16) + edge_elements<T>();
}

template <class T>
void gemm(const GemmArguments<T>& g) {
  if (g.k == 0 && g.write == Write::set) {
    for (int64_t i = 0; i < g.m; ++i) std::fill_n(g.c + i * g.stride_c, g.n, T(0));
  }
  if (g.m == 0 || g.n == 0 || g.k == 0) return;
  Product<T>(g).run();
}

template int64_t gemm_workspace<float>(int64_t, int64_t, int64_t);
template int64_t gemm_workspace<double>(int64_t, int64_t, int64_t);
template void gemm<float>(const GemmArguments<float>&);
template void gemm<double>(const GemmArguments<double>&);

}  // namespace zl
