// Tiles of attention for tensor cores. A block has 64 rows of queries or of keys, 16 in each warp,
// whose fragments stay in registers. It loops over tiles of the other side in shared memory: while
// it computes with one tile, the next is being copied.
#pragma once

#include <limits>

#include "tensor/cuda/attention/kernels.h"
#include "tensor/cuda/attention/mma.h"

namespace zl::ZEROLAB_CUDA {

constexpr int kBlockThreads = 128, kBlockRows = kBlockThreads / kWarp * 16;
constexpr float kLog2E = 1.4426950408889634f;

__device__ inline int first_row_of_warp() { return int(threadIdx.x) / kWarp * 16; }
// The row of element i of a fragment of sums within the warp's 16, and its column within 8.
__device__ inline int fragment_row(int i) { return lane() / 4 + i / 2 * 8; }
__device__ inline int fragment_column(int i) { return lane() % 4 * 2 + i % 2; }

// The warp's 16 rows of a matrix as factors on the left.
template <class T, int kHead>
struct WarpRows {
  uint32_t pairs[kHead / 16][4];

  __device__ explicit WarpRows(const Matrix<const T>& all) {
    const Matrix<const T> rows = all.from(first_row_of_warp());
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane() / 4 + i % 2 * 8, d = k * 16 + i / 2 * 8 + lane() % 4 * 2;
        const bool exists = row < rows.rows && d < rows.D;
        pairs[k][i] = exists ? load_pair(rows.first + row * rows.stride + d) : 0;
      }
    }
  }
};

// Scores of the warp's rows with 16 rows of a tile, and sums over tiles for all channels.
using Scores16 = float[2][4];
template <int kHead>
using Sums = float[kHead / 8][4];

// Rounds scores to T as the left factor (A) of an mma: accumulators have the layout of A.
template <class T>
__device__ void round_weights(const Scores16& scores, uint32_t (&weights)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    weights[i] = pair_of<T>(scores[i / 2][i % 2 * 2], scores[i / 2][i % 2 * 2 + 1]);
}

// Two matrices in shared memory: keys and values, or queries and dy.
template <class T, int kHead>
struct TilePair {
  static constexpr int kRows = kHead > 64 ? 32 : 64;  // [n] fits into 48 KiB
  // Rows are 16 bytes longer than needed, so that 8 rows of a column are in different banks.
  static constexpr int kWidth = kHead + 8;
  using Tile = uint16_t[kRows][kWidth];
  alignas(16) Tile tiles[2][2];  // [buffer][matrix]

  __device__ static void start_copies(const Matrix<const T>& from, Tile& to) {
    constexpr int kPieces = kHead / 8, kRowsAtOnce = kBlockThreads / kPieces;
    const int rows = from.rows < kRows ? int(from.rows) : kRows;
    const int d = int(threadIdx.x) % kPieces * 8;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      const int row = r + int(threadIdx.x) / kPieces;
      const bool exists = row < rows && d < from.D;
      const int offset = exists ? row * int(from.stride) + d : 0;
      start_copy<16>(&to[row][d], from.first + offset, exists);
    }
  }

  // Calls compute(buffer, first) for each tile from `begin` to `end`, after start(buffer, first).
  template <class Start, class Compute>
  __device__ static void for_tiles(int begin, int end, Start start, Compute compute) {
    start(0, begin);
    int buffer = 0;
    for (int first = begin; first < end; first += kRows, buffer ^= 1) {
      wait_for_copies();
      __syncthreads();  // all copies of this tile have arrived, and the other buffer is free
      if (first + kRows < end) start(buffer ^ 1, first + kRows);
      compute(buffer, first);
    }
  }

  // scores += a x^T for the 16 rows x of a tile from `row`.
  __device__ static void add_scores(const WarpRows<T, kHead>& a, const Tile& tile, int row,
                                    Scores16& scores) {
    const int from = row + lane() / 16 * 8 + lane() % 8, d = lane() / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, &tile[from][k * 16 + d]);
      multiply_add<T>(scores[0], a.pairs[k], b[0], b[1]);
      multiply_add<T>(scores[1], a.pairs[k], b[2], b[3]);
    }
  }

  // sums += w x for the 16 rows x of a tile from `row`.
  __device__ static void add_weighted(const Scores16& w, const Tile& tile, int row,
                                      Sums<kHead>& sums) {
    uint32_t weights[4];
    round_weights<T>(w, weights);
    const int from = row + lane() % 16, d = lane() / 16 * 8;
#pragma unroll
    for (int c = 0; c < kHead / 16; ++c) {
      uint32_t b[4];
      load_matrices_transposed(b, &tile[from][c * 16 + d]);
      multiply_add<T>(sums[2 * c], weights, b[0], b[1]);
      multiply_add<T>(sums[2 * c + 1], weights, b[2], b[3]);
    }
  }

  // to = sums, rows g and g + 8 of the warp times factors.
  __device__ static void store(const Sums<kHead>& sums, float factor, float factor_below,
                               const Matrix<T>& all) {
    const Matrix<T> to = all.from(first_row_of_warp());
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float f = i == 0 ? factor : factor_below;
#pragma unroll
      for (int c = 0; c < kHead / 8; ++c) {
        const int row = fragment_row(i), d = c * 8 + fragment_column(i);
        if (row < to.rows && d < to.D)
          store_pair(pair_of<T>(sums[c][i] * f, sums[c][i + 1] * f),
                     to.first + row * to.stride + d);
      }
    }
  }
};

}  // namespace zl::ZEROLAB_CUDA
