// What a rank holds of each unit under a stage, and which function of the stage file runs because
// of an event.
#pragma once

#include <vector>

#include "stages/stage.h"
#include "tutorials/recording/recording.h"

namespace zl::recording {

// Reads one rank's stream: whether the values of full tensors are valid is read from the events,
// because the tensors do not say. The names of functions are those of Stage's virtual functions,
// and only of those that the stage's file defines. A function of a unit runs once where it is named
// at one event of the unit or at several that follow each other, such as the unit event and the
// begin of the collective that it starts.
class StageReader {
 public:
  // All must outlive it. To be made between two steps.
  StageReader(StageKind kind, const Stage& stage, const std::vector<Unit>& units);

  // To be called with every event, in order. Returns the function, "" if none runs.
  const char* at(const Event& event);
  // Whether "reshard" ran between the event before the last and the last, because of the former.
  bool resharded() const { return resharded_; }
  // Now. A row per unit with three letters: parameter, gradient, optimizer state. '#': the rank has
  // the full tensor; '/': its shard; '.': nothing. Of a full tensor that is not valid throughout:
  //   '0'  a gradient that is zero, because the unit was updated and no backward pass has begun
  //   '+'  a gradient of this rank's rows, which is not reduced yet
  //   '~'  a parameter that an all-gather fills, or a gradient after its reduce-scatter: only the
  //        slice that this rank owns is valid
  std::vector<Row> rows() const;

 private:
  struct OfUnit {
    std::string parameter_call, gradient_call;  // names of its collectives
    char parameter = '#', gradient = '0';       // letters of the full tensors, if there are any
    bool updated = false;          // the optimizer has used the gradient: it is cleared next
    bool enters_backward = false;  // before_backward follows the end of the all-gather
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

// A row per unit with three letters: parameter, gradient, optimizer state. The view's legend
// explains them. Listens to `events` from now on; all arguments must live as long as
// the view.
View holdings(const Stage& stage, const std::vector<Unit>& units, EventStream& events);

}  // namespace zl::recording
