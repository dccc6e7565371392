// Compiles the student's file and links it with the prebuilt checks of an exercise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/error.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

// How this zerolab was built: exercises.json, which CMake writes into the build folder and
// `cmake --install` beside the exercises.
struct Toolchain {
  std::string compiler;
  std::vector<std::string> launcher;  // of the compiler: ccache and its settings, or empty
  std::vector<std::string> flags;     // "-std=c++20", "-I…"
  // Of the link, in order; "{exercise}" is the name of the exercise.
  std::vector<std::string> link;
  std::string exercises;  // the folder that holds 01_…, 02_…
  std::string source;     // the source tree, which `exercise pack` needs; "" if it is installed
};
// Of the running program. Throws InputError if there is none.
Toolchain find_toolchain();
// From exercises.json. Throws InputError.
Toolchain read_toolchain(const std::string& path);

// A student's file that cannot be read, or is too large. Other InputErrors are about the machine.
class UnreadableFile : public InputError {
 public:
  using InputError::InputError;
};

struct BuiltProgram {
  std::string path;      // empty if refused
  std::string refused;   // compiler errors, or what the file uses against the rules
  std::string warnings;  // of the compiler
};

// Applies the rules to the source, compiles, applies the rules to the object file, links. The
// program is written into `folder`. Throws Interrupted, UnreadableFile, and InputError if the
// compiler cannot be started.
BuiltProgram build(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
                   const std::string& folder, const std::function<bool()>& interrupted);

}  // namespace zl::exercises
