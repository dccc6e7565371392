// What cuda_backend.cu needs to know of matmul.cu.
#pragma once

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

cublasContext* make_blas(CUstream_st* stream);
void drop_blas(cublasContext* blas);

}  // namespace zl::ZEROLAB_CUDA
