// What matmul needs beside its operands.
#pragma once

#include "tensor/dtype.h"

namespace zl {

int64_t matmul_workspace(int64_t M, int64_t N, int64_t K, Dtype dtype);  // [B]

}  // namespace zl
