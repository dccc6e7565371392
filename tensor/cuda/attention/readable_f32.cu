#include "tensor/cuda/attention/readable.h"

template struct zl::ZEROLAB_CUDA::ReadableKernels<float>;
