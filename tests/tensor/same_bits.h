// Bitwise equality of tensors: NaN equals itself, and -0 differs from 0.
#pragma once

#include <cstring>

#include "tensor/tensor.h"

namespace zl::test {

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.address(), b.address(), size_t(a.bytes())) == 0);
}

}  // namespace zl::test
