// A unit: the parameters that a stage unshards, reduces and reshards together (FSDP's unit), and
// the events of its forward and backward passes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"

namespace zl {

struct Unit {
  std::string name;
  std::vector<Parameter*> parameters;
  int index = 0;    // position in the model's list; 0 is root, inside which all other units run
  int running = 0;  // forward or backward passes of this unit now running; > 0: usable parameters

  int64_t numel() const;  // [n] without padding
};

// The events at which a stage acts, in the order of one pass. A pass without a tape (evaluation,
// sampling) has the first two only. A unit may run several times in one pass.
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void before_forward(Unit&, bool /*recorded*/) {}  // recorded: a backward pass will follow
  virtual void after_forward(Unit&) {}
  virtual void before_backward(Unit&) {}
  virtual void after_backward(Unit&) {}
  // Where `x`, the input of a checkpointed pass, is kept until backward. The result gives it back,
  // with the same bits; backward calls it once. Here: it stays where it is.
  virtual Kept keep_input(Tensor x) {
    return [x = std::move(x)] { return x; };
  }
};

// Runs `forward` as one pass of the unit. This is the whole hook mechanism.
Var run_unit(Tape* tape, UnitObserver& observer, Unit& unit, const std::function<Var()>& forward);

// Activation checkpointing, Chen et al. 2016 (arXiv:1604.06174): of forward(x) only `x` is kept,
// as the observer says, and the backward pass runs `forward` a second time, on another tape. Same
// bits, smaller peak, one more forward. Inside a unit, or around a few that run one after another.
// `observer` and what `forward` refers to must live until backward. `forward` must read its input
// through its argument only, and give the same bits each time.
Var checkpointed(Tape* tape, UnitObserver& observer, const Var& x,
                 const std::function<Var(Tape*, const Var&)>& forward);

// Makes the unit's parameters usable while the result lives. Units nest; a unit may run inside
// itself.
[[nodiscard]] std::shared_ptr<void> make_usable(Unit& unit);

}  // namespace zl
