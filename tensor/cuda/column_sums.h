// Sums over the rows of a matrix: gradients of biases and of the weights of layer norms.
//
// The rows are divided into parts_of_rows parts. In a block, each of 8 warps adds every eighth row
// of a part; then the 8 sums are added in order. A second launch of the same kernel, whose rows are
// the sums of parts, adds the parts. So the order of additions depends on the shape only, and packs
// do not change a bit.
#pragma once

#include "tensor/cuda/launch.h"
#include "tensor/cuda/workspace.h"

namespace zl::ZEROLAB_CUDA {

// kSums sums of each of kPack neighbouring columns.
template <class F, int kSums, int kPack>
using PackSums = F[kSums][kPack];

// A block has one part of the rows and 32 packs of columns. source.add(row, column, sums) adds a
// row's values to the sums; sink.take(part, column, sums) gets the sums of one column.
template <int kSums, int kPack, class F, class Source, class Sink>
__global__ void column_sums_kernel(int64_t rows, int64_t columns, int64_t parts, Source source,
                                   Sink sink) {
  constexpr int kWarps = kThreads / kWarp, kColumns = kWarp * kPack;
  static_assert(kPack <= kWarps);
  __shared__ F of_warp[kWarps][kSums][kPack][kWarp];
  const int warp = int(threadIdx.x) / kWarp;
  const int64_t part = blockIdx.x % parts, first = blockIdx.x / parts * kColumns,
                begin = rows * part / parts, end = rows * (part + 1) / parts,
                mine = first + lane() * kPack;
  PackSums<F, kSums, kPack> sums = {};
  if (mine < columns) {
#pragma unroll 4
    for (int64_t row = begin + warp; row < end; row += kWarps) source.add(row, mine, sums);
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int j = 0; j < kPack; ++j) of_warp[warp][s][j][lane()] = sums[s][j];
  __syncthreads();
  const int j = warp;  // warp j now adds up column j of each pack
  const int64_t column = mine + j;
  if (j >= kPack || column >= columns) return;
  F total[kSums];
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    total[s] = of_warp[0][s][j][lane()];
    for (int w = 1; w < kWarps; ++w) total[s] += of_warp[w][s][j][lane()];
  }
  sink.take(part, column, total);
}

// The sums of parts, (kSums, parts, columns) in the workspace.
template <class F, int kSums>
struct Parts {
  F* sums;
  int64_t parts, columns;
  __device__ F& at(int s, int64_t part, int64_t column) const {
    return sums[(s * parts + part) * columns + column];
  }
  __device__ void take(int64_t part, int64_t column, const F (&total)[kSums]) const {
    for (int s = 0; s < kSums; ++s) at(s, part, column) = total[s];
  }
  __device__ void add(int64_t part, int64_t column, PackSums<F, kSums, 1>& to) const {
    for (int s = 0; s < kSums; ++s) to[s][0] += at(s, part, column);
  }
};

// Buffers to which sums are added, rounded to T once.
template <class T, int kSums>
struct Gradients {
  T* of[kSums];
  __device__ void take(int64_t, int64_t column, const Compute<T> (&total)[kSums]) const {
    for (int s = 0; s < kSums; ++s) of[s][column] = T(Compute<T>(of[s][column]) + total[s]);
  }
};

struct ColumnShape {
  int64_t rows, columns;
  bool packs;  // whether the source has packs of columns
};

// Adds the sums over all rows of `source` to `out`.
template <int kSums, class T, class Source>
void add_column_sums(CudaBackend& backend, const ColumnShape& of, const Source& source,
                     const Gradients<T, kSums>& out, const Tensor& workspace) {
  using F = Compute<T>;
  if (of.columns == 0) return;
  constexpr int kPack = pack_of<T>();
  const int64_t parts = parts_of_rows(of.rows);
  const Parts<F, kSums> sums{elements<F>(workspace), parts, of.columns};
  launch(backend,
         of.packs ? column_sums_kernel<kSums, kPack, F, Source, Parts<F, kSums>>
                  : column_sums_kernel<kSums, 1, F, Source, Parts<F, kSums>>,
         blocks_for(of.columns, kWarp * (of.packs ? kPack : 1)) * parts, kThreads, of.rows,
         of.columns, parts, source, sums);
  launch(backend, column_sums_kernel<kSums, 1, F, Parts<F, kSums>, Gradients<T, kSums>>,
         blocks_for(of.columns, kWarp), kThreads, parts, of.columns, 1, sums, out);
}

}  // namespace zl::ZEROLAB_CUDA
