// What each rank did in the last step of a run: computed, with calls in flight or without, or
// waited. Read from the event streams of ranks that are threads and have lanes.
#pragma once

#include <string>
#include <vector>

#include "stages/train/trainer.h"

namespace zl::cli {

class StepTimeline {
 public:
  explicit StepTimeline(int ranks) : ranks_(size_t(ranks)) {}
  StepTimeline(const StepTimeline&) = delete;  // the ranks' listeners hold its address
  StepTimeline& operator=(const StepTimeline&) = delete;

  // To be called on each rank before the first step and after the last one. Without a lane it
  // records nothing.
  void at_start(Trainer& training);
  void at_end(Trainer& training);

  // A heading and one line for each of the first ranks, when all have ended. "": nothing recorded.
  std::string text(const std::string& stage) const;

 private:
  struct Span {
    int64_t begin, end;  // [ns]
  };
  struct Call {  // that has not been waited for
    const char* name;
    int64_t issued, waits_from, moved;  // [ns]; 0: not yet
  };
  struct Rank {  // used by its rank's thread only
    bool recording = false, updated = true;
    int64_t begin = 0, end = 0;  // [ns] of the step
    std::vector<Call> open;
    std::vector<Span> in_flight, waiting;
  };
  static void see(Rank& rank, const Event& event);
  static void see_call(Rank& rank, const Event& event);
  static std::string line(const Rank& rank, const Span& step);

  std::vector<Rank> ranks_;
};

}  // namespace zl::cli
