#include "tensor/cuda/attention/tensor_cores.h"

template struct zl::ZEROLAB_CUDA::TensorCoreKernels<float>;
