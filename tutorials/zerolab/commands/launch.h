// zerolab launch: what main.cpp must do before it reads any flag.
#pragma once

namespace zl::cli {

// What follows the flags of `zerolab launch` is the command line of another program: launch takes
// it, and nobody else reads it. Returns how many words are left.
int take_launched_program(int argc, char** argv);

}  // namespace zl::cli
