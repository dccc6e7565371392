// What attention needs beside its operands.
#pragma once

#include "tensor/dtype.h"

namespace zl {

int64_t attention_workspace(int64_t T, int64_t D, Dtype dtype);           // [B]
int64_t attention_backward_workspace(int64_t T, int64_t D, Dtype dtype);  // [B]

}  // namespace zl
