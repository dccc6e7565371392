// The exercises that this zerolab can grade, and the toolchain that compiles them.
#pragma once

#include <string>
#include <vector>

#include "tensor/error.h"

namespace zl::exercises {

// How this zerolab was built: exercises.json, which CMake writes into the build folder and
// `cmake --install` beside the exercises.
struct Toolchain {
  std::string compiler;
  std::vector<std::string> launcher;  // of the compiler: ccache and its settings, or empty
  std::vector<std::string> flags;     // "-std=c++20", "-I…"
  // Of the link, in order; "{exercise}" is the name of the exercise.
  std::vector<std::string> link;
  std::string judge;  // the program whose Catch2 cases are the checks
  // Of Catch2 the library and its folders of headers, for `exercise pack`; empty if it is not here.
  std::vector<std::string> catch2;
  std::string exercises;  // the folder that holds 01_…, 02_…
  std::string source;     // the source tree, which `exercise pack` needs; "" if it is installed
};
// Of the running program. Throws InputError if there is none.
Toolchain find_toolchain();
// From exercises.json. Throws InputError.
Toolchain read_toolchain(const std::string& path);

// Checks are ordered from easy to hard (judge/judge.h).
struct Check {
  std::string name;   // "bits at 3 ranks"
  std::string group;  // "bits"
  int points = 0;     // those of an exercise add up to 100
};

struct Exercise {
  int number = 0;
  std::string name;   // of its folder: "05_zero1"
  std::string title;  // of its task: "ZeRO-1: shard the optimizer state"
  // "0.1.0-5f2c9a10": the release, and a hash of the task, the file to complete and the checks.
  std::string version;
  std::vector<Check> checks;
  std::vector<std::string> headers;  // of ours, that start.cpp includes
  bool records_events() const { return number >= 5 && number <= 7; }  // for --step
};

// Asks the judge for the checks. Throws InputError if the exercises are not built.
std::vector<Exercise> all_exercises(const Toolchain& toolchain);
// By number or name: "5", "05", "05_zero1". Throws InputError with the nearest name.
Exercise find_exercise(const std::string& which, const Toolchain& toolchain);

}  // namespace zl::exercises
