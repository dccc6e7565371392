// Exercise 11: choose a stage. task.md has the question, choose_stage.h the contract.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "tutorials/exercises/11_choose_stage/choose_stage.h"

namespace zl::exercises {

int64_t kept_bytes(const Training& training, int stage) {
  throw std::logic_error("not written yet: kept_bytes of " + std::to_string(training.units.size()) +
                         " units in stage " + std::to_string(stage));
}

// Which units are full at the same time, and in which stages?
int64_t peak_bytes(const Training& training, int stage) {
  throw std::logic_error("not written yet: peak_bytes of " + std::to_string(training.units.size()) +
                         " units in stage " + std::to_string(stage));
}

// How often does each unit go around the ring in a step?
int64_t sent_bytes(const Training& training, int stage) {
  throw std::logic_error("not written yet: sent_bytes of " + std::to_string(training.ranks) +
                         " ranks in stage " + std::to_string(stage));
}

double step_seconds(const Cluster& cluster, const Training& training, int stage) {
  throw std::logic_error("not written yet: step_seconds of " + std::to_string(training.ranks) +
                         " ranks, " + std::to_string(cluster.gpus_per_node) +
                         " per node, in stage " + std::to_string(stage));
}

std::optional<int> choose_stage(const Cluster& cluster, const Training& training) {
  throw std::logic_error("not written yet: choose_stage for " + std::to_string(training.ranks) +
                         " ranks with " + std::to_string(cluster.memory) + " bytes each");
}

}  // namespace zl::exercises
