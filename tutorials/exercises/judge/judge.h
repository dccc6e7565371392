// What the checks share. A check is a Catch2 case; its tags are the exercises that it belongs to,
// its group and its points:
//
//   TEST_CASE("value of one row", "[01][value][10 points]") {
//     const Record seen = observe();   // runs the student's program
//     if (seen.number("y shape") != …) fail("y does not have the shape of x", "x is (1, 7)");
//   }
//
// Cases are ordered from easy to hard. A failed check skips the rest of its group; one of the first
// group skips all others. The points of an exercise add up to 100.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

// Of the check that runs.
const CheckOptions& options();

// Runs the student's program in a process with limits, waits, and reads what it observed. Fails the
// check with a sentence if the program ended otherwise. Skips the check if an earlier one failed.
Record observe();

// `meaning`: what the failure usually means, in the words of the task. `details`: the numbers, with
// unit, element and rank. `event`: of rank 0, where it begins; 0: unknown. --step opens there.
[[noreturn]] void fail(const std::string& meaning, const std::string& details = "",
                       int64_t event = 0);

// ---- one list of numbers and what it must be ---------------------------------------------------

struct Numbers {
  std::string what = {};  // for sentences: "the gradient of x"
  std::vector<double> is = {}, must = {};
  size_t row = 0;        // elements of a row; 0: one row
  double tolerance = 0;  // relative to the largest value of its row
  // What was there before, if the code adds to it: `must` is `before` and what was added.
  std::vector<double> before = {};
  // Numbers of the case whose multiples mean something: {"C, the number of columns", 7}.
  std::vector<std::pair<std::string, double>> factors = {};
  // Of one number: others that it may be, and what each means.
  std::vector<std::pair<double, std::string>> known = {};
  std::string meaning = {};  // if it is known: of whatever is wrong
  std::string details = {};  // what else the evidence is
};

// Fails with one sentence if `is` is not `must`. The first that fits: a wrong size; the meaning
// that is known; a known number; NaN; infinity; what was there before is lost or counts twice;
// zero; a factor or 1/factor, of all values; the wrong sign; any other factor. The evidence is the
// first difference, how many there are, and the details.
void compare(const Numbers& numbers);

}  // namespace zl::exercises
