#pragma once

namespace zl::cli {

inline constexpr const char* kVersion =
    "0.1.0";  // CMakeLists.txt has the same; tests/zerolab/help_test.cpp compares them

}  // namespace zl::cli
