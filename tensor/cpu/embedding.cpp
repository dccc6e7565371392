// Token and position tables. Gradients are added to the table in the order of the rows.
#include <algorithm>
#include <cstring>

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
  for (size_t r = 0; r < id.size(); ++r, to += row_bytes)
    std::memcpy(to, from + checked_id(id[r], V, int64_t(r)) * row_bytes, size_t(row_bytes));
}

// A token that occurs k times in a batch is added k times. In bf16 and f16 each of these additions
// rounds, because a sum in fp32 would need a second table. If that matters, use f32 gradients.
void CpuBackend::embedding_backward(const Tensor& ids, const Tensor& dy, const Tensor& dtable,
                                    const Tensor&) {
  for_float_type(dtable.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t C = dy.dim(-1), V = dtable.rows();
    const auto id = ids.data<int32_t>();
    const T* from = dy.data<T>().data();
    T* table = dtable.data<T>().data();
    if (C == 0) return;
    for (size_t r = 0; r < id.size(); ++r, from += C) {
      T* row = table + checked_id(id[r], V, int64_t(r)) * C;
#pragma omp simd
      for (int64_t c = 0; c < C; ++c) store(row[c], F(row[c]) + F(from[c]));
    }
  });
}

void CpuBackend::add_positions(const Tensor& x, const Tensor& table, const Tensor& y) {
  for_float_type(y.dtype(), [&]<class T>(T) {
    using F = Compute<T>;
    const int64_t B = x.dim(0), TC = x.dim(1) * x.dim(2);
    const T* from = x.data<T>().data();
    const T* position = table.data<T>().data();
    T* to = y.data<T>().data();
    for (int64_t b = 0; b < B; ++b, from += TC, to += TC) {
#pragma omp simd
      for (int64_t i = 0; i < TC; ++i) store(to[i], F(from[i]) + F(position[i]));
    }
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
    for (int64_t begin = 0; begin < TC; begin += kChunk) {
      const int64_t n = std::min(kChunk, TC - begin);
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
}

}  // namespace zl
