#include "tensor/cuda/workspace.h"

namespace zl {

int64_t cuda_workspace(KernelId kernel, std::span<const int64_t> dims, Dtype dtype) {
  const int64_t statistics = size_of(compute_type(dtype));
  switch (kernel) {
    case KernelId::matmul: return kMatmulWorkspace;
    case KernelId::attention_backward:
      return dims[0] * dims[1] * dims[2] * statistics;  // per query: dy · y
    case KernelId::layer_norm_backward:
      return 2 * layer_norm_parts(dims[0]) * dims[1] * statistics;  // sums of dweight and dbias
    case KernelId::cross_entropy: return dims[0] * statistics;      // the loss of each row
    case KernelId::sum_of_squares: return sums_of_squares(dims[0]) * int64_t(sizeof(double));
    default: return 0;
  }
}

}  // namespace zl
