// The units of each check of exercise 10, which follow from the seed, and what was saved of them.
#pragma once

#include <string>
#include <vector>

#include "stages/partition.h"
#include "tensor/error.h"
#include "tutorials/exercises/10_reshard/reshard.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::reshard_checks {

struct ReshardCase {
  ShardedUnit saved, now;
};

// A call of SavedPieces::read().
struct PieceRead {
  int piece = 0;
  int64_t elements = 0;
};

inline constexpr State kStates[] = {State::weights, State::moments};

// By the library's Partition.
struct FlatLayout {
  std::vector<int64_t> begin;  // [n] by parameter; -1: it is not in this memory
  int64_t full = 0, shard = 0;
};

// Each element has another value; those of padding are negative.
inline float saved_value(State state, int parameter, int64_t element) {
  return float((state == State::moments ? 100'000 : 0) + 1'000 * (parameter + 1) + element);
}

// The third parameter is tied to the second, and the last but one to the first.
inline void tie(ReshardCase& c, bool in_saved, bool in_now) {
  for (const auto& [follower, leader] :
       {std::pair<size_t, size_t>{2, 1}, {c.now.parameters.size() - 2, 0}})
    for (ShardedUnit* unit : {&c.saved, &c.now}) {
      unit->parameters[follower] = unit->parameters[leader];
      if (unit == &c.saved ? in_saved : in_now) unit->parameters[follower].tied_to = int(leader);
    }
}

inline std::vector<ReshardCase> reshard_cases(const std::string& check,
                                              const CheckOptions& options) {
  Draw draw(check, options);
  using Ranks = std::vector<std::pair<int, int>>;
  const bool all = check == "all of these", empty = check == "empty shards";
  Ranks ranks = check == "the same number of ranks" ? Ranks{{2, 2}, {3, 3}}
                : check == "more ranks"             ? Ranks{{2, 3}, {3, 5}, {1, 4}}
                : check == "fewer ranks"            ? Ranks{{3, 2}, {5, 3}, {4, 1}}
                : empty                             ? Ranks{{5, 7}, {7, 5}, {2, 8}}
                : check == "what is read"           ? Ranks{{3, 4}, {5, 2}}
                                                    : Ranks{{3, 3}, {2, 3}, {5, 2}};
  for (int i = 0; all && i < 9; ++i)
    ranks.push_back({int(draw.between(1, 6)), int(draw.between(1, 6))});
  std::vector<ReshardCase> cases;
  for (const auto& [from, to] : ranks) {
    ReshardCase& c = cases.emplace_back();
    // Odd sizes. Every other parameter has more than 16 elements per rank: a shard has another size
    // with it than without it.
    for (int64_t p = 0, n = empty ? draw.between(1, 2) : draw.between(5, 7); p < n; ++p)
      c.saved.parameters.push_back({.numel = 2 * (empty        ? draw.between(0, 15)
                                                  : p % 2 == 0 ? draw.between(50, 90)
                                                               : draw.between(0, 90)) +
                                             1});
    c.now = c.saved;
    c.saved.ranks = from, c.now.ranks = to;
    const bool since = check == "frozen or trained since" || (all && draw.between(0, 1) == 1);
    // One that was trained is frozen now, and one that was frozen is trained.
    if (since) c.saved.parameters[2].frozen = c.now.parameters[1].frozen = true;
    for (ShardedUnit* unit : {&c.saved, &c.now})
      for (const size_t p : {size_t(0), unit->parameters.size() / 2})
        if (check == "frozen parameters" || (all && !since)) unit->parameters[p].frozen = true;
    if (check == "tied weights") tie(c, true, true);
    if (check == "tied or untied since") tie(c, cases.size() != 2, cases.size() == 2);
    if (all) tie(c, draw.between(0, 1) == 1, draw.between(0, 1) == 1);
  }
  return cases;
}

inline FlatLayout flat_layout(const ShardedUnit& unit, State state) {
  std::vector<Parameter> parameters(unit.parameters.size());
  Unit flat;
  FlatLayout layout;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const UnitParameter& one = unit.parameters[p];
    parameters[p].shape = {one.numel};
    layout.begin.push_back(-1);
    if (one.tied_to >= 0 || (state == State::moments && one.frozen)) continue;
    layout.begin.back() = int64_t(flat.parameters.size());
    flat.parameters.push_back(&parameters[p]);
  }
  const Partition partition(flat, unit.ranks);
  for (int64_t& begin : layout.begin)
    if (begin >= 0) begin = partition.offset(size_t(begin));
  layout.full = partition.full();
  layout.shard = partition.shard();
  return layout;
}

// "0 2 moments", case 0 and rank 2: the beginning of the names in a record.
inline std::string part_name(size_t which, int rank, State state) {
  return str(which, " ", rank, state == State::weights ? " weights" : " moments");
}

}  // namespace zl::exercises::reshard_checks
