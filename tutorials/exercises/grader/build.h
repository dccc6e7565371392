// Compiles the student's file and links it with the measuring side of an exercise.
#pragma once

#include "tutorials/exercises/grader/grade.h"

namespace zl::exercises {

// Into `folder`. Returns the program, or "" and says why in grade.refused. Throws as grade() does.
std::string build(const Exercise& exercise, const Toolchain& toolchain, const std::string& folder,
                  const std::function<bool()>& interrupted, Grade& grade);

}  // namespace zl::exercises
