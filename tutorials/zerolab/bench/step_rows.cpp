// The rows of 'zerolab bench step': every round runs each row for some steps.

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "tutorials/zerolab/bench/measure.h"
#include "tutorials/zerolab/bench/step.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/preflight.h"

namespace zl::cli {
namespace {

int64_t minor_page_faults() {  // of all threads since the process began
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// [B] A line such as "VmHWM:   12345 kB"; 0 if there is none.
int64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (int64_t kib = 0; word == key + ":" && in >> kib) return kib * 1024;
  return 0;
}

// Returns memory of earlier runs to the system and restarts the peak VmHWM, proc(5). Returns [B]
// that the process holds now; 0 if the system cannot restart the peak.
int64_t restart_peak_resident() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  return reset.good() ? status_bytes("VmRSS") : 0;
}

// A run of all ranks, or one of several independent runs: these start together, and their timed
// steps start together. `begin_step` is called with the number of steps that were made, also at the
// end.
TrainingResult run_one(const GptTrainingSpec& spec, int64_t warm_up, Communicator* others,
                       const std::function<void(int64_t)>& begin_step) {
  int64_t steps = 0;
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& training) {
    if (training.comm().rank() > 0) return;
    if (others) others->all_gather_object("", "start");
    begin_step(0);
  };
  callbacks.on_step = [&](const StepRecord&) {
    if (++steps == warm_up && others) others->all_gather_object("", "warm");
    begin_step(steps);
  };
  return run_training(spec, callbacks);
}

void add(StepRow& row, const std::vector<TrainingResult>& runs, int64_t warm_up,
         const RunSetup& setup) {
  row.rounds.emplace_back();
  row.tokens = 0;
  row.peak.clear();
  for (const TrainingResult& run : runs) {
    for (size_t i = size_t(warm_up); i < run.steps.size(); ++i)
      row.rounds.back().push_back(run.steps[i].seconds);
    row.tokens += run.steps.back().tokens;
    for (const RankReport& rank : run.ranks)
      row.peak.push_back(rank.rest.peak_total() + rank.host.peak_total());
  }
  // 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
  // arXiv:2001.08361, section 2.1), plus attention: 14 per channel and pair of a token and one that
  // it sees, 4 in forward and 10 in backward. What activation checkpointing repeats does not count.
  const GptConfig& model = setup.spec.model;
  row.operations =
      double(row.tokens) * (6.0 * double(model.parameters()) +
                            7.0 * double(model.layers * model.width * (setup.spec.window + 1)));
}

// `warm_up` steps, then `timed` steps.
void run_round(StepRow& row, const RunSetup& setup, int64_t warm_up, int64_t timed,
               Progress& progress) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = row.stage;
  spec.steps = warm_up + timed;
  spec.ranks = row.ranks;
  int64_t faults = 0;
  const auto begin_step = [&](int64_t step) {
    if (step == warm_up) faults = -minor_page_faults();
    if (step == spec.steps) return void(faults += minor_page_faults());
    progress.item(str(row.name(), " on ", plural(row.ranks, "rank"), ", step ", step + 1));
  };
  try {
    if (row.rounds.empty()) require_memory(spec, setup, {row.stage});
    const int64_t resident = restart_peak_resident();
    std::vector<TrainingResult> runs(row.independent ? size_t(row.ranks) : 1);
    if (row.independent)
      run_ranks(
          row.ranks,
          [&](Communicator& all) {
            const int rank = all.rank();
            runs[size_t(rank)] = run_one(one_rank(spec), warm_up, &all, [&](int64_t step) {
              if (rank == 0) begin_step(step);
            });
          },
          spec.rank_options);
    else
      runs[0] = run_one(spec, warm_up, nullptr, begin_step);
    if (const int64_t peak = status_bytes("VmHWM"); resident > 0 && peak > row.peak_resident)
      row.peak_resident = peak, row.resident_before = resident;
    row.page_faults = std::max(row.page_faults, double(faults) / double(timed));
    add(row, runs, warm_up, setup);
  } catch (const OutOfMemory& e) {
    row.out_of_memory = e.what();
  }
}

}  // namespace

GptTrainingSpec one_rank(GptTrainingSpec spec) {
  spec.ranks = 1;
  spec.run_ranks = nullptr;
  spec.transport = Transport::threads;
  return spec;
}

StepRows measure_steps(const StepOptions& options, const RunSetup& setup) {
  const int ranks = setup.spec.ranks;
  StepRows all{.rows = {{}}};
  if (ranks > 1)
    all.rows.insert(all.rows.end(), {{.ranks = ranks, .independent = true}, {.ranks = ranks}});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) all.rows.push_back({.stage = stage, .ranks = ranks});
  Progress progress(
      options.rounds + std::ssize(all.rows) * (options.timed + options.rounds * options.warm_up),
      options.quiet);
  for (int64_t round = 0; round < options.rounds; ++round) {
    progress.item("peak FLOP/s");
    all.operation_rate = std::max(
        all.operation_rate, Workbench(setup.device).operation_rate(setup.spec.engine.precision));
    const int64_t timed = options.timed / options.rounds + (round < options.timed % options.rounds);
    for (StepRow& row : all.rows)
      if (row.out_of_memory.empty()) run_round(row, setup, options.warm_up, timed, progress);
  }
  progress.clear();
  return all;
}

}  // namespace zl::cli
