// diagnosis: a unit is resharded after the next one has been unsharded
// check: no prefetch
// Exercise 09: prefetch.
#include <algorithm>

#include "tutorials/exercises/09_prefetch/prefetch.h"

namespace zl::exercises {
namespace {

class Schedule {
 public:
  explicit Schedule(const PrefetchTask& task) : task_(task), unsharded_(task.full.size()) {}

  void pass(const std::vector<int>& order) {
    for (size_t i = 0; i < order.size(); ++i) {
      const int u = order[i];
      if (!unsharded_[size_t(u)]) unshard(u);
      prefetch(order, i);
      if (before_ != 0) reshard(before_);
      add(Action::run, u);
      before_ = u;
    }
  }

  void finish() {
    reshard(before_);
    reshard(0);
  }

  void reshard(int u) {
    add(Action::reshard, u);
    unsharded_[size_t(u)] = false;
    elements_ -= size(u);
  }

  std::vector<ScheduleEntry> entries;
  int64_t peak = 0;  // [n]

 private:
  int64_t size(int u) const { return task_.full[size_t(u)]; }
  void add(Action action, int u) { entries.push_back({action, u}); }

  void unshard(int u) {
    add(Action::unshard, u);
    unsharded_[size_t(u)] = true;
    elements_ += size(u);
    peak = std::max(peak, elements_);
  }

  void prefetch(const std::vector<int>& order, size_t position) {
    int64_t visited = 0;
    for (size_t i = position + 1; i < order.size(); ++i) {
      if (visited >= task_.prefetch_bucket_size) return;
      const int u = order[i];
      if (!unsharded_[size_t(u)]) {
        if (size(u) + elements_ > task_.max_live_parameters) return;
        unshard(u);
      }
      visited += size(u);
    }
  }

  const PrefetchTask& task_;
  std::vector<bool> unsharded_;
  int before_ = 0;        // the unit that ran last
  int64_t elements_ = 0;  // of all units that are unsharded
};

Schedule schedule_of(const PrefetchTask& task) {
  Schedule schedule(task);
  schedule.pass(task.forward);
  schedule.pass(task.backward);
  schedule.finish();
  return schedule;
}

}  // namespace

std::vector<ScheduleEntry> prefetch_schedule(const PrefetchTask& task) {
  return schedule_of(task).entries;
}

int64_t predicted_peak(const PrefetchTask& task) { return schedule_of(task).peak; }

}  // namespace zl::exercises
