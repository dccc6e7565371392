// Exercises 05 to 07: trains with the student's stage and records what it did.
#include "tutorials/exercises/judge/measure.h"

#include <cstdio>

#include "stages/diagnosis/diagnosis.h"
#include "stages/train/gradient_bound.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/stages/course_training.h"
#include "tutorials/exercises/stages/watched_stage.h"
#include "tutorials/lesson/stepper.h"
#include "tutorials/recording/holdings.h"

namespace zl::exercises {
namespace {

std::vector<double> doubles(const FlatValues& values) { return {values.begin(), values.end()}; }

template <class Bytes>
std::vector<double> by_use(const Bytes& bytes) {
  std::vector<double> all;
  for (int i = 0; i < kMemoryUses; ++i) all.push_back(double(bytes(MemoryUse(i))));
  return all;
}

std::vector<double> rows_of(const CommunicationLog& log) {
  std::vector<double> all;
  for (const auto& [key, traffic] : log.rows())
    for (const int64_t value : {int64_t(key.purpose), int64_t(key.collective), traffic.calls,
                                traffic.elements, traffic.sent_bytes_times_n})
      all.push_back(double(value));
  return all;
}

// What the ranks' threads write, each in its own place.
struct OfRank {
  WatchedRank watched;
  FlatValues gradient, weights, kept_weights, last_weights;
  MemoryLedger rest;
};

// This rank's shards of the parameters as it keeps them between steps.
FlatValues kept_weights(Stage& stage) {
  FlatValues all;
  for (const UnitState& u : stage.units()) {
    const Tensor& kept = u.kept_parameter();
    const FlatValues shard = kernel::download_floats(
        kept.numel() == u.partition.full() ? stage.local_shard(kept) : kept);
    all.insert(all.end(), shard.begin(), shard.end());
  }
  return all;
}

TrainingCallbacks reading(const StageCase& c, std::vector<OfRank>& ranks) {
  TrainingCallbacks callbacks;
  callbacks.after_backward = [&](Trainer& t) {
    if (t.steps() == 1 && t.engine().is_gradient_accumulation_boundary())
      ranks[size_t(t.comm().rank())].gradient = gradient_shards(t);
  };
  callbacks.at_start = [&](Trainer& t) {
    ranks[size_t(t.comm().rank())].watched.memory.reset_peak();
  };
  callbacks.at_end = [&](Trainer& t) {
    OfRank& rank = ranks[size_t(t.comm().rank())];
    rank.rest = rank.watched.memory;
    if (c.reads_weights) rank.last_weights = full_parameters(t.engine().stage());
    rank.watched.comm->finish();
  };
  if (!c.reads_weights) return callbacks;
  callbacks.after_step = [&](Trainer& t) {
    if (t.steps() != 1) return;
    OfRank& rank = ranks[size_t(t.comm().rank())];
    rank.weights = full_parameters(t.engine().stage());
    rank.kept_weights = kept_weights(t.engine().stage());
  };
  return callbacks;
}

Record record_of(const StageCase& c, const TrainingResult& result,
                 const std::vector<OfRank>& ranks) {
  Record record;
  for (const StepRecord& step : result.steps) {
    record.numbers["loss"].push_back(step.loss);
    record.numbers["norm"].push_back(step.grad_norm);
  }
  for (int r = 0; r < c.ranks; ++r) {
    const auto put = [&](const char* what, std::vector<double> values) {
      record.numbers[str(what, " ", r)] = std::move(values);
    };
    const OfRank& rank = ranks[size_t(r)];
    put("gradient", doubles(rank.gradient));
    put("weights", doubles(rank.weights));
    put("kept weights", doubles(rank.kept_weights));
    put("last weights", doubles(rank.last_weights));
    put("rest", by_use([&](MemoryUse use) { return rank.rest.live(use); }));
    put("peak", by_use([&](MemoryUse use) { return rank.rest.peak(use); }));
    put("traffic", rows_of(result.ranks[size_t(r)].log));
    record.texts[str("calls ", r)] = to_bytes(rank.watched.calls);
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

Record measure(const std::string& check, const CheckOptions& options) {
  const StageCase c = stage_case(check, options);
  const auto data = course_data(c);
  TrainingSpec spec = training_spec(c, *data);
  if (options.device == DeviceKind::cuda) {
    spec.device = DeviceKind::cuda;
    std::vector<int> usable;
    for (const Gpu& gpu : find_gpus().gpus)
      if (gpu.problem.empty()) usable.push_back(gpu.index);
    spec.backends = on_gpus(usable);
  }
  std::vector<OfRank> ranks(static_cast<size_t>(c.ranks));
  recording::Recording recording(c.ranks);
  const bool steps = options.step_from >= 0;
  spec.make_stage = [&](std::vector<Unit>& units, Communicator& comm, Memories memories,
                        const Options& o) -> std::unique_ptr<Stage> {
    OfRank& rank = ranks[size_t(comm.rank())];
    auto watched = std::make_unique<WatchedStage>(rank.watched, units, comm, memories, o);
    if (steps)
      recording.watch(comm, memories.device, recording::holdings(*watched, units, comm.events()));
    watched->start();
    return watched;
  };
  if (steps) {
    show(spec, recording, options.step_from);
    return {};
  }
  return record_of(c, run_training(spec, reading(c, ranks)), ranks);
}

}  // namespace zl::exercises
