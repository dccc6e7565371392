// Which function of the stage file runs because of an event.
#pragma once

#include <vector>

#include "stages/stage.h"

namespace zl::recording {

// Reads one rank's stream. The names are those of Stage's virtual functions, and only of those that
// the stage's file defines. A function of a unit runs once where it is named at one event of the
// unit or at several that follow each other, such as the unit event and the begin of the collective
// that it starts.
class StageFunctions {
 public:
  // All must outlive it. To be made between two steps.
  StageFunctions(StageKind kind, const Stage& stage, const std::vector<Unit>& units);

  // To be called with every event, in order. Returns the function, "" if none runs.
  const char* at(const Event& event);
  // Whether "reshard" ran between the event before the last and the last, because of the former.
  bool resharded() const { return resharded_; }

 private:
  struct OfUnit {
    std::string parameter_call, gradient_call;  // names of its collectives
    bool gathering = false;                     // the end of an all-gather is still to come
    bool enters_backward = false;               // before_backward follows that end
  };
  const char* before_backward(size_t unit);
  const char* of_unit_event(const Event& event, size_t unit);
  const char* of_collective(const Event& event, OfUnit& unit);

  const Stage& stage_;
  const std::vector<Unit>& units_;
  const bool shards_gradients_, shards_parameters_, gathers_updated_;
  std::vector<OfUnit> of_;
  const UnitState* passed_ = nullptr;  // its pass has just ended, with full parameters
  bool resharded_ = false;
};

}  // namespace zl::recording
