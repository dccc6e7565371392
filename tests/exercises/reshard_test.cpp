// The judge of exercise 10: what it expects, and what its checks find.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tutorials/exercises/10_reshard/loads.h"

namespace zl::exercises::reshard_checks {
namespace {

constexpr const char* kChecks[] = {kSame,   kMore,   kFewer, kEmpty,  kReads,
                                   kFrozen, kThawed, kTied,  kUntied, kAll};

// Calls `visit` for each shard that a check asks for; true if it returns true for one.
template <typename Visit>
bool any_shard(const char* check, uint64_t seed, const Visit& visit) {
  for (const ReshardCase& c : reshard_cases(check, seed))
    for (int rank = 0; rank < c.now.ranks; ++rank)
      for (const State state : kStates)
        if (visit(c, rank, state)) return true;
  return false;
}

bool differs(const Load& a, const Load& b) {
  return !same_shard(a, b) || !std::ranges::is_permutation(a.reads, b.reads);
}

}  // namespace

TEST_CASE("two loading sides of exercise 10 agree: by the partition, and by the rules",
          "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks) {
      CAPTURE(check, seed);
      CHECK_FALSE(any_shard(check, seed, [](const ReshardCase& c, int rank, State state) {
        return differs(right_load(c, rank, state), simulated(c, rank, state));
      }));
    }
}

TEST_CASE("the checks of exercise 10 find each mistake that has a diagnosis", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const std::vector<Mistake>* mistakes : {&kWrongShards, &kWrongReads})
      for (const Mistake& mistake : *mistakes) {
        CAPTURE(seed, mistake.meaning);
        CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
          return any_shard(check, seed, [&](const ReshardCase& c, int rank, State state) {
            const Load wrong = simulated(c, rank, state, mistake.rules);
            const bool values = mistakes == &kWrongShards;
            return values ? !same_shard(wrong, right_load(c, rank, state))
                          : differs(wrong, right_load(c, rank, state));
          });
        }));
      }
}

// Loaded by M ranks, saved again, and loaded by N: the same pieces, but for their padding.
TEST_CASE("resharding there and back gives what was saved", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const ReshardCase& c : reshard_cases(kMore, seed)) {
      const FlatLayout before = flat_layout(c.saved, State::weights);
      const FlatLayout after = flat_layout(c.now, State::weights);
      std::vector<float> flat;
      for (int rank = 0; rank < c.now.ranks; ++rank) {
        const std::vector<float> shard = right_load(c, rank, State::weights).shard;
        flat.insert(flat.end(), shard.begin(), shard.end());
      }
      REQUIRE(flat.size() == size_t(after.full));
      flat.resize(size_t(before.full), 0);
      for (int rank = 0; rank < c.saved.ranks; ++rank) {
        std::vector<float> piece = saved_piece(c.saved, rank, State::weights);
        for (float& x : piece) x = std::max(x, 0.0f);  // padding is negative
        CHECK(std::equal(piece.begin(), piece.end(), flat.begin() + rank * before.shard));
      }
    }
}

// The table in task.md.
TEST_CASE("the task of exercise 10 shows the library's positions", "[exercises]") {
  for (const auto& [ranks, full, shard] : {std::tuple{2, 64, 32}, {3, 96, 32}, {4, 64, 16}}) {
    const FlatLayout layout =
        flat_layout({.ranks = ranks, .parameters = {{.numel = 20}, {.numel = 30}}}, State::weights);
    CHECK(layout.begin == std::vector<int64_t>{0, 32});
    CHECK(layout.full == full);
    CHECK(layout.shard == shard);
  }
}

}  // namespace zl::exercises::reshard_checks
