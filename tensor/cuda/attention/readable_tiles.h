// The two matmuls of attention, on tiles in shared memory, in plain C++.
#pragma once

#include "tensor/cuda/attention/kernels.h"

namespace zl::ZEROLAB_CUDA {

// The threads of a block form a square. The kSide threads of a row are neighbours in one warp.
constexpr int kSide = 16;
constexpr int kChunk = 32;  // [n] channels in shared memory at a time
static_assert(kSide * kSide == kThreads);

// The rows and columns of a tile that belong to this thread: every kSide-th.
__device__ inline int row(int i) { return int(threadIdx.x) / kSide + i * kSide; }
__device__ inline int column(int j) { return int(threadIdx.x) % kSide + j * kSide; }

// Shared memory of a block and operations on it. One thread computes each sum, in order.
template <class T, int kHead>
struct Tiles {
  using F = Compute<T>;
  // [n] Queries or keys. Registers hold the output (kRows, kHead); shared memory is 48 KiB.
  static constexpr int kRows = sizeof(F) == 8 || kHead > 128 ? 32 : 64;
  // Blocks that run on one multiprocessor at a time. Without this limit the compiler aims at more.
  static constexpr int kBlocks = kHead > 64 ? 1 : 2;
  static constexpr int kMine = kRows / kSide, kColumns = kHead / kSide,
                       kColumnsOfChunk = kChunk / kSide;
  using Scores = F[kMine][kMine];
  using Output = F[kMine][kColumns];
  // One more column than needed, so that the elements of a column are in different banks.
  F a[kRows][kChunk + 1], b[kRows][kChunk + 1], weights[kRows][kRows + 1];

  __device__ void load(const Matrix<const T>& from, int d, F (&to)[kRows][kChunk + 1]) {
    for (int i = int(threadIdx.x); i < kRows * kChunk; i += kThreads)
      to[i / kChunk][i % kChunk] = from.get(i / kChunk, d + i % kChunk);
  }

  // sums += x y^T for tiles of rows.
  __device__ void add_matmul(const Matrix<const T>& x, const Matrix<const T>& y, Scores& sums) {
    for (int d = 0; d < x.D; d += kChunk) {
      __syncthreads();  // all threads have read the previous chunks and weights
      load(x, d, a);
      load(y, d, b);
      __syncthreads();
      for (int k = 0; k < kChunk; ++k) {
        F of_x[kMine], of_y[kMine];
        for (int i = 0; i < kMine; ++i) of_x[i] = a[row(i)][k], of_y[i] = b[column(i)][k];
        for (int i = 0; i < kMine; ++i) {
          for (int j = 0; j < kMine; ++j) sums[i][j] += of_x[i] * of_y[j];
        }
      }
    }
  }

  // output += w x for a tile of weights and a tile of rows. Call add_matmul between two calls.
  __device__ void add_weighted(const Scores& w, const Matrix<const T>& x, Output& output) {
    for (int i = 0; i < kMine; ++i) {
      for (int j = 0; j < kMine; ++j) weights[row(i)][column(j)] = w[i][j];
    }
#pragma unroll
    for (int chunk = 0; chunk < kHead / kChunk; ++chunk) {
      if (chunk * kChunk >= x.D) break;
      __syncthreads();
      load(x, chunk * kChunk, b);
      __syncthreads();
      for (int k = 0; k < kRows; ++k) {
        F value[kColumnsOfChunk];
        for (int c = 0; c < kColumnsOfChunk; ++c) value[c] = b[k][column(c)];
        for (int i = 0; i < kMine; ++i) {
          const F weight = weights[row(i)][k];
          for (int c = 0; c < kColumnsOfChunk; ++c)
            output[i][chunk * kColumnsOfChunk + c] += weight * value[c];
        }
      }
    }
  }

  // to = output, row i times factor(i).
  template <class Factor>
  __device__ static void store(const Output& output, Factor factor, const Matrix<T>& to) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (row(i) < to.rows && column(c) < to.D)
          to.first[row(i) * to.stride + column(c)] = T(output[i][c] * factor(i));
      }
    }
  }
};

}  // namespace zl::ZEROLAB_CUDA
