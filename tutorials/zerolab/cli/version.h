#pragma once

namespace zl::cli {

// As in CMakeLists.txt; tests/zerolab/help_test.cpp compares the two.
inline constexpr const char* kVersion = "0.2.0";

// CMake's ZEROLAB_CUDA_SAYS: "compiled by nvcc 13.0 for 90", or "not compiled" and why.
const char* cuda_build();

}  // namespace zl::cli
