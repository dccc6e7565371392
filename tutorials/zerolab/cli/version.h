#pragma once

namespace zl::cli {

// As in CMakeLists.txt; tests/zerolab/help_test.cpp compares the two.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace zl::cli
