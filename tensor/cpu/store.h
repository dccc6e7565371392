// Storing the result of a vectorised loop.
#pragma once

#include <type_traits>

#include "tensor/dtype.h"

namespace zl {

// to = T(value). GCC 12 gives up on an `omp simd` loop that assigns a struct, so the 16-bit types
// are assigned through their bits.
template <class T>
inline void store(T& to, Compute<T> value) {
  if constexpr (std::is_floating_point_v<T>)
    to = value;
  else
    to.bits = T(value).bits;
}

}  // namespace zl
