// Grades files in tests.
#pragma once

#include <filesystem>
#include <string>

#include "tests/paths.h"
#include "tutorials/exercises/grader/grade.h"

namespace zl::exercises {

// Of the zerolab that is tested.
inline const Toolchain& toolchain() {
  static const Toolchain one = read_toolchain(
      (std::filesystem::path(ZEROLAB_BINARY).parent_path() / "exercises/exercises.json").string());
  return one;
}

inline const std::vector<Exercise>& exercises() {
  static const std::vector<Exercise> all = all_exercises(toolchain());
  return all;
}

// The first check that failed, "refused", or "".
inline std::string first_failure(const Grade& grade) {
  if (!grade.refused.empty()) return "refused";
  return grade.first_failure() == nullptr ? "" : grade.first_failure()->check.name;
}
// What is said about it.
inline std::string diagnosis(const Grade& grade) {
  return grade.first_failure() == nullptr ? grade.refused : grade.first_failure()->meaning;
}

}  // namespace zl::exercises
