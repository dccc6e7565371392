// The units of each check of exercise 10, which follow from the seed, and what was saved of them.
#pragma once

#include <string>
#include <vector>

#include "stages/partition.h"
#include "tutorials/exercises/10_reshard/reshard.h"
#include "tutorials/exercises/judge/flat_units.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::reshard_checks {

// What a rank of `now` loads of a state.
struct Part {
  ShardedUnit saved, now;
  int rank = 0;
  State state{};
};

// A call of SavedPieces::read().
struct PieceRead {
  int piece = 0;
  int64_t elements = 0;
};

// Each element has another value; those of padding are negative.
inline float saved_value(State state, int parameter, int64_t element) {
  return float((state == State::moments ? 100'000 : 0) + 1'000 * (parameter + 1) + element);
}

// By the library's Partition.
struct FlatLayout {
  FlatLayout(const ShardedUnit& unit, State state) {
    std::vector<int64_t> sizes;
    for (const UnitParameter& one : unit.parameters) {
      const bool there = one.tied_to < 0 && (state == State::weights || !one.frozen);
      begin.push_back(there ? std::ssize(sizes) : -1);
      if (there) sizes.push_back(one.numel);
    }
    FlatUnits units(sizes);
    Unit flat;
    for (Parameter& parameter : units.parameters) flat.parameters.push_back(&parameter);
    const Partition partition(flat, unit.ranks);
    for (int64_t& at : begin)
      if (at >= 0) at = partition.offset(size_t(at));
    full = partition.full(), shard = partition.shard();
  }
  std::vector<int64_t> begin;  // [n] by parameter; -1: it is not in this memory
  int64_t full = 0, shard = 0;
};

// Of some units, each part that a rank loads.
inline std::vector<Part> reshard_parts(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  std::vector<Part> parts;
  for (int i = 0; i < 9; ++i) {
    ShardedUnit saved, now;
    const bool few = is("another number of ranks") && i % 2 == 1;  // some shards are empty
    // Odd sizes. Every other parameter has more than 16 elements per rank: a shard has another size
    // with it than without it.
    for (int64_t p = 0, n = few ? 2 : draw.between(5, 7); p < n; ++p)
      saved.parameters.push_back({2 * draw.between(few || p % 2 ? 0 : 50, few ? 15 : 90) + 1});
    // The third parameter is tied to the second, and the last but one to the first.
    const size_t last = saved.parameters.size() - 1;
    const bool reads = is("what is read"), since = reads || is("tied or untied since");
    const std::pair<size_t, int> ties[] = {{2, 1}, {last - 1, 0}};
    for (const auto& [follower, leader] : ties)
      if (since || is("tied weights"))
        saved.parameters[follower] = saved.parameters[size_t(leader)];
    now = saved;
    for (const auto& [follower, leader] : ties) {
      if (is("tied weights") || (since && i % 2 == 1)) saved.parameters[follower].tied_to = leader;
      if (is("tied weights") || (since && i % 2 == 0)) now.parameters[follower].tied_to = leader;
    }
    if (reads || is("frozen parameters"))
      for (const size_t p : {size_t(0), last / 2})
        saved.parameters[p].frozen = now.parameters[p].frozen = true;
    // One that was trained is frozen now, and one that was frozen is trained.
    if (is("frozen or trained since")) saved.parameters[2].frozen = now.parameters[1].frozen = true;
    saved.ranks = 1 + i % 5;
    now.ranks = is("the same number of ranks") ? saved.ranks
                                               : 1 + int(saved.ranks + draw.between(0, 4)) % 6;
    for (int rank = 0; rank < now.ranks; ++rank)
      for (const State state : {State::weights, State::moments})
        parts.push_back({saved, now, rank, state});
  }
  return parts;
}

}  // namespace zl::exercises::reshard_checks
