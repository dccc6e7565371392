// Token and position tables. A gradient is the sum of the rows in their order, added to the table
// once.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"

namespace zl {
namespace {

// kernel:: cannot check ids, because they may be on a GPU.
int64_t checked_id(int32_t id, int64_t V, int64_t row) {
  require(id >= 0 && id < V, "embedding: token id ", id, " of row ", row,
          " is out of range for a table of ", V, " rows");
  return id;
}

}  // namespace

void CpuBackend::embedding(const Tensor& ids, const Tensor& table, const Tensor& y) {
  const int64_t C = y.dim(-1), V = table.rows(), row_bytes = C * size_of(y.dtype());
  const auto id = ids.data<int32_t>();
  const char* from = static_cast<const char*>(table.address());
  char* to = static_cast<char*>(y.address());
  if (C == 0) return;
  in_parallel(int64_t(id.size()), grain_of(C), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::memcpy(to + r * row_bytes, from + checked_id(id[size_t(r)], V, r) * row_bytes,
                  size_t(row_bytes));
  });
}

// The rows of a token are summed in their order, in the compute type, and added to the table's row
// once. So a token that occurs a thousand times is rounded as often as one that occurs once.
// Workspace: for each token the first of its rows, for each row the next one of its token.
void CpuBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                    const Tensor& workspace) {
  constexpr int32_t none = -1;
  const int64_t R = ids.numel(), C = dy.dim(-1), V = dtable.rows();
  const int32_t* id = ids.data<int32_t>().data();
  int32_t* const first = static_cast<int32_t*>(workspace.address());  // (V)
  int32_t* const next = first + V;                                    // (R)
  std::fill_n(first, V, none);
  for (int64_t r = R - 1; r >= 0; --r)
    next[r] = std::exchange(first[checked_id(id[r], V, r)], int32_t(r));
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    constexpr int64_t kChunk = 64;  // [n] sums that stay in registers or the first-level cache
    const T* from = dy.data<T>().data();
    T* to = dtable.data<T>().data();
    in_parallel(C, round_up(grain_of(R), kChunk), [=](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < R; ++r) {
        if (first[id[r]] != r) continue;
        T* const row = to + id[r] * C;
        const T* const only = from + r * C;
        if (next[r] == none) {  // the same sum of one term, in one loop
#pragma omp simd
          for (int64_t c = begin; c < end; ++c) store(row[c], F(row[c]) + (F(0) + F(only[c])));
          continue;
        }
        for (int64_t c = begin; c < end; c += kChunk) {
          const int64_t n = std::min(kChunk, end - c);
          F sum[kChunk] = {};
          for (int64_t same = r; same != none; same = next[same]) {
            const T* term = from + same * C + c;
#pragma omp simd
            for (int64_t i = 0; i < n; ++i) sum[i] += F(term[i]);
          }
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) store(row[c + i], F(row[c + i]) + sum[i]);
        }
      }
    });
  });
}

void CpuBackend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t B = x.dim(0), TC = x.dim(1) * x.dim(2);
    const T* from = x.data<T>().data();
    const T* position = table.data<T>().data();
    T* to = y.data<T>().data();
    in_parallel(TC, grain_of_columns(B), [=](int64_t begin, int64_t end) {
      for (int64_t b = 0; b < B; ++b) {
        const T* in = from + b * TC;
        T* out = to + b * TC;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) store(out[i], F(in[i]) + F(position[i]));
      }
    });
  });
}

// Sums every element over the batch in order, and rounds it to the table's type once.
void CpuBackend::add_positions_backward(const Tensor& dy, const Tensor& dtable, const Tensor&) {
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    constexpr int64_t kChunk = 64;  // [n] sums that stay in registers or the first-level cache
    const int64_t B = dy.dim(0), TC = dy.dim(1) * dy.dim(2);
    const T* from = dy.data<T>().data();
    T* to = dtable.data<T>().data();
    in_parallel(TC, round_up(grain_of(B), kChunk), [=](int64_t begin, int64_t end) {
      for (; begin < end; begin += kChunk) {
        const int64_t n = std::min(kChunk, end - begin);
        F sum[kChunk] = {};
        for (int64_t b = 0; b < B; ++b) {
          const T* row = from + b * TC + begin;
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) sum[i] += F(row[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) store(to[begin + i], F(to[begin + i]) + sum[i]);
      }
    });
  });
}

}  // namespace zl
