#include "tutorials/zerolab/draw/step_trace.h"

#include <numeric>

namespace zl::draw {

int64_t Moment::total() const { return std::accumulate(live.begin(), live.end(), int64_t{0}); }

std::vector<Moment> trace_step(const TrainingSpec& spec) {
  std::vector<Moment> moments;
  bool recording = spec.steps == 1;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    if (training.comm().rank() > 0) return;
    const MemoryLedger& ledger = training.memory().ledger();
    training.comm().events().listen([&](const Event& e) {
      if (!recording || e.what == std::string(name(MemoryUse::workspace))) return;
      Moment now{.kind = e.kind,
                 .phase = e.phase,
                 .unit = e.unit,
                 .what = e.what,
                 .detail = e.detail,
                 .bytes = e.bytes,
                 .operations = e.count};
      for (int use = 0; use < kMemoryUses; ++use)
        if (MemoryUse(use) != MemoryUse::workspace)
          now.live[size_t(use)] = ledger.live(MemoryUse(use));
      for (const UnitState& u : training.engine().stage().units())
        now.full += u.full_parameter.defined() && !u.unshard_work.pending() ? '#' : '.';
      moments.push_back(std::move(now));
    });
  };
  callbacks.after_step = [&](Trainer& training) {
    if (training.comm().rank() == 0) recording = training.steps() + 1 == spec.steps;
  };
  run_training(spec, callbacks);
  return moments;
}

}  // namespace zl::draw
