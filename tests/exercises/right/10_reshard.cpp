// Exercise 10: a checkpoint that reshards. task.md has the question, reshard.h the contract.
#include <algorithm>
#include <stdexcept>

#include "tutorials/exercises/10_reshard/reshard.h"

namespace zl::exercises {
namespace {
//>

int64_t up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
//<

// The position of each parameter in the flat memory of a state.
struct Layout {
  Layout(const ShardedUnit& unit, State state) {
    //> throw std::logic_error("not written yet: Layout");
    int64_t end = 0;
    for (const UnitParameter& p : unit.parameters) {
      const bool absent = p.tied_to >= 0 || (p.frozen && state == State::moments);
      begin.push_back(absent ? -1 : up(end, 16));
      if (!absent) end = begin.back() + p.numel;
    }
    shard = up(end, 16 * unit.ranks) / unit.ranks;
    //<
  }

  std::vector<int64_t> begin;  // [n] by parameter; -1: it has no place here
  int64_t shard = 0;           // [n] of one rank
};

}  // namespace

std::vector<float> load_shard(SavedPieces& saved, const ShardedUnit& now, int rank, State state) {
  const Layout from(saved.unit(), state), to(now, state);
  std::vector<float> shard(size_t(to.shard), 0.0f);
  // Which part of each parameter is in this shard? In which pieces was it saved?
  //> throw std::logic_error("not written yet: load_shard");
  const int64_t first = rank * to.shard, last = first + to.shard;
  for (size_t p = 0; p < now.parameters.size(); ++p) {
    const int tied_to = saved.unit().parameters[p].tied_to;
    const int64_t source = from.begin[tied_to >= 0 ? size_t(tied_to) : p], target = to.begin[p];
    if (target < 0 || source < 0) continue;
    const int64_t end = std::min(last, target + now.parameters[p].numel);
    for (int64_t at = std::max(first, target); at < end;) {
      const int64_t flat = source + at - target, in_piece = flat % from.shard;
      const int64_t count = std::min(end - at, from.shard - in_piece);
      saved.read(int(flat / from.shard), state, in_piece,
                 std::span(shard).subspan(size_t(at - first), size_t(count)));
      at += count;
    }
  }
  return shard;
  //<
}

}  // namespace zl::exercises
