#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/02_final_gradient/simulation.h"

namespace zl::exercises::final_gradient_checks {

const std::vector<Mistake> kWrongCalls = {
    {{.first_contribution = true},
     "ready() is called with the first contribution: a parameter with several uses gets one from "
     "each, and its gradient is final with the last"},
    {{.first_contribution = true, .every_micro_batch = true},
     "ready() is called with the first contribution in every micro-batch"},
    {{.every_micro_batch = true},
     "ready() is called in every micro-batch: before the last one the gradient is not final, and "
     "each call costs a reduction"},
    {{.first_micro_batch = true},
     "ready() is called in the first micro-batch: later ones still add to the gradient"},
    {{.counts_evaluation = true},
     "uses of evaluation are counted: no backward pass follows them, so the contributions that are "
     "expected never come"},
    {{.all_at_end = true},
     "every gradient is ready at the end of backward only: most are final earlier, and their "
     "reductions could run during the rest of backward"},
    {{.counts_again = true},
     "a checkpointed use is counted twice, when it runs forward and when it runs again: it "
     "contributes once"},
    {{.counts_again = true, .counts_checkpointed = false},
     "a checkpointed use is counted only when it runs again, in backward: until then a parameter "
     "with another use seems final"},
    {{.counts_checkpointed = false},
     "checkpointed uses are not counted: backward runs them again, and then they contribute"},
    {{.keeps_counts = true},
     "a use without a contribution is still expected in the next micro-batch: begin each one with "
     "counts of 0"},
    {{.keeps_finished = true},
     "what was ready in one step is taken for ready in the next: begin_step() must forget it"},
    {{.only_used = true},
     "a parameter that no micro-batch uses is never ready: another rank may have used it, and then "
     "waits for this rank's reduction"},
    {{.only_used_in_last = true},
     "a parameter that only earlier micro-batches use is never ready: its gradient is lost"},
    {{.only_used_in_last = true, .only_used = true},
     "a parameter that the last micro-batch does not use is never ready: call ready() for it at "
     "the "
     "end of backward"},
    {{.only_complete = true},
     "parameters without a last contribution in the last micro-batch are never ready: call ready() "
     "for them at the end of backward, because all ranks must make the same reductions"},
    {{.reversed_end = true},
     "the parameters that are left at the end of backward must be ready in the order of their "
     "numbers, so that all ranks reduce in one order"}};

const std::vector<Mistake> kWrongValues = {
    {{.replaces_in_micro_batch = true},
     "ready() is called with the gradient of the last micro-batch alone: earlier ones are missing"},
    {{.replaces = true},
     "the gradient is the last contribution alone: later contributions must be added"},
    {{.sums_steps = true},
     "the gradients of earlier steps are still in the sum: the first contribution of a step must "
     "set the gradient"},
    {{.leaves_unused = true},
     "a gradient without a contribution in this step is not 0: it holds what was there before"}};

namespace {

using Kind = Event::Kind;

class Simulation {
 public:
  Simulation(const Script& script, const Behaviour& behaviour)
      : script_(script), do_(behaviour), state_(script.sizes.size()) {
    for (size_t p = 0; p < state_.size(); ++p)
      state_[p].gradient.assign(size_t(script.sizes[p]), NAN);
  }

  std::vector<Call> calls() {
    for (size_t i = 0; i < script_.events.size(); ++i) {
      at_ = int(i);
      handle(script_.events[i]);
    }
    return calls_;
  }

 private:
  struct State {
    int expected = 0;                              // contributions to come
    bool in_step = false, in_micro_batch = false;  // it has contributions
    bool used_in_last = false;                     // it has uses that count
    bool finished = false;
    Numbers gradient;
  };

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::begin_step: return begin_step();
      case Kind::use: return use(state_[size_t(event.parameter)], event.use);
      case Kind::begin_backward:
        calling_ = do_.every_micro_batch   ? true
                   : do_.first_micro_batch ? event.micro_batch == 0
                                           : event.last;
        for (State& s : state_) s.in_micro_batch = false;
        return;
      case Kind::contribution: return contribution(event);
      case Kind::end_backward: return end_backward();
    }
  }

  void begin_step() {
    for (State& s : state_) {
      s.in_step = do_.sums_steps && s.in_step;
      s.used_in_last = false;
      s.expected = 0;
      s.finished = do_.keeps_finished && s.finished;
    }
  }

  void use(State& s, Use use) {
    const bool counts = use == Use::recorded ||
                        (use == Use::checkpointed && do_.counts_checkpointed) ||
                        (use == Use::evaluation && do_.counts_evaluation) ||
                        (use == Use::again && do_.counts_again);
    if (!counts) return;
    ++s.expected;
    s.used_in_last = true;
  }

  void contribution(const Event& event) {
    State& s = state_[size_t(event.parameter)];
    const bool adds = do_.replaces                  ? false
                      : do_.replaces_in_micro_batch ? s.in_micro_batch
                                                    : s.in_step;
    for (size_t i = 0; i < s.gradient.size(); ++i)
      s.gradient[i] = (adds ? s.gradient[i] : 0) + double(event.values[i]);
    const bool first = !s.in_micro_batch;
    s.in_step = s.in_micro_batch = true;
    --s.expected;
    const bool final = do_.first_contribution ? first : s.expected == 0;
    if (final && calling_ && !do_.all_at_end) call(event.parameter);
  }

  void end_backward() {
    for (int i = 0; i < int(state_.size()); ++i) {
      const int p = do_.reversed_end ? int(state_.size()) - 1 - i : i;
      const State& s = state_[size_t(p)];
      const bool left_out = do_.only_complete ||
                            (do_.only_used_in_last && s.in_step && !s.used_in_last) ||
                            (do_.only_used && !s.in_step);
      if (calling_ && !s.finished && !left_out) call(p);
    }
    for (State& s : state_) {
      if (!do_.keeps_counts) s.expected = 0;
      s.used_in_last = false;
      if (do_.every_micro_batch) s.finished = false;
    }
  }

  void call(int parameter) {
    State& s = state_[size_t(parameter)];
    if (s.finished && !do_.repeats) return;
    s.finished = true;
    if (!s.in_step && !do_.leaves_unused) s.gradient.assign(s.gradient.size(), 0);
    calls_.push_back({at_, parameter, s.gradient});
  }

  const Script& script_;
  const Behaviour do_;
  std::vector<State> state_;
  std::vector<Call> calls_;
  int at_ = -1;
  bool calling_ = false;  // in this backward pass
};

}  // namespace

std::vector<Call> simulate(const Script& script, const Behaviour& behaviour) {
  return Simulation(script, behaviour).calls();
}

std::string describe(const Script& script, int event) {
  if (event < 0) return "before the first event";
  const Event& e = script.events[size_t(event)];
  const std::string where =
      str(", micro-batch ", e.micro_batch + 1, " of ", script.micro_batches, ", step ", e.step + 1);
  switch (e.kind) {
    case Kind::begin_step: return str("the beginning of step ", e.step + 1);
    case Kind::begin_backward: return "the beginning of backward" + where;
    case Kind::end_backward: return "the end of backward" + where;
    case Kind::use: return str("a use of parameter ", e.parameter, where);
    case Kind::contribution: break;
  }
  int before = 0, all = 0;
  for (size_t i = 0; i < script.events.size(); ++i) {
    const Event& other = script.events[i];
    if (other.kind != e.kind || other.parameter != e.parameter || other.step != e.step ||
        other.micro_batch != e.micro_batch)
      continue;
    ++all;
    before += int(i) <= event;
  }
  return str("contribution ", before, " of ", all, " to parameter ", e.parameter, where);
}

}  // namespace zl::exercises::final_gradient_checks
