// Runs a recorded command and reads what it left: its exit code, its JSON document, its files.
#pragma once

#include "tests/golden/record.h"

namespace golden {

// The programs that measure() can run:
//   zerolab        the program
//   on_fake        the same on a fake NCCL (tests/nccl/zerolab_on_fake.cpp)
//   on_emulator    the same on an emulated GPU (tests/cuda/zerolab_on_emulator.cpp)
//   own_model      tutorials/own_model.cpp, which takes no arguments
const std::set<std::string>& programs();

// train, compare and plan also get --json and -q, and train a folder for its files. What depends
// on the machine or on the moment is left out: times, and names of files.
Quantities measure(const Record& record);

// "" if the bits of this build are those that were recorded; else why they are not.
std::string other_bits_expected();

}  // namespace golden
