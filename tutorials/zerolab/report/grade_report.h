// What `zerolab exercise check` prints and writes about a graded file. All of it is made from one
// JSON document.
#pragma once

#include <span>
#include <string>

#include "tutorials/exercises/grader/grade.h"

namespace zl::cli {

// A file of a student that is to be graded.
struct Submission {
  std::string student;  // "" if sizes and data are of this run only
  std::string file;
  std::string problem;  // why it cannot be graded, such as "there is no file 05_zero1.cpp"
};

// Gradescope's results.json (gradescope-autograders.readthedocs.io, "Autograder Specifications").
// What it has no key for is in "extra_data". Texts from outside are cut, and cannot control a
// terminal. All functions below take such a document.
std::string grade_json(const exercises::Exercise& exercise, const Submission& submission,
                       const exercises::Grade& grade);

// A table of the checks; then for each failure what it means, the evidence and what the student's
// code printed. A failure that was shown before is only named. `next` is the command to try next,
// or "".
std::string grade_text(const std::string& grade, const std::string& next);

// JUnit's XML of a file for which no check ran, so that the judge has written none.
std::string junit_without_checks(const std::string& grade);

// A row for a student, as RFC 4180 says: student, file, points, of, version of the exercise, the
// points of each check, the first failed check and its meaning. A spreadsheet does not take text of
// a student as a formula. And the row above it with the names of these columns.
std::string csv_row(const std::string& grade);
std::string csv_names(const std::string& grade);

// A line about a class: how many have full points, and the mean.
std::string grades_text(std::span<const std::string> grades);

}  // namespace zl::cli
