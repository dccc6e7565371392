// Exercise 10: a checkpoint that reshards. task.md has the question, reshard.h the contract.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "tutorials/exercises/10_reshard/reshard.h"

namespace zl::exercises {
namespace {

// The position of each parameter in the flat memory of a state.
struct Layout {
  Layout(const ShardedUnit& unit, State state) {
    throw std::logic_error("not written yet: Layout of " + std::to_string(unit.parameters.size()) +
                           (state == State::weights ? " parameters' weights" : " parameters") +
                           " on " + std::to_string(unit.ranks) + " ranks");
  }

  std::vector<int64_t> begin;  // [n] by parameter; -1: it has no place here
  int64_t shard = 0;           // [n] of one rank
};

}  // namespace

std::vector<float> load_shard(SavedPieces& saved, const ShardedUnit& now, int rank, State state) {
  const Layout from(saved.unit(), state), to(now, state);
  std::vector<float> shard(size_t(to.shard), 0.0f);
  // Which part of each parameter is in this shard? In which pieces was it saved?
  throw std::logic_error("not written yet: load_shard of rank " + std::to_string(rank) + ", from " +
                         std::to_string(from.shard) + " elements to " +
                         std::to_string(shard.size()));
}

}  // namespace zl::exercises
