// What `zerolab exercise check` prints and writes about graded files.
#pragma once

#include <span>
#include <string>

#include "tutorials/exercises/grader/grade.h"

namespace zl::cli {

// A graded file, or why it could not be graded.
struct GradedFile {
  std::string student;  // "" if sizes and data are of this run only
  std::string file;
  std::string problem;  // such as "there is no .cpp file"; then `grade` is empty
  exercises::Grade grade;

  std::string failed_check() const;  // the first that failed, "" if there is none
  std::string meaning() const;       // of that failure, or why no check ran
};

// A table of the checks; then for each failure what it means, the evidence and what the student's
// code printed. A failure that was shown before is only named. `next` is the command to try next,
// or "".
std::string grade_text(const exercises::Exercise& exercise, const GradedFile& graded,
                       const std::string& next);

// Gradescope's results.json (gradescope-autograders.readthedocs.io, "Autograder Specifications").
// What it has no key for is in "extra_data".
std::string grade_json(const exercises::Exercise& exercise, const GradedFile& graded);

// One row per student, as RFC 4180 says: student, file, points, of, the points of each check, the
// first failed check and its meaning. A spreadsheet does not take text of a student as a formula.
std::string grades_csv(const exercises::Exercise& exercise, std::span<const GradedFile> all);

// A few lines about a class: full points, the mean, and how many failed which check first.
std::string grades_text(const exercises::Exercise& exercise, std::span<const GradedFile> all);

}  // namespace zl::cli
