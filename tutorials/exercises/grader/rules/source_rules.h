// What a student's file may contain, read from its text before it is compiled.
#pragma once

#include <string>

#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

// Every violation as "line 12: …", one per line; "" if there is none. The only preprocessor lines
// are includes of C++'s headers and of exercise.headers. No asm, no casts of const or of pointers,
// no names that are reserved for the compiler, no other way around the types of the library.
std::string source_violations(const Exercise& exercise, const std::string& text);

}  // namespace zl::exercises
