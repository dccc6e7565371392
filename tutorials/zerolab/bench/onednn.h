// The matrix product of oneDNN, where this machine has it: what `zerolab bench kernels` compares
// with.
#pragma once

#include <optional>
#include <string>

#include "tutorials/zerolab/bench/kernel_cases.h"

namespace zl::cli {

// dnnl_sgemm, in row-major order like ours.
class OneDnn {
 public:
  // Opens libdnnl.so.3 or libdnnl.so.2; nothing if the machine has neither. Sets OMP_NUM_THREADS,
  // so that a build with OpenMP (Debian's) computes on `threads` threads.
  static std::optional<OneDnn> open(int threads);

  std::string version() const;
  // c (m, n) = a b, fp32. Throws InputError if oneDNN fails.
  void multiply(const Product& product, const float* a, const float* b, float* c) const;

 private:
  using Gemm = int(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t,
                   const float*, int64_t, float, float*, int64_t);
  struct Version {  // the beginning of dnnl_version_t
    int major, minor, patch;
  };
  Gemm* gemm_ = nullptr;
  const Version* (*version_)() = nullptr;
};

}  // namespace zl::cli
