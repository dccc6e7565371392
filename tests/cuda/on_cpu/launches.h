// Counts of what a thread has launched and run on the emulated GPUs.
#pragma once

#include <cstdint>

namespace zl::cuda_on_cpu {

struct Launches {
  int64_t kernels = 0, blocks = 0;
  int64_t vector_accesses = 0;  // of 16 bytes, by kernels that this thread has run
  // Operands and results of products whose rows do not begin at multiples of 16 bytes. cuBLAS then
  // takes slower kernels (its guide, "Tensor Core Usage").
  int64_t unaligned_rows = 0;
  // Sizes above 8 that are not multiples of 8, along which a matrix with such rows is stored:
  // cuBLAS then takes kernels that read single elements (seen on an H100).
  int64_t unaligned_sizes = 0;
  int64_t products = 0;       // by cuBLAS
  int64_t bias_products = 0;  // by cuBLASLt, which added a bias
};
extern constinit thread_local Launches launches;
int64_t pinned_bytes();  // [B] that cudaHostAlloc has given to all threads so far
// Counts a vector access; throws std::logic_error unless the address is a multiple of 16.
void check_vector_access(const void* address);

}  // namespace zl::cuda_on_cpu
