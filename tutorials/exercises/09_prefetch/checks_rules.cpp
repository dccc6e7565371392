// Schedules by the rules of prefetch.h, and by rules with one mistake.
#include <algorithm>
#include <iterator>

#include "tutorials/exercises/09_prefetch/schedules.h"

namespace zl::exercises::prefetch_checks {

const std::vector<Mistake> kMistakes = {
    {{.none = true}, "no unit is unsharded ahead of its use: every all-gather is waited for"},
    {{.forward_only = true}, "the backward pass unshards no unit ahead"},
    {{.forward_order = true}, "the backward pass looks ahead in the order of the forward pass"},
    {{.by_number = true},
     "the units that come next are taken by their numbers, not by the order of the pass"},
    {{.into_backward = true},
     "the forward pass unshards units of the backward pass ahead: the prefetch ends with its pass"},
    {{.counts_new_only = true},
     "units ahead that are unsharded already do not count towards prefetch_bucket_size: with each "
     "unit that runs the prefetch gets further ahead"},
    {{.within_bucket = true},
     "a unit that would exceed prefetch_bucket_size is left out: the sum is compared before a unit "
     "is visited, so the last one may exceed it"},
    {{.reaches_bucket = true},
     "one unit too many is unsharded ahead where the sum is prefetch_bucket_size exactly: the "
     "bucket is full then"},
    {{.counts_current = true},
     "the unit that is about to run counts towards prefetch_bucket_size: only units after it do"},
    {{.ignores_limit = true}, "the prefetch ignores max_live_parameters"},
    {{.skips_misfit = true},
     "a unit that does not fit is skipped and one after it is unsharded: the prefetch must end at "
     "the first one that does not fit"},
    {{.below_limit = true},
     "a unit is not unsharded ahead although all then are max_live_parameters exactly: that fits"},
    {{.exceeds_limit = true},
     "max_live_parameters is compared before the unit is added: the sum exceeds it by up to a "
     "unit"},
    {{.limits_use = true},
     "a unit that is about to run is not unsharded because it does not fit: max_live_parameters "
     "limits the prefetch only"},
    {{.without_root = true}, "root is missing in the sum that max_live_parameters limits"},
    {{.without_in_flight = true},
     "units whose all-gather is in flight are missing in the sum that max_live_parameters limits: "
     "they take memory from its start"},
    {{.without_current = true},
     "the unit that is about to run is missing in the sum that max_live_parameters limits"},
    {{.counts_resharded = true},
     "units that were resharded still count towards max_live_parameters"},
    {{.prefetch_first = true},
     "the next units are unsharded before the one that is about to run: its all-gather waits for "
     "theirs"},
    {{.prefetch_after_run = true},
     "units are unsharded ahead after the pass that the all-gather should overlap with"},
    {{.reshards_root = true}, "root is resharded after the forward pass"},
    {{.keeps_root = true}, "root is not resharded at the end of the backward pass"},
    {{.keeps_blocks = true},
     "units are not resharded after their forward pass: all of them exist at its end"},
    {{.keeps_last = true},
     "the last unit of the forward pass is not resharded because backward uses it next: that is "
     "max_reuse_distance, which is 0 here"},
    {{.reshards_late = true},
     "a unit is resharded after the next one has been unsharded: both take memory"},
};

namespace {

class Simulation {
 public:
  Simulation(const PrefetchTask& task, const Rules& rules)
      : task_(task), rules_(rules), unsharded_(task.full.size()), in_flight_(task.full.size()) {}

  Entries run() {
    pass(false);
    pass(true);
    if (late_ > 0) note(Action::reshard, late_);
    if (unsharded_[0] && !rules_.keeps_root) note(Action::reshard, 0);
    return entries_;
  }

 private:
  int64_t full(int u) const { return task_.full[size_t(u)]; }

  void note(Action action, int u) {
    entries_.push_back({action, u});
    if (action == Action::run) in_flight_[size_t(u)] = false;
    if (action == Action::run) return;
    unsharded_[size_t(u)] = in_flight_[size_t(u)] = action == Action::unshard;
    if (action == Action::unshard) ever_ += full(u);
  }

  void pass(bool backward) {
    const std::vector<int>& order = backward ? task_.backward : task_.forward;
    for (size_t i = 0; i < order.size(); ++i) {
      current_ = order[i];
      if (rules_.prefetch_first) prefetch(backward);
      const bool fits = live() + full(current_) <= task_.max_live_parameters;
      if (!unsharded_[size_t(current_)] && (fits || !rules_.limits_use))
        note(Action::unshard, current_);
      in_flight_[size_t(current_)] = false;
      const bool after = rules_.prefetch_after_run;
      if (!rules_.prefetch_first && !after) prefetch(backward);
      if (late_ > 0) note(Action::reshard, late_);
      late_ = 0;
      note(Action::run, current_);
      if (after) prefetch(backward);
      end(backward, i + 1 == order.size());
    }
    if (!backward && rules_.reshards_root) note(Action::reshard, 0);
  }

  void end(bool backward, bool last) {
    if (current_ == 0 || !unsharded_[size_t(current_)] ||
        (!backward && (rules_.keeps_blocks || (rules_.keeps_last && last))))
      return;
    if (rules_.reshards_late)
      late_ = current_;
    else
      note(Action::reshard, current_);
  }

  // The units that the prefetch visits.
  std::vector<int> next(bool backward) const {
    const std::vector<int>& order =
        backward && !rules_.forward_order ? task_.backward : task_.forward;
    const auto at = std::ranges::find(order, current_);
    std::vector<int> units(at + 1, order.end());
    if (rules_.by_number) {
      const int all = int(task_.full.size());
      units.clear();
      if (backward)
        for (int u = (current_ == 0 ? all : current_) - 1; u > 0; --u) units.push_back(u);
      else
        for (int u = current_ + 1; u < all; ++u) units.push_back(u);
    }
    if (rules_.into_backward && !backward)
      std::copy(task_.backward.begin() + 1, task_.backward.end(), std::back_inserter(units));
    return units;
  }

  int64_t live() const {
    if (rules_.counts_resharded) return ever_;
    int64_t n = 0;
    for (int u = 0; u < int(task_.full.size()); ++u) {
      if (!unsharded_[size_t(u)] || (rules_.without_root && u == 0)) continue;
      if (rules_.without_current && u == current_) continue;
      if (rules_.without_in_flight && in_flight_[size_t(u)]) continue;
      n += full(u);
    }
    return n;
  }

  bool fits(int u) const {
    const int64_t limit = task_.max_live_parameters, n = live();
    if (rules_.ignores_limit) return true;
    if (rules_.exceeds_limit) return n < limit;
    return rules_.below_limit ? full(u) < limit - n : full(u) <= limit - n;
  }

  void prefetch(bool backward) {
    if (rules_.none || (backward && rules_.forward_only)) return;
    const int64_t bucket = task_.prefetch_bucket_size;
    int64_t ahead = rules_.counts_current ? full(current_) : 0;
    for (const int u : next(backward)) {
      if (rules_.reaches_bucket ? bucket == 0 || ahead > bucket : ahead >= bucket) return;
      if (rules_.within_bucket && ahead + full(u) > bucket) return;
      const bool is_new = !unsharded_[size_t(u)];
      if (is_new && fits(u))
        note(Action::unshard, u);
      else if (is_new && !rules_.skips_misfit)
        return;
      if (is_new || !rules_.counts_new_only) ahead += full(u);
    }
  }

  const PrefetchTask& task_;
  const Rules& rules_;
  std::vector<bool> unsharded_, in_flight_;
  Entries entries_;
  int current_ = 0, late_ = 0;  // late_: to be resharded after the next unshard
  int64_t ever_ = 0;            // [n] unsharded so far
};

}  // namespace

Entries simulated(const PrefetchTask& task, const Rules& rules) {
  return Simulation(task, rules).run();
}

int64_t peak_of(const PrefetchTask& task, const Entries& entries) {
  int64_t live = 0, peak = 0;
  for (const ScheduleEntry& entry : entries) {
    const int64_t n = task.full[size_t(entry.unit)];
    if (entry.action == Action::unshard) live += n;
    if (entry.action == Action::reshard) live -= n;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace zl::exercises::prefetch_checks
