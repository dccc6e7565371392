// The kernels of a training step of GPT-2, at its shapes, each alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/kernels.h"

namespace zl::cli {

// Of GPT-2 124M, but for the number of rows.
struct KernelSizes {
  int64_t rows = 1024;    // B·T
  int64_t window = 1024;  // T; divides rows
  int64_t width = 768, head = 64, vocab = 50257;
  int64_t parameters() const {
    return 12 * width * width + 13 * width;
  }  // of a block: what one update covers
};
// Sizes that take no time, for a first look and for tests.
KernelSizes quick_sizes();

struct KernelCase {
  std::string kernel, shape;
  // Allocates the tensors and fills them at random; the work that it returns holds them.
  std::function<std::function<void()>(Memory& memory, Dtype dtype)> prepare;
};

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes);

}  // namespace zl::cli
