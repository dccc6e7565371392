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

// The whole flat memory of `now` with what `saved` has for it, by the library's Partition. Each
// element has another value: 1000 x (parameter + 1) + its number, and 100,000 more if it is a
// moment. The rest is 0.
inline Values flat_memory(const ShardedUnit& saved, const ShardedUnit& now, State state) {
  std::vector<int64_t> sizes, first_values;  // 0: it was not saved
  for (size_t p = 0; p < now.parameters.size(); ++p) {
    const auto [numel, frozen, tied_to] = now.parameters[p];
    if (tied_to >= 0 || (state == State::moments && frozen)) continue;
    const int was_tied_to = saved.parameters[p].tied_to;
    const size_t source = was_tied_to >= 0 ? size_t(was_tied_to) : p;
    const bool lost = state == State::moments && saved.parameters[source].frozen;
    sizes.push_back(numel);
    first_values.push_back(
        lost ? 0 : int64_t(1'000 * (source + 1) + (state == State::moments ? 100'000 : 0)));
  }
  FlatUnits units(sizes);
  Unit flat;
  for (Parameter& parameter : units.parameters) flat.parameters.push_back(&parameter);
  const Partition partition(flat, now.ranks);
  Values values(size_t(partition.full()));
  for (size_t i = 0; i < sizes.size(); ++i)
    for (int64_t e = 0; first_values[i] > 0 && e < sizes[i]; ++e)
      values[size_t(partition.offset(i) + e)] = double(first_values[i] + e);
  return values;
}

// Of some units, each part that a rank loads. Sizes are odd: padding is between all parameters.
// Where flags differ between the runs, units that were tied and units that are tied alternate.
inline std::vector<Part> reshard_parts(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  const bool reads = is("what is read"), tied = is("tied weights"),
             tied_since = reads || is("tied or untied since"),
             frozen = reads || is("frozen parameters"),
             frozen_since = is("frozen or trained since");
  std::vector<Part> parts;
  for (int i = 0; i < 9; ++i) {
    ShardedUnit saved{.ranks = 1 + i % 5}, now{.ranks = saved.ranks};
    if (!is("the same number of ranks")) now.ranks = 1 + int(saved.ranks + draw.between(0, 4)) % 6;
    const bool few = is("another number of ranks") && i % 2 == 1;  // some shards are empty
    for (int p = 0, n = few ? 2 : int(draw.between(5, 7)); p < n; ++p) {
      UnitParameter one{2 * draw.between(0, few ? 15 : 90) + 1, frozen && p % 3 == 0}, was = one;
      if (frozen_since) was.frozen = p % 3 == 2, one.frozen = p % 3 == 1;
      if ((tied || tied_since) && p % 2 == 1) {  // 1 and 3 to 0, 5 to 4
        const int leader = p == 3 ? 0 : p - 1;
        was.numel = one.numel = now.parameters[size_t(leader)].numel;
        if (tied || i % 2 == 1) was.tied_to = leader;
        if (tied || i % 2 == 0) one.tied_to = leader;
      }
      saved.parameters.push_back(was);
      now.parameters.push_back(one);
    }
    for (int rank = 0; rank < now.ranks; ++rank)
      for (const State state : {State::weights, State::moments})
        parts.push_back({saved, now, rank, state});
  }
  return parts;
}

}  // namespace zl::exercises::reshard_checks
