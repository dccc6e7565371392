// Grades files in tests, and the tests' own exercise: `double zl::exercises::answer(double)`.
#pragma once

#include <string>

#include "tutorials/exercises/grader/grade.h"

namespace zl::exercises {

// Of the zerolab that is tested.
const Toolchain& toolchain();

// Its checks, in groups: "answer" of group "first"; "threads", "errors" and "heap".
const Exercise& probe();

// A student's file of that exercise, which includes its header.
std::string probe_file(const std::string& body);

// Grades a file of this content.
Grade grade_text(const Exercise& exercise, const std::string& text,
                 const GradeOptions& options = {});

// The first check that failed, "refused", or "".
std::string first_failure(const Grade& grade);
// What is said about it.
std::string diagnosis(const Grade& grade);

}  // namespace zl::exercises
