// Schedules of an explored run: what happens next.
//
// A run consists of steps. In each step one actor goes on: rank r runs to its next event (actor r),
// or the network carries out the call at the head of all ranks' lanes (actor N).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zl::test {

// Where a choice is made.
struct Choice {
  std::span<const int> enabled;  // actors that can go on, ascending, at least one
  int current = 0;               // the rank that went on last
  int ranks = 0;                 // N, which is the network's number
  bool communicates = false;     // `current` stopped at an issue, a wait or a unit event
  int call = 0;                  // the number of the network's next call, from 0

  bool network() const { return enabled.back() == ranks; }
  // `current` if it can go on, else the lowest rank that can, else the network.
  int usual() const;
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual int next(const Choice& choice) = 0;  // one of choice.enabled
};

// Carries out each call as soon as all ranks have issued it.
class Eager final : public Schedule {
 public:
  int next(const Choice& c) override { return c.network() ? c.ranks : c.usual(); }
};

// Carries out a call only when no rank can do anything else.
class Lazy final : public Schedule {
 public:
  int next(const Choice& c) override { return c.usual(); }
};

// Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte 2010, "A
// randomized scheduler with probabilistic guarantees of finding bugs"). Each actor gets a random
// priority, and the enabled actor with the highest one goes on. At d - 1 random steps the actor
// that went on last gets a priority below all others. A bug that needs d ordered steps is found
// with a probability of at least 1 / (n k^(d-1)), where n is the number of actors and k of steps.
class Pct final : public Schedule {
 public:
  Pct(uint64_t seed, int depth, int actors, int64_t steps);
  int next(const Choice& c) override;

 private:
  std::vector<int64_t> priorities_, change_points_;
  int64_t step_ = 0;
  int last_ = -1;
};

// Depth-first search through the steps at which the network may carry out its next call. Ranks go
// on in the usual order. Of the steps between two unit events, waits or issues of later calls it
// tries the first only: what a rank does in between cannot depend on a call that it has not waited
// for, unless there is a race, which is found in every order.
//
//   do … while (search.advance());   // each time with a run of the same program
class DepthFirst final : public Schedule {
 public:
  // Searches `calls` calls from number `first` on; the others are carried out eagerly.
  explicit DepthFirst(int first = 0, int calls = std::numeric_limits<int>::max())
      : first_(first), calls_(calls) {}
  int next(const Choice& c) override;
  bool advance();  // to the next schedule; false: all were run

 private:
  int first_, calls_;
  std::vector<bool> waits_;  // at each branch: whether the network waits
  size_t at_ = 0;
};

// "eager", "lazy", or "pct SEED".
struct ScheduleName {
  std::string kind;
  uint64_t seed = 0;
  std::string text() const;
};
inline constexpr int kPctDepth = 3;
// `steps` [n]: k, the steps of another run of the same program.
std::unique_ptr<Schedule> make_schedule(const ScheduleName& name, int ranks, int64_t steps);

}  // namespace zl::test
