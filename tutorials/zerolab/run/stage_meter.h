// Two measurements of one run beside those of the trainer: how long each rank waits for the others
// in each step, and what rank 0's memory holds at its peak. Both are read from the event streams.
#pragma once

#include <array>
#include <vector>

#include "stages/train/trainer.h"

namespace zl::cli {

using MemoryByUse = std::array<int64_t, kMemoryUses>;  // [B]

class StageMeter {
 public:
  explicit StageMeter(int ranks) : ranks_(size_t(ranks)) {}
  StageMeter(const StageMeter&) = delete;  // the ranks' listeners hold its address
  StageMeter& operator=(const StageMeter&) = delete;

  // To be called on each rank before the first step and after the last one.
  void at_start(Trainer& training);
  void at_end(Trainer& training);

  // The results, on the process of rank 0 when all ranks have ended.
  // [s] median over the steps, by rank. A step's waiting counts at most as long as the step.
  std::vector<double> waiting(const std::vector<StepRecord>& steps) const;
  // Device memory of rank 0 by use, at the first instant at which the total was highest.
  const MemoryByUse& at_peak() const { return ranks_[0].at_peak; }

 private:
  struct Open {  // a collective that other ranks have not entered yet
    const char* name;
    int64_t waits_from;  // [ns] its begin; of a call in flight, when the rank began to wait for it
  };
  struct Rank {                   // used by its rank's thread only
    std::vector<int64_t> waited;  // [ns] by step
    std::vector<Open> open;
    bool updated = true;  // the step before has made its update
    MemoryByUse live{}, at_peak{};
  };
  static void see(Rank& rank, const Event& event);

  std::vector<Rank> ranks_;
};

}  // namespace zl::cli
