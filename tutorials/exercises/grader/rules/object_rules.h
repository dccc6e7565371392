// What a student's object file may use, read from its symbols and sections (ELF).
#pragma once

#include <string>

#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

// Every violation, one per line; "" if there is none: functions that the exercise does not allow,
// definitions that the task does not ask for, global variables, code that runs before main().
// `text` is the source: an inline function of the object whose name is not in it comes from a
// header. Throws InputError if it is no ELF object, or c++filt cannot be started.
std::string object_violations(const Exercise& exercise, const std::string& path,
                              const std::string& text);

}  // namespace zl::exercises
