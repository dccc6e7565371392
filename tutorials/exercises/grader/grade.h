// Grades one file: builds it, runs each check in a separate process, and judges what was
// measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutorials/exercises/grader/build.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

enum class Outcome { passed, failed, skipped };

struct CheckResult {
  Check check;
  Outcome outcome = Outcome::skipped;
  Verdict verdict;     // of a check that ran
  std::string output;  // what the student's code printed, shortened
  double seconds = 0;
};

struct Grade {
  std::string exercise, file;
  std::string refused;   // why no check ran: it does not compile, or uses what it must not
  std::string warnings;  // of the compiler
  std::vector<CheckResult> results;  // empty if refused
  double build_seconds = 0;

  int points() const;
  int most_points() const;
  bool passed() const { return !results.empty() && points() == most_points(); }
};

struct GradeOptions {
  CheckOptions check;
  bool stop_at_first_failure = false;
  // Asked between and during the checks; true ends the grading with Interrupted.
  std::function<bool()> interrupted;
  std::function<void(const Check&)> on_check;  // before each check that runs
};

// Throws Interrupted, UnreadableFile, and InputError if the compiler cannot be started or the
// machine does not allow the sandbox.
Grade grade(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
            const GradeOptions& options);

// The seed of a student: sizes, ranks and data follow from it. "" is the public seed.
uint64_t seed_of(const std::string& student);

}  // namespace zl::exercises
