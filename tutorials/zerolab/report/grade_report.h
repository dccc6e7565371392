// What `zerolab exercise check` and `board` print and write about graded files.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/grader/grade.h"

namespace zl::cli {

// A file of a student, which is to be graded unless there is a problem with it.
struct Submission {
  std::string student;  // "" if sizes and data are of this run only
  std::string file;
  std::string problem;  // why it cannot be graded, such as "there is no file 05_zero1.cpp"
  exercises::Grade grade = {};
};

// Gradescope's results.json (gradescope-autograders.readthedocs.io, "Autograder Specifications").
// What it has no key for is in "extra_data". Here and below texts from outside are cut, and cannot
// control a terminal.
std::string grade_json(const exercises::Exercise& exercise, const Submission& submission);

// A table of the checks; then for each failure what it means, the evidence and what the student's
// code printed. A failure that was shown before is only named. `next` is the command to try next,
// or "".
std::string grade_text(const exercises::Exercise& exercise, const Submission& submission,
                       const std::string& next);

// JUnit's XML: the judge's, or of a file for which no check ran, one case with an error.
std::string grade_junit(const exercises::Exercise& exercise, const Submission& submission);

// A row for a student, as RFC 4180 says: student, file, points, of, version of the exercise, the
// points of each check, the first failed check and its meaning. A spreadsheet does not take text of
// a student as a formula. And the row above it with the names of these columns.
std::string csv_row(const exercises::Exercise& exercise, const Submission& submission);
std::string csv_names(const exercises::Exercise& exercise);

// The submissions with 100 points, those that cost least first, and how many others there are.
void print_board(const exercises::Exercise& exercise, const std::vector<Submission>& all,
                 bool as_json);

}  // namespace zl::cli
