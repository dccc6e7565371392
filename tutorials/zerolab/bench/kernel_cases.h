// The kernels of a training step of a GPT, on random data: the cases of `zerolab bench kernels`.
// One has tokens of real text, because a frequent token may take a kernel longer than many rare
// ones. Matmuls are products alone: a layer's bias is not added, and a gradient is set, not
// accumulated.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutorials/zerolab/bench/measure.h"

namespace zl::cli {

using Work = std::function<void()>;

// `rows`: B·T. `window`: T; divides rows.
struct KernelSizes {
  int64_t rows, window, width, head, vocab;
};

struct KernelCase {
  std::string kernel, shape;
  // Allocates the operands. The work keeps them alive.
  std::function<Work(Workbench&, Dtype)> prepare;
};

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes);

}  // namespace zl::cli
