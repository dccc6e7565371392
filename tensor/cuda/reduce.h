// Adding the ranks' values on a GPU: what dist/reduce.h does for buffers in host memory, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/cuda/cuda_backend.h"

namespace zl::ZEROLAB_CUDA {

constexpr int kMostRanks = 64;  // their addresses travel with the kernel's start

// Elements [begin, end) of every buffer are added in the order of `buffers`; the result goes into the same elements of each
// of `results`, which may be some of the buffers.
struct DeviceReduction {
  std::span<char* const> buffers, results;
  int64_t begin = 0, end = 0;  // [n]
  Dtype dtype = Dtype::f32;
  bool mean = false;  // divided by the number of buffers, once, after adding; not for i32
};

// Runs on the stream of `backend`, whose GPU must reach every buffer; who wrote them must have finished, and whoever reads
// the results waits for the stream. Adds in fp32 (fp64 for f64, modulo 2^32 for i32), then rounds to the type. Throws
// std::invalid_argument for more than kMostRanks and for the mean of i32.
void reduce_on_device(CudaBackend& backend, const DeviceReduction& what);

}  // namespace zl::ZEROLAB_CUDA
