// Address maps on sequences whose arenas can be drawn on paper.
#include "stages/residual/arena_model.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <vector>

#include "tensor/random.h"

using namespace zl;

namespace {

BlockEvent take(int64_t block, int64_t bytes) { return {block, bytes, true}; }
BlockEvent give(int64_t block, int64_t bytes) { return {block, bytes, false}; }

// A layer at a time: a short-lived block of `work` bytes, then a checkpoint of `keep` bytes while
// the work is still there. The next layer's work is `growth` bytes larger.
std::vector<BlockEvent> interleaved(int layers, int64_t work, int64_t keep, int64_t growth) {
  std::vector<BlockEvent> events;
  for (int i = 0; i < layers; ++i) {
    events.push_back(take(i, work + i * growth));
    events.push_back(take(1000 + i, keep));
    events.push_back(give(i, work + i * growth));
  }
  return events;
}

ArenaUse replay(const std::vector<BlockEvent>& events, Fit fit) {
  ArenaModel arena(fit);
  for (const BlockEvent& event : events) arena.see(event);
  return arena.use();
}

// The same policies without lists of holes: a map with one letter per byte.
ArenaUse letter_by_letter(const std::vector<BlockEvent>& events, Fit fit) {
  std::vector<int64_t> owner;  // of each byte; -1: free
  ArenaUse use;
  int64_t live = 0;
  for (const BlockEvent& e : events) {
    if (!e.allocates) {
      std::replace(owner.begin(), owner.end(), e.block, int64_t(-1));
      while (!owner.empty() && owner.back() == -1) owner.pop_back();
      live -= e.bytes;
      continue;
    }
    size_t best = owner.size(), size_of_best = size_t(-1);
    for (size_t i = 0; i < owner.size();) {
      size_t end = i;
      while (end < owner.size() && owner[end] == -1) ++end;
      const size_t size = end - i;
      if (size >= size_t(e.bytes) && (fit == Fit::best || size_of_best == size_t(-1)) &&
          size < size_of_best)
        best = i, size_of_best = size;
      i = end + 1;
    }
    owner.resize(std::max(owner.size(), best + size_t(e.bytes)), -1);
    std::fill_n(owner.begin() + std::ptrdiff_t(best), e.bytes, e.block);
    live += e.bytes;
    use.peak_live = std::max(use.peak_live, live);
    use.high_water = std::max(use.high_water, int64_t(owner.size()));
  }
  return use;
}

// Takes and gives back blocks at random; few enough bytes for letter_by_letter().
std::vector<BlockEvent> random_events(uint64_t seed) {
  const PhiloxStream random{seed, 3};
  std::vector<BlockEvent> events, live;
  for (uint64_t i = 0; i < 200; ++i) {
    const double what = random.uniform(3 * i);
    if (live.empty() || what < 0.55) {
      live.push_back(take(int64_t(i), 1 + int64_t(random.uniform(3 * i + 1) * 40)));
      events.push_back(live.back());
      continue;
    }
    const auto at = live.begin() + std::ptrdiff_t(random.uniform(3 * i + 2) * double(live.size()));
    events.push_back(give(at->block, at->bytes));
    live.erase(at);
  }
  return events;
}

}  // namespace

TEST_CASE("long-lived blocks between short-lived ones leave holes, and chunks do not", "[stages]") {
  // Layer i: work of 10 + i bytes, a checkpoint of 1. No hole is large enough for the next work:
  //   w w … w c        10 + 1
  //   . . … . c W … W  11 bytes of work behind the checkpoint, then its checkpoint in the hole.
  const auto events = interleaved(3, 10, 1, 1);
  for (const Fit fit : {Fit::first, Fit::best}) {
    const ArenaUse use = replay(events, fit);
    CHECK(use.peak_live == 12 + 3);
    CHECK(use.high_water == 11 + 12);
    CHECK(use.overhead() > 0.5);
  }
  // Checkpoints in a chunk, work in the rest: each is as small as it can be.
  std::vector<BlockEvent> kept, work;
  for (const BlockEvent& e : events) (e.block >= 1000 ? kept : work).push_back(e);
  for (const Fit fit : {Fit::first, Fit::best}) {
    CHECK(replay(kept, fit) == ArenaUse{3, 3});
    CHECK(replay(work, fit) == ArenaUse{12, 12});
    CHECK(replay(kept, fit).high_water + replay(work, fit).high_water <
          replay(events, fit).high_water);
  }
}

TEST_CASE("arenas agree with a map of single bytes on 100 random sequences", "[stages]") {
  int apart = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto events = random_events(seed);
    CAPTURE(seed);
    const ArenaUse first = replay(events, Fit::first), best = replay(events, Fit::best);
    CHECK(first == letter_by_letter(events, Fit::first));
    CHECK(best == letter_by_letter(events, Fit::best));
    CHECK((first.high_water >= first.peak_live && best.high_water >= best.peak_live));
    apart += first.high_water != best.high_water;
  }
  CHECK(apart > 0);  // the twin: the policies are not the same
}

TEST_CASE("a sequence that contradicts itself is refused", "[stages]") {
  CHECK_THROWS_AS(replay({take(1, 4), take(1, 4)}, Fit::first), std::invalid_argument);
  CHECK_THROWS_AS(replay({give(1, 4)}, Fit::first), std::invalid_argument);
  CHECK_THROWS_AS(replay({take(1, 4), give(1, 5)}, Fit::first), std::invalid_argument);
}
