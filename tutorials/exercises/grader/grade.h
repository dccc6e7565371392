// Grades one file: compiles it, links it with the measuring side of its exercise, and lets the
// judge check the program. Neither the judge nor this process runs the student's code.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

enum class Outcome { passed, failed, skipped };

struct CheckResult {
  Check check;
  Outcome outcome = Outcome::skipped;
  std::string meaning;  // what a failure means, in the words of the task
  std::string details;  // the evidence; may have several lines
  std::string output;   // what the student's code printed, shortened
  int64_t event = 0;    // of rank 0, where the failure begins; 0: unknown
  double seconds = 0;
  // Of each rank: its memory at the peak [B], what it sent [B], its calls. Empty: not measured.
  std::vector<std::array<int64_t, 3>> costs;
};

struct Grade {
  std::string exercise, file;
  std::string refused;               // why no check ran: it does not compile or link
  std::string warnings;              // of the compiler
  std::vector<CheckResult> results;  // empty if refused
  double build_seconds = 0;
  int64_t lines = 0;  // of the file, that are neither blank nor only a // comment
  std::string junit;  // the checks as Catch2's JUnit reporter writes them, if that was asked for

  int points() const;
  bool passed() const { return points() == 100; }
  const CheckResult* first_failure() const;  // nullptr: none
};

struct GradeOptions {
  uint64_t seed = 0;  // sizes, ranks and data follow from it
  std::string device = "cpu";
  bool stop_at_first_failure = false, junit = false;
  // Asked while it compiles and while checks run; true ends the grading with Interrupted.
  std::function<bool()> interrupted = {};
};

// A student's file that cannot be read, or is too large. Other InputErrors are about the machine.
class UnreadableFile : public InputError {
 public:
  using InputError::InputError;
};

// Compiles a copy of the file without the headers beside it, with the toolchain's flags and ours.
// What does not compile or link is refused with the compiler's first messages.
// Throws Interrupted, UnreadableFile, and InputError if the compiler cannot be started.
Grade grade(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
            const GradeOptions& options);

// --step: runs the first check that failed in a process that has this one's terminal, and returns
// when the user leaves. Throws InputError if there is none.
void show_first_failure(const Exercise& exercise, const Grade& graded, const Toolchain& toolchain,
                        const GradeOptions& options);

// Tries the compiler, its assembler and its linker, so that a broken one costs no student points.
void require_compiler(const Toolchain& toolchain);

// The seed of a student; of "" another one each time.
uint64_t seed_of(const std::string& student);

}  // namespace zl::exercises
