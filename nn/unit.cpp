#include "nn/unit.h"

#include <memory>
#include <optional>

namespace zl {

int64_t Unit::numel() const {
  int64_t n = 0;
  for (const Parameter* p : parameters) n += p->numel();
  return n;
}

OpenUnit::OpenUnit(Unit& unit) : unit_(unit) {
  ++unit_.running;
  for (Parameter* p : unit_.parameters) p->open = true;
}

OpenUnit::~OpenUnit() {
  if (--unit_.running) return;
  for (Parameter* p : unit_.parameters) p->open = false;
}

Var run_unit(Tape* tape, UnitObserver& observer, Unit& unit, const std::function<Var()>& forward) {
  if (tape) observer.enter(unit);
  observer.before_forward(unit);
  // Open in backward between the same two marks; shared, so that the unit also closes if the walk
  // ends in between.
  const auto walk = std::make_shared<std::optional<OpenUnit>>();
  if (tape)
    tape->mark([&, walk] {
      walk->reset();
      observer.leave(unit);
      observer.after_backward(unit);
    });
  Var y;
  {
    const OpenUnit open(unit);
    y = forward();
  }
  if (tape)
    tape->mark([&, walk] {
      observer.before_backward(unit);
      walk->emplace(unit);
    });
  observer.after_forward(unit);
  return y;
}

Var run_unit_recomputed(Tape* tape, UnitObserver& observer, Unit& unit, const Var& x,
                        const std::function<Var(Tape*, const Var&)>& forward) {
  if (!tape) return run_unit(tape, observer, unit, [&] { return forward(nullptr, x); });
  return run_unit(tape, observer, unit, [&] {
    Tensor y =
        forward(nullptr, Var::constant(nullptr, x.value())).value();  // its activations die here
    return tape->record(std::move(y), [x, forward](Tensor dy) {
      Tensor dx;
      Tape again;
      const Var input = again.record(x.value(), [&dx](Tensor grad) { dx = std::move(grad); });
      again.backward(forward(&again, input), std::move(dy));
      if (dx.defined()) Tape::accumulate(x.target(), std::move(dx));
    });
  });
}

}  // namespace zl
