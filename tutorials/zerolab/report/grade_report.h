// What `zerolab exercise check` prints and writes about graded files.
#pragma once

#include <span>
#include <string>

#include "tutorials/exercises/grader/grade.h"

namespace zl::cli {

int most_points(const exercises::Exercise& exercise);

// A graded file, or why it could not be graded.
struct GradedFile {
  std::string student;  // "" for the public seed
  std::string file;
  std::string problem;  // such as "there is no .cpp file"; then `grade` is empty
  exercises::Grade grade;

  int points() const { return problem.empty() ? grade.points() : 0; }
  std::string failed_check() const;  // the first that failed, "" if there is none
  std::string meaning() const;       // of that failure, or why no check ran
};

// A table of the checks; then for each group that failed what the failure means, the evidence and
// what the student's code printed. A failure that was shown before is only named. `next` is the
// command to try next, or "".
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

// What a report shows of one text from outside; with the note on what was left out, 8 KiB at most.
inline constexpr size_t kMostLines = 60, kMostBytes = 8000;
// At most `lines` lines and `bytes` bytes of a text from outside, fit for a terminal: `bytes`
// counts what is shown, such as the six of \u001b. Says how much was left out.
std::string shortened(const std::string& text, size_t lines = kMostLines,
                      size_t bytes = kMostBytes);
// The size of the beginning of `text` that takes at most `bytes` when it is shown. It ends between
// two characters.
size_t fitting(const std::string& text, size_t bytes);

}  // namespace zl::cli
