// Exercises 05 to 07: trains with the student's stage and records what it did.
#include "tutorials/exercises/judge/measure.h"

#include <algorithm>
#include <cstdio>

#include "stages/diagnosis/diagnosis.h"
#include "stages/train/gradient_bound.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/stages/watched_stage.h"
#include "tutorials/lesson/stepper.h"
#include "tutorials/recording/stage_reader.h"

namespace zl::exercises {
namespace {

// The ranks' threads write, each in its own place.
TrainingCallbacks reading(const StageCase& c, std::vector<WatchedRank>& ranks) {
  const auto of = [&ranks](Trainer& t) -> WatchedRank& { return ranks[size_t(t.comm().rank())]; };
  TrainingCallbacks callbacks;
  callbacks.after_backward = [=](Trainer& t) {
    if (t.steps() == 1 && t.engine().is_gradient_accumulation_boundary())
      of(t).seen.put("gradient", gradient_shards(t));
  };
  if (c.reads_weights)
    callbacks.after_step = [=](Trainer& t) {
      of(t).seen.put(str("weights ", t.steps()), full_parameters(t.engine().stage()));
    };
  callbacks.at_end = [=](Trainer& t) { of(t).comm->finish(); };
  return callbacks;
}

Record record_of(const TrainingResult& result, std::vector<WatchedRank>& ranks) {
  Record record;
  record.put("loss", std::views::transform(result.steps, &StepRecord::loss));
  record.put("norm", std::views::transform(result.steps, &StepRecord::grad_norm));
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<SentRow> sent;
    for (const auto& [key, traffic] : result.ranks[r].log.rows())
      sent.push_back({Purpose(std::min(unsigned(key.purpose), unsigned(Purpose::scales))),
                      key.collective, traffic});
    ranks[r].seen.put_rows("sent", sent);
    ranks[r].seen.put_rows("calls", ranks[r].calls);
    record.add(int(r), ranks[r].seen);
  }
  return record;
}

// Runs the stage, and shows what was recorded from the last event at or before `first` on.
void show(const TrainingSpec& spec, recording::Recording& recording, int64_t first) {
  std::string error;
  try {
    run_training(spec, {.at_end = [&](Trainer& t) { recording.stop(t.comm().rank()); }});
  } catch (const std::exception& e) {
    error = e.what();
  }
  int64_t event = 0;
  while (event + 1 < recording.events() && recording.at(event + 1)[0]->sequence <= first) ++event;
  try {
    // 0: the check does not know where its failure begins.
    lesson::show_events(recording, event,
                        first > 0 ? "here the check saw the first difference" : "");
  } catch (const lesson::Left&) {
  }
  if (!error.empty()) std::printf("the run ended with: %s\n", error.c_str());
}

}  // namespace

Record measure(const CheckOptions& options) {
  const StageCase c = stage_case(options);
  TrainingSpec spec = c.spec;
  if (options.device == DeviceKind::cuda) {
    spec.device = DeviceKind::cuda;
    std::vector<int> usable;
    for (const Gpu& gpu : find_gpus().gpus)
      if (gpu.problem.empty()) usable.push_back(gpu.index);
    spec.backends = on_gpus(usable);
  }
  std::vector<WatchedRank> ranks(static_cast<size_t>(spec.ranks));
  std::vector<Costs> costs(ranks.size());
  recording::Recording recording(spec.ranks);
  const bool steps = options.step_from >= 0;
  spec.make_stage = [&](std::vector<Unit>& units, Communicator& comm, Memories memories,
                        const Options& o) -> std::unique_ptr<Stage> {
    count_costs(comm.events(), costs[size_t(comm.rank())]);
    auto watched =
        std::make_unique<WatchedStage>(ranks[size_t(comm.rank())], units, comm, memories, o);
    if (steps)
      recording.watch(comm, memories.device, recording::holdings(*watched, units, comm.events()));
    watched->start();
    return watched;
  };
  if (steps) {
    show(spec, recording, options.step_from);
    return {};
  }
  Record record = record_of(run_training(spec, reading(c, ranks)), ranks);
  if (!c.reads_weights) record.put_rows("costs", costs);
  return record;
}

}  // namespace zl::exercises
