// zerolab launch: the preparation that main.cpp makes before it reads any flag.
#pragma once

namespace zl::cli {

// Removes the program that `zerolab launch` starts, and its arguments, from the command line and
// keeps them for launch. Returns how many words are left.
int take_launched_program(int argc, char** argv);

}  // namespace zl::cli
