#include "tensor/cuda/workspace.h"

namespace zl {

int64_t cuda_workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) {
  const int64_t statistics = size_of(compute_type(dtype));
  switch (kernel) {
    case KernelId::matmul: return kMatmulWorkspace;
    case KernelId::attention_backward:
      return dims[0] * dims[1] * dims[2] * statistics;  // per query: dy · y
    case KernelId::layer_norm_backward:
      return 2 * parts_of_rows(dims[0]) * dims[1] * statistics;  // sums of dweight and dbias
    case KernelId::sum_rows: return parts_of_rows(dims[0]) * dims[1] * statistics;
    case KernelId::cross_entropy: return dims[0] * statistics;  // the loss of each row
    case KernelId::sums_of_squares: {
      int64_t parts = 0;
      for (const int64_t n : dims) parts += parts_of_squares(n);
      return parts * int64_t(sizeof(double));
    }
    default: return 0;
  }
}

}  // namespace zl
