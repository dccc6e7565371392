// Copying a matrix into one of another type.
#pragma once

#include "tensor/dtype.h"

namespace zl {

// to = from, element by element. Strides are [n] from row to row.
template <class From, class To>
void convert(const From* from, int64_t stride_from, To* to, int64_t stride_to, int64_t rows,
             int64_t columns) {
  for (int64_t r = 0; r < rows; ++r, from += stride_from, to += stride_to) {
#pragma omp simd
    for (int64_t c = 0; c < columns; ++c) store(to[c], Compute<To>(from[c]));
  }
}

}  // namespace zl
