#include "nn/unit.h"

namespace zl {

int64_t Unit::numel() const {
  int64_t n = 0;
  for (const Parameter* p : parameters) n += p->numel();
  return n;
}

std::shared_ptr<void> make_usable(Unit& unit) {
  ++unit.running;
  for (Parameter* p : unit.parameters) p->usable = true;
  return {nullptr, [&unit](void*) {
            if (--unit.running > 0) return;
            for (Parameter* p : unit.parameters) p->usable = false;
          }};
}

// The backward pass reaches the hooks in reverse: the one after `forward` begins it, the one before
// `forward` ends it. Both share `backward`, so that it also ends if a backward function throws.
Var run_unit(Tape* tape, UnitObserver& observer, Unit& unit, const std::function<Var()>& forward) {
  observer.before_forward(unit, tape != nullptr);
  const auto backward = std::make_shared<std::shared_ptr<void>>();
  if (tape)
    tape->hook([&, backward] {
      backward->reset();
      observer.after_backward(unit);
    });
  Var y;
  {
    const auto running = make_usable(unit);
    y = forward();
  }
  if (tape)
    tape->hook([&, backward] {
      observer.before_backward(unit);
      *backward = make_usable(unit);
    });
  observer.after_forward(unit);
  return y;
}

Var checkpointed(Tape* tape, UnitObserver& observer, const Var& x,
                 const std::function<Var(Tape*, const Var&)>& forward) {
  if (!tape) return forward(nullptr, x);
  // Without a tape, so that no activation outlives this line.
  Tensor y = forward(nullptr, Var::constant(nullptr, x.value())).value();
  const Kept kept = observer.keep_input(x.value());
  return tape->record(std::move(y), [kept, to = x.target(), forward](Tensor dy) {
    Tensor dx;
    Tape again;
    const Var input = again.record(kept(), [&dx](Tensor grad) { dx = std::move(grad); });
    again.backward(forward(&again, input), std::move(dy));
    if (dx.defined()) Tape::accumulate(to, std::move(dx));
  });
}

}  // namespace zl
