// What 'zerolab bench random' draws: options of a run, each with several values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace zl::cli {

// The values of each option: words of a command line. The first option says which command runs;
// KEY=VALUE means --set KEY=VALUE; "" leaves the default. The first values of all options go
// together.
std::span<const std::vector<std::string>> random_options();

// The index of one value of each option.
using Configuration = std::vector<size_t>;

// `attempt`: 0, 1, … until one is not refused.
Configuration random_configuration(uint64_t seed, uint64_t index, uint64_t attempt);

// The command line: a comparison, or a training run with what it needs to be resumed; `extra`:
// further words of it.
std::string command_of(const Configuration& configuration, const std::vector<std::string>& extra);

}  // namespace zl::cli
