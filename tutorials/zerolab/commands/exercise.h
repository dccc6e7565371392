// What the commands of `zerolab exercise` share; pack has a file, and check and board have one.
#pragma once

#include <string>

#include "tutorials/exercises/grader/exercise.h"
#include "tutorials/zerolab/commands/command.h"

namespace zl::cli {

void add_exercise_check(CLI::App& exercise, Invocation& invocation);
void add_exercise_board(CLI::App& exercise, Invocation& invocation);
void add_exercise_pack(CLI::App& exercise, Invocation& invocation);

// "./zl exercise hint 05" as the user calls this program: zl says in ZL_COMMAND how it was called.
std::string exercise_command(const std::string& words);

// "05", and "05_zero1.cpp": the file that a student writes.
inline std::string two_digits(const exercises::Exercise& e) { return e.name.substr(0, 2); }
inline std::string file_name(const exercises::Exercise& e) { return e.name + ".cpp"; }

// The page with the hints; "" if this tree was packed without hints.
std::string hints_file(const exercises::Exercise& exercise);

}  // namespace zl::cli
