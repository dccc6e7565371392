// The options of a training run and a few values of each: a space from which configurations are
// drawn to be compared.
//
// A bug of a rarely used pair of options shows only where that pair is run. Hence drawing at
// random, and a small set that holds every pair of values: Cohen et al. 1997, "The AETG system",
// section 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zl::cli {

// One value of each option, by index.
using Configuration = std::vector<size_t>;

// How many values each option has.
std::vector<size_t> configuration_space();
// The same (seed, index), the same configuration.
Configuration random_configuration(uint64_t seed, uint64_t index);
// A set in which every two values of two options meet at least once.
std::vector<Configuration> pairwise_configurations();
// As the arguments of `zerolab compare`.
std::vector<std::string> compare_arguments(const Configuration& configuration);

}  // namespace zl::cli
