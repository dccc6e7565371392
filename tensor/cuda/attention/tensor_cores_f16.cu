#include "tensor/cuda/attention/tensor_cores.h"

template struct zl::ZEROLAB_CUDA::TensorCoreKernels<zl::f16>;
