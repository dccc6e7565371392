// Training runs with checkpoints, for the tests that stop and resume them.
#pragma once

#include "tests/zerolab/process.h"

namespace cli {

using Flags = std::vector<std::string>;
Flags operator+(Flags a, const Flags& b);

// A run of the tiny model, without a sample.
Flags tiny_run(int steps, const Flags& more);
Finished train(int steps, const Flags& more);  // quiet
// A run that gets `signal` once stderr shows `text`.
Finished stopped_at(const std::string& text, int signal, const Flags& arguments);

std::vector<std::string> metrics_of(const std::string& folder);  // lines without the seconds
std::string weights_of(const std::string& folder);               // the bytes of model.safetensors
Flags checkpoints_in(const std::string& folder);                 // their names

}  // namespace cli
