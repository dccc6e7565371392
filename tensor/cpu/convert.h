// Copying a matrix into one of another type.
#pragma once

#include "tensor/cpu/compute_threads.h"
#include "tensor/dtype.h"

namespace zl {

// to = from, element by element. Strides are [n] from row to row.
template <class From, class To>
void convert(const From* from, int64_t stride_from, To* to, int64_t stride_to, int64_t rows,
             int64_t columns) {
  in_parallel(rows, grain_of(columns), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const From* x = from + r * stride_from;
      To* y = to + r * stride_to;
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) store(y[c], Compute<To>(x[c]));
    }
  });
}

}  // namespace zl
