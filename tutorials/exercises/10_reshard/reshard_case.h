// The units of each check of exercise 10, which follow from the seed, and what was saved of them.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/10_reshard/reshard.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::reshard_checks {

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
inline float saved_value(State state, int parameter, int64_t element) {
  return float((state == State::moments ? 100'000 : 0) + 1'000 * (parameter + 1) + element);
}

// "0 2 moments", case 0 and rank 2: the beginning of the names in a record.
std::string part_name(size_t which, int rank, State state);

}  // namespace zl::exercises::reshard_checks
