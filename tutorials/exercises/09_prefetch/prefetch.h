// Exercise 09: what you write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zl::exercises {

// One micro-batch of stage 3 on one rank: a forward and a backward pass.
struct PrefetchTask {
  std::vector<int64_t> full;  // [n] by unit: its full parameters, with padding; unit 0 is root
  // The units in the order in which each pass uses them. Root is first in both: it runs around the
  // others. The numbers of the other units say nothing about the order.
  std::vector<int> forward, backward;
  int64_t prefetch_bucket_size = 0;  // [n]
  int64_t max_live_parameters = 0;   // [n]
};

enum class Action {
  unshard,  // starts the all-gather; from here on the full parameters take memory
  run,      // waits for the all-gather, then runs the unit's pass
  reshard,  // frees the full parameters
};

struct ScheduleEntry {
  Action action = Action::run;
  int unit = 0;
  bool operator==(const ScheduleEntry&) const = default;
};

// What the rank does in order of time, from the first unshard to the last reshard. At the beginning
// and at the end all units are sharded.
//  - A unit that is not unsharded yet is unsharded when it is to run. No limit delays that.
//  - Then, before it runs, the prefetch visits the units after it in this pass, in order, while the
//    elements of the units that it has visited are fewer than prefetch_bucket_size. It unshards
//    each one that is sharded, if all full parameters together then are at most
//    max_live_parameters. At the first one that does not fit the prefetch ends.
//  - A unit that has run is resharded. But root stays until the end of the backward pass.
std::vector<ScheduleEntry> prefetch_schedule(const PrefetchTask& task);

// [n] The most full parameters that exist at one time in that schedule.
int64_t predicted_peak(const PrefetchTask& task);

}  // namespace zl::exercises
