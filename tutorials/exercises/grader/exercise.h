// An exercise as the grader knows it: its checks, and how each is judged.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises {

// Checks are ordered from easy to hard. A failed check skips the rest of its group; one of the
// first group skips all others.
struct Check {
  std::string name;   // "bits at 3 ranks"
  std::string group;  // "bits"
  int points = 0;     // those of an exercise add up to 100
};

struct Verdict {
  bool passed = false;
  // What a failure means, in the words of the task: "every gradient is 3.00 x the mean: a sum".
  std::string meaning;
  // The evidence: numbers, unit, parameter, element, rank. May have several lines.
  std::string details;
  // Where the failure begins in rank 0's event stream, or 0 if the check does not
  // know: --step opens there.
  int64_t event = 0;
};

struct Exercise {
  int number = 0;
  std::string name;   // of its folder: "05_zero1"
  std::string title;  // "ZeRO-1: shard the optimizer state"
  std::vector<Check> checks;
  // What the student's file may use beside the C++ library: headers of ours that it may include,
  // and beginnings of qualified names of functions of ours that it may call ("zl::Stage::").
  std::vector<std::string> headers, functions;
  // Beginnings of qualified names of what it must define ("zl::stage_zero2()"): the only names with
  // external linkage that the file may define.
  std::vector<std::string> defines;
  bool records_events = false;  // whether --step can show its runs
  // Judges what measure() recorded.
  Verdict (*judge)(const Check& check, const CheckOptions& options, const Record& record) = nullptr;
};

// In NN_name/checks.cpp.
Exercise exercise_01();
Exercise exercise_02();
Exercise exercise_03();
Exercise exercise_04();
Exercise exercise_05();
Exercise exercise_06();
Exercise exercise_07();
Exercise exercise_08();
Exercise exercise_09();
Exercise exercise_10();
Exercise exercise_11();

const std::vector<Exercise>& all_exercises();
// By number or name: "5", "05", "05_zero1". Throws InputError with the nearest name.
const Exercise& find_exercise(const std::string& which);

}  // namespace zl::exercises
