// --step: one check of a student's code on the terminal, event by event.
#pragma once

#include "tutorials/exercises/grader/build.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {

// Builds the file and runs `check` in a process that has this one's terminal; options.step_from is
// the event to begin with. Returns when the user leaves. Throws InputError if the file is refused.
void step_through(const Exercise& exercise, const std::string& file, const Toolchain& toolchain,
                  const Check& check, const CheckOptions& options);

}  // namespace zl::exercises
