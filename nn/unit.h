// A unit is a group of parameters that are gathered, reduced and released together, and the events
// of its passes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace zl {

struct Unit {
  std::string name;
  std::vector<Parameter*> parameters;
  int index =
      0;  // position in the model's list of units; 0 is root, which is open during the whole pass
  int running = 0;  // passes, forward or backward, that are inside this unit; its parameters are
                    // open while there is one

  int64_t numel() const;  // [n] without padding
};

// The events at which a stage may act, in the order of a training pass. A pass without a tape
// (evaluation, sampling) has before_forward and after_forward only.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void enter(Unit&) {}  // a forward pass begins that a backward pass will follow
  virtual void before_forward(Unit&) {}
  virtual void after_forward(Unit&) {}
  virtual void before_backward(Unit&) {}
  virtual void leave(Unit&) {
  }  // the walk has passed one forward pass of the unit; counts enter() back
  virtual void after_backward(Unit&) {}
};

// Runs `forward` as one pass of the unit. This is the whole hook mechanism.
Var run_unit(Tape* tape, UnitObserver& observer, Unit& unit, const std::function<Var()>& forward);

// The same, but keeps only `x` and runs `forward` a second time, on a tape of its own, when the
// walk comes back: activation recomputation, Chen et al. 2016 (arXiv:1604.06174). Same bits,
// smaller peak, one more forward pass.
Var run_unit_recomputed(Tape* tape, UnitObserver& observer, Unit& unit, const Var& x,
                        const std::function<Var(Tape*, const Var&)>& forward);

// Opens the unit's parameters while it lives. Units nest; a unit may run inside itself.
class OpenUnit {
 public:
  explicit OpenUnit(Unit& unit);
  ~OpenUnit();
  OpenUnit(const OpenUnit&) = delete;
  OpenUnit& operator=(const OpenUnit&) = delete;

 private:
  Unit& unit_;
};

}  // namespace zl
