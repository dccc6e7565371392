// Configurations of the program: random ones, and a small set that holds every pair of values. A
// bug in a rare pair of options shows only where that pair is run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zl::test {

// The index of one value of each option, in the table of configurations.cpp.
using Configuration = std::vector<size_t>;

// The first values of all options, which go together.
Configuration first_configuration();
// `attempt`: 0, 1, … until one is not refused.
Configuration random_configuration(uint64_t seed, uint64_t index, uint64_t attempt);

// A line for the shell: a comparison, or a training run that stops, resumes and is compared with
// one that did not stop; `extra`: further words for the program.
std::string command_of(const Configuration& configuration, const std::string& extra);

// A set in which every two values of two options occur together: Cohen et al. 1997, "The AETG
// system", section 3. Some values do not go together, and only a run shows it. So the set is made
// while it runs: tell it of each configuration whether it was refused.
class PairwiseSet {
 public:
  // `seed`: which pairs come first.
  explicit PairwiseSet(uint64_t seed);

  // The next configuration; none when all pairs are done. A greedy search: it starts from a pair
  // that has not run, and each further option takes the value that adds most such pairs. A pair
  // that was often refused adds less. At last it is tried beside the first values of all options.
  std::optional<Configuration> next();
  void tell(const Configuration& of_next, bool runs);

  size_t pairs() const { return order_.size(); }
  size_t covered() const { return covered_; }
  size_t impossible() const { return impossible_; }  // refused also beside the first values

 private:
  struct Pair {
    bool done = false;
    int refusals = 0;  // 0 once it has run
  };
  Pair& start();  // from which the next configuration starts
  Pair& pair(size_t option, size_t value, size_t other, size_t other_value);
  void complete(Configuration& configuration);

  std::vector<size_t> first_;                      // of an option, among the values of all
  std::vector<Pair> pairs_;                        // by two such indices
  std::vector<std::pair<size_t, size_t>> order_;   // of pairs from which configurations start
  std::vector<std::pair<size_t, size_t>> values_;  // option and value of such an index
  size_t begin_ = 0, covered_ = 0, impossible_ = 0;
  int attempts_ = 0;  // from order_[begin_]
  uint64_t seed_, drawn_ = 0;
};

}  // namespace zl::test
