#include "tests/stages/explored/schedules.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tensor/error.h"

namespace zl::test {

int Choice::usual() const {
  return std::ranges::find(enabled, current) != enabled.end() ? current : enabled.front();
}

Pct::Pct(uint64_t seed, int depth, int actors, int64_t steps) : priorities_(size_t(actors)) {
  std::mt19937_64 random(seed);
  std::iota(priorities_.begin(), priorities_.end(), depth);
  for (size_t i = priorities_.size();
       i-- > 1;)  // Fisher and Yates; std::shuffle differs by library
    std::swap(priorities_[i], priorities_[size_t(random() % (i + 1))]);
  for (int i = 1; i < depth; ++i)
    change_points_.push_back(int64_t(random() % uint64_t(std::max<int64_t>(1, steps))));
}

int Pct::next(const Choice& c) {
  for (size_t i = 0; i < change_points_.size(); ++i)
    if (change_points_[i] == step_ && last_ >= 0) priorities_[size_t(last_)] = int64_t(i);
  ++step_;
  return last_ = *std::ranges::max_element(
             c.enabled, {}, [this](int actor) { return priorities_[size_t(actor)]; });
}

int DepthFirst::next(const Choice& c) {
  if (!c.network() || c.enabled.size() == 1) return c.usual();
  if (c.call < first_ || c.call - first_ >= calls_) return c.ranks;
  if (!c.communicates) return c.usual();
  if (at_ == waits_.size()) waits_.push_back(false);
  return waits_[at_++] ? c.usual() : c.ranks;
}

bool DepthFirst::advance() {
  at_ = 0;
  while (!waits_.empty() && waits_.back()) waits_.pop_back();
  if (waits_.empty()) return false;
  waits_.back() = true;
  return true;
}

std::string ScheduleName::text() const { return kind == "pct" ? str(kind, " ", seed) : kind; }

std::unique_ptr<Schedule> make_schedule(const ScheduleName& name, int ranks, int64_t steps) {
  if (name.kind == "eager") return std::make_unique<Eager>();
  if (name.kind == "lazy") return std::make_unique<Lazy>();
  require(name.kind == "pct", "there is no schedule '", name.kind, "'; try eager, lazy or pct");
  return std::make_unique<Pct>(name.seed, kPctDepth, ranks + 1, steps);
}

}  // namespace zl::test
