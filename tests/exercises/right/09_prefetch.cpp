// Exercise 09: prefetch. task.md has the question, prefetch.h the contract.
#include <algorithm>
#include <stdexcept>

#include "tutorials/exercises/09_prefetch/prefetch.h"

namespace zl::exercises {
namespace {

// Follows the two passes, and knows which units are unsharded.
class Schedule {
 public:
  explicit Schedule(const PrefetchTask& task) : task_(task), unsharded_(task.full.size()) {}

  // `order` is task_.forward or task_.backward.
  void pass(const std::vector<int>& order) {
    //> throw std::logic_error("not written yet: pass: unshard, prefetch, run and reshard");
    for (size_t i = 0; i < order.size(); ++i) {
      const int u = order[i];
      if (!unsharded_[size_t(u)]) unshard(u);
      prefetch(order, i);
      add(Action::run, u);
      if (u != 0) reshard(u);
    }
    //<
  }
  //>

  void reshard(int u) {
    add(Action::reshard, u);
    unsharded_[size_t(u)] = false;
    elements_ -= size(u);
  }
  //<

  std::vector<ScheduleEntry> entries;
  //>
  // [n]
  int64_t peak = 0;
  //<

 private:
  //>
  int64_t size(int u) const { return task_.full[size_t(u)]; }
  void add(Action action, int u) { entries.push_back({action, u}); }

  void unshard(int u) {
    add(Action::unshard, u);
    unsharded_[size_t(u)] = true;
    elements_ += size(u);
    peak = std::max(peak, elements_);
  }

  //<
  // Which units, after order[position], are unsharded ahead?
  void prefetch(const std::vector<int>& order, size_t position) {
    //> throw std::logic_error("not written yet: prefetch");
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
    //<
  }

  const PrefetchTask& task_;
  std::vector<bool> unsharded_;  // by unit; also while its all-gather is in flight
  //>
  int64_t elements_ = 0;  // of all units that are unsharded
  //<
};

Schedule schedule_of(const PrefetchTask& task) {
  Schedule schedule(task);
  schedule.pass(task.forward);
  schedule.pass(task.backward);
  //>
  schedule.reshard(0);
  //<
  return schedule;
}

}  // namespace

std::vector<ScheduleEntry> prefetch_schedule(const PrefetchTask& task) {
  return schedule_of(task).entries;
}

int64_t predicted_peak(const PrefetchTask& task) {
  //> throw std::logic_error("not written yet: predicted_peak");
  return schedule_of(task).peak;
  //<
}

}  // namespace zl::exercises
