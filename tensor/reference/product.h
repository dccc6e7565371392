// The product of two matrices in float or double, which Eigen computes.
//
// Its bits depend on the values and the three sizes alone, not on addresses or threads. Eigen packs
// the factors into memory that it allocates itself, at most 2 MB at a time: the only memory that
// the ledger of a rank does not count.
#pragma once

#include <cstdint>

#include "tensor/backend.h"

namespace zl::reference {

// A view of a matrix that is stored row after row without gaps; const does not protect its
// elements. As a factor it may stand for its transpose.
template <class F>
struct Matrix {
  F* data;
  int64_t rows, columns;  // [n] as stored
  Transpose transpose = Transpose::no;
  F* operator[](int64_t row) const { return data + row * columns; }
};

template <class F>
Matrix<F> transposed(const Matrix<F>& m) {
  return {m.data, m.rows, m.columns, Transpose::yes};
}

// c = a b, or c += a b. Where the inner size is 0, a b is 0. c must not overlap a or b.
template <class F>
void product(const Matrix<F>& a, const Matrix<F>& b, const Matrix<F>& c, Write write = Write::set);

// to = from, each element rounded once to the type of `to`. `n` elements.
template <class From, class To>
void convert(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = To(Compute<To>(Compute<From>(from[i])));
}

}  // namespace zl::reference
