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
  static constexpr int kSteps = kHead / depth_of<T>;
  uint32_t words[kSteps][4];

  __device__ explicit WarpRows(const Matrix<const T>& all) {
    const Matrix<const T> rows = all.from(first_row_of_warp());
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane() / 4 + i % 2 * 8, d = (k * 8 + i / 2 * 4 + lane() % 4) * kPerWord<T>;
        const bool exists = row < rows.rows && d < rows.D;
        words[k][i] = exists ? load_word(rows.first + row * rows.stride + d) : 0;
      }
    }
  }
};

// Scores of the warp's rows with 16 rows of a tile, and sums over tiles for all channels.
using Scores16 = float[2][4];
template <int kHead>
using Sums = float[kHead / 8][4];

// Rounds scores to T as left factors (A): accumulators have the layout of A. In TF32 a factor is 8
// keys, not 16, and has one column where an accumulator has two: columns t and t + 4 of the factor
// are the keys 2t and 2t + 1.
template <class T>
using Weights = uint32_t[16 / depth_of<T>][4];
template <class T>
__device__ void round_weights(const Scores16& scores, Weights<T>& weights) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      weights[0][i] = to_tf32(scores[0][i % 2 * 2 + i / 2]);
      weights[1][i] = to_tf32(scores[1][i % 2 * 2 + i / 2]);
    } else {
      weights[0][i] = pair_of<T>(scores[i / 2][i % 2 * 2], scores[i / 2][i % 2 * 2 + 1]);
    }
  }
}

// Two matrices in shared memory: keys and values, or queries and dy.
template <class T, int kHead>
struct TilePair {
  static constexpr int kRows = 64 * 64 * 2 / (kHead * int(sizeof(T)));  // [n] fits into 48 KiB
  // Rows are 16 bytes longer than needed, so that 8 rows of a column are in different banks.
  static constexpr int kPack = pack_of<T>(), kWidth = kHead + kPack;
  static constexpr int kSteps16 = 16 / depth_of<T>;  // products for 16 rows
  using Element = std::conditional_t<sizeof(T) == 2, uint16_t, float>;
  using Tile = Element[kRows][kWidth];
  alignas(16) Tile tiles[2][2];  // [buffer][matrix]

  // Calls visit(row, d) for the pieces of 16 bytes of a tile that this thread copies.
  template <class Visit>
  __device__ static void for_pieces(Visit visit) {
    constexpr int kPieces = kHead / kPack, kRowsAtOnce = kBlockThreads / kPieces;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce)
      visit(r + int(threadIdx.x) / kPieces, int(threadIdx.x) % kPieces * kPack);
  }

  __device__ static void start_copies(const Matrix<const T>& from, Tile& to) {
    const int rows = from.rows < kRows ? int(from.rows) : kRows;
    for_pieces([&](int row, int d) {
      const bool exists = row < rows && d < from.D;
      const int offset = exists ? row * int(from.stride) + d : 0;
      start_copy<16>(&to[row][d], from.first + offset, exists);
    });
  }

  // Rounds what this thread has copied: tensor cores would cut the last bits off.
  __device__ static void round_copies(Tile& tile) {
    if constexpr (std::is_same_v<T, float>)
      for_pieces([&](int row, int d) {
        for (int i = 0; i < kPack; ++i)
          tile[row][d + i] = __uint_as_float(to_tf32(tile[row][d + i]));
      });
  }

  // Calls compute(buffer, first) for each tile from `begin` to `end`, after start(buffer, first).
  template <class Start, class Compute>
  __device__ void for_tiles(int begin, int end, Start start, Compute compute) {
    start(0, begin);
    int buffer = 0;
    for (int first = begin; first < end; first += kRows, buffer ^= 1) {
      wait_for_copies();
      for (Tile& tile : tiles[buffer]) round_copies(tile);
      __syncthreads();  // all copies of this tile have arrived, and the other buffer is free
      if (first + kRows < end) start(buffer ^ 1, first + kRows);
      compute(buffer, first);
    }
  }

  // scores += a x^T for the 16 rows x of a tile from `row`.
  __device__ static void add_scores(const WarpRows<T, kHead>& a, const Tile& tile, int row,
                                    Scores16& scores) {
    const int from = row + lane() / 16 * 8 + lane() % 8, d = lane() / 8 % 2 * kPack;
#pragma unroll
    for (int k = 0; k < a.kSteps; ++k) {
      uint32_t b[4];
      load_matrices(b, &tile[from][k * 2 * kPack + d]);
      multiply_add<T>(scores[0], a.words[k], b[0], b[1]);
      multiply_add<T>(scores[1], a.words[k], b[2], b[3]);
    }
  }

  // sums += w x for the 16 rows x of a tile from `row`.
  __device__ static void add_weighted(const Scores16& w, const Tile& tile, int row,
                                      Sums<kHead>& sums) {
    Weights<T> weights;
    round_weights<T>(w, weights);
#pragma unroll
    for (int c = 0; c < kHead / 16; ++c) {
      uint32_t b[2][kSteps16][2];
      load_transposed(b, tile, row, 16 * c);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kSteps16; ++j)
          multiply_add<T>(sums[2 * c + half], weights[j], b[half][j][0], b[half][j][1]);
    }
  }

  // The right factors (B) for the weights of 16 rows of a tile, and 16 channels in two halves.
  __device__ static void load_transposed(uint32_t (&b)[2][kSteps16][2], const Tile& tile, int row,
                                         int channel) {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        b[i / 4][i / 2 % 2][i % 2] = __float_as_uint(
            tile[row + i / 2 % 2 * 8 + lane() % 4 * 2 + i % 2][channel + i / 4 * 8 + lane() / 4]);
    } else {
      uint32_t all[4];
      load_matrices_transposed(all, &tile[row + lane() % 16][channel + lane() / 16 * 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i / 2][0][i % 2] = all[i];
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
          store_two<T>(sums[c][i] * f, sums[c][i + 1] * f, to.first + row * to.stride + d);
      }
    }
  }
};

}  // namespace zl::ZEROLAB_CUDA
