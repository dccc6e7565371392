// The units of each check of exercise 10, which follow from the seed, and what was saved of them.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/10_reshard/reshard.h"
#include "tutorials/exercises/grader/measure.h"

namespace zl::exercises::reshard_checks {

inline constexpr char kSame[] = "the same number of ranks", kMore[] = "more ranks",
                      kFewer[] = "fewer ranks", kEmpty[] = "empty shards",
                      kReads[] = "what is read", kFrozen[] = "frozen parameters",
                      kThawed[] = "frozen or trained since", kTied[] = "tied weights",
                      kUntied[] = "tied or untied since", kAll[] = "all of these";

struct ReshardCase {
  ShardedUnit saved, now;
};
std::vector<ReshardCase> reshard_cases(const std::string& check, uint64_t seed);

inline constexpr State kStates[] = {State::weights, State::moments};

// By the library's Partition.
struct FlatLayout {
  std::vector<int64_t> begin;  // [n] by parameter; -1: it is not in this memory
  int64_t full = 0, shard = 0;
};
FlatLayout flat_layout(const ShardedUnit& unit, State state);

// Each element has another value; those of padding are negative.
float saved_value(State state, int parameter, int64_t element);
// The shard that `rank` saved.
std::vector<float> saved_piece(const ShardedUnit& saved, int rank, State state);

// "0 of 3, moments, case 2": the beginning of the names in a record.
std::string part_name(size_t which, int rank, State state);

}  // namespace zl::exercises::reshard_checks
