// The measurements of 'zerolab bench step': every round runs each row for some steps.

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/bench/step.h"
#include "tutorials/zerolab/bench/timed_backend.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/run/preflight.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct StepRow {
  StageKind stage = StageKind::ddp;
  int ranks = 1;
  bool independent = false;
  std::vector<std::vector<double>> rounds{};  // [s] of each timed step
  Json json{};                                // what was measured beside the time
  bool ran() const { return !json.contains("out_of_memory"); }
};

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

// The same training on one rank, a thread of this process.
GptTrainingSpec one_rank(GptTrainingSpec spec) {
  spec.ranks = 1;
  spec.run_ranks = nullptr;
  spec.transport = Transport::threads;
  return spec;
}

// A run of all ranks, or one of several independent runs: these start together, and their timed
// steps start together. `begin_step` is called on rank 0 before each step.
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
    if (steps < spec.steps) begin_step(steps);
  };
  return run_training(spec, callbacks);
}

std::vector<TrainingResult> run_all(const StepRow& row, const GptTrainingSpec& spec,
                                    int64_t warm_up, const std::function<void(int64_t)>& begin) {
  if (!row.independent) return {run_one(spec, warm_up, nullptr, begin)};
  std::vector<TrainingResult> runs(size_t(row.ranks));
  const auto body = [&](Communicator& all) {
    const auto silent = [](int64_t) {};
    runs[size_t(all.rank())] =
        run_one(one_rank(spec), warm_up, &all,
                all.rank() == 0 ? begin : std::function<void(int64_t)>(silent));
  };
  run_ranks(row.ranks, body, spec.rank_options);
  return runs;
}

void add(StepRow& row, const std::vector<TrainingResult>& runs, int64_t warm_up,
         const GptTrainingSpec& spec) {
  int64_t tokens = 0;
  std::vector<int64_t> peaks;
  std::vector<double>& round = row.rounds.emplace_back();
  for (const TrainingResult& run : runs) {
    for (size_t i = size_t(warm_up); i < run.steps.size(); ++i)
      round.push_back(run.steps[i].seconds);
    tokens += run.steps.back().tokens;
    for (const RankReport& rank : run.ranks)
      peaks.push_back(rank.rest.peak_total() + rank.host.peak_total());
  }
  row.json["tokens_per_step"] = tokens;
  row.json["peak_total_bytes"] = peaks;
  // 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
  // arXiv:2001.08361, section 2.1), plus attention: 14 per channel and pair of a token and one that
  // it sees, 4 in forward and 10 in backward. What activation checkpointing repeats does not count.
  const GptConfig& model = spec.model;
  row.json["operations_per_step"] =
      double(tokens) * (6.0 * double(model.parameters()) +
                        7.0 * double(model.layers * model.width * (spec.window + 1)));
}

// `warm_up` steps, then `timed` steps.
void run_round(StepRow& row, const RunSetup& setup, int64_t warm_up, int64_t timed,
               Progress& progress) {
  GptTrainingSpec spec = setup.spec;
  spec.engine.stage = row.stage;
  spec.steps = warm_up + timed;
  spec.ranks = row.ranks;
  try {
    if (row.rounds.empty()) require_memory(spec, setup, {row.stage});
    const int64_t resident = restart_peak_resident();
    const auto runs = run_all(row, spec, warm_up, [&](int64_t step) {
      progress.item(
          str(as_is(row.json["stage"]), " on ", plural(row.ranks, "rank"), ", step ", step + 1));
    });
    const Json peak = status_bytes("VmHWM");
    if (resident > 0 && peak > row.json["peak_resident_bytes"])  // null is less than a number
      row.json["peak_resident_bytes"] = peak, row.json["resident_bytes_before"] = resident;
    add(row, runs, warm_up, spec);
  } catch (const OutOfMemory& e) {
    row.json["out_of_memory"] = e.what();
  }
}

// `base`: the row with ddp, or of independent ranks; null if there is none.
void add_ratio(StepRow& row, const std::string& key, const StepRow* base) {
  row.json[key] = row.json[key + "_range"] = nullptr;
  if (!base || base->ranks != row.ranks || !base->ran()) return;
  std::vector<double> ratios;  // of each round's medians
  for (size_t i = 0; i < row.rounds.size(); ++i)
    ratios.push_back(spread_of(row.rounds[i]).median / spread_of(base->rounds[i]).median);
  const Spread ratio = spread_of(std::move(ratios));
  row.json[key] = ratio.median;
  row.json[key + "_range"] = {{"min", ratio.min}, {"max", ratio.max}};
}

// `rate`: [FLOP/s] of one place.
void add_times(StepRow& row, int places, double rate) {
  std::vector<double> steps;
  for (const auto& round : row.rounds) steps.insert(steps.end(), round.begin(), round.end());
  const Spread seconds = spread_of(std::move(steps));
  row.json["seconds_per_step"] = seconds;
  row.json["tokens_per_second"] = row.json["tokens_per_step"].get<double>() / seconds.median;
  row.json["places"] = places;
  row.json["share_of_peak"] =
      row.json["operations_per_step"].get<double>() / seconds.median / (rate * places);
}

}  // namespace

std::string measure_rows(const StepOptions& options, const RunSetup& setup, double& peak) {
  const int ranks = setup.spec.ranks;
  const bool several = ranks > 1;
  std::vector<StepRow> rows(1);
  if (several) rows.insert(rows.end(), {{.ranks = ranks, .independent = true}, {.ranks = ranks}});
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp) rows.push_back({.stage = stage, .ranks = ranks});
  for (StepRow& row : rows)
    row.json = {{"stage", row.independent ? "independent" : name(row.stage)},
                {"ranks", row.ranks},
                {"micro_batch", setup.spec.micro_batch},
                {"window", setup.spec.window},
                {"parameters", setup.spec.model.parameters()},
                {"peak_resident_bytes", nullptr},
                {"resident_bytes_before", nullptr}};
  Progress progress(
      options.rounds + std::ssize(rows) * (options.timed + options.rounds * options.warm_up),
      options.quiet);
  for (int64_t round = 0; round < options.rounds; ++round) {
    progress.item("peak FLOP/s");
    peak = std::max(peak, operation_rate(setup.device, setup.spec.engine.precision));
    const int64_t timed = options.timed / options.rounds + (round < options.timed % options.rounds);
    for (StepRow& row : rows)
      if (row.ran()) run_round(row, setup, options.warm_up, timed, progress);
  }
  progress.clear();
  Json results = Json::array();
  for (StepRow& row : rows) {
    if (row.ran()) {
      add_times(row, setup.device.places(row.ranks), peak);
      add_ratio(row, "time_relative_to_ddp", &rows[several ? 2 : 0]);
      add_ratio(row, "time_relative_to_independent", several ? &rows[1] : nullptr);
    }
    results.push_back(row.json);
  }
  return results.dump();
}

std::string measure_profile(const StepOptions& options, const RunSetup& setup, double peak) {
  GptTrainingSpec spec = one_rank(setup.spec);
  spec.engine.stage = StageKind::ddp;
  spec.steps = options.warm_up + options.timed;
  Progress progress(spec.steps, options.quiet);
  int64_t begun = 0;
  const std::vector<TimedStep> steps = time_kernels(spec, TimedBy::device, options.warm_up, [&] {
    progress.item(str("profile, step ", ++begun));
  });
  progress.clear();
  std::vector<double> seconds, outside;  // of each step: [s], share outside of kernels
  for (const TimedStep& step : steps) {
    double inside = 0;
    for (const TimedKernel& call : step.calls) inside += call.seconds;
    seconds.push_back(step.seconds);
    outside.push_back(1 - inside / step.seconds);
  }
  const double copy = copy_rate(setup.device);
  return Json{{"stage", "ddp"},
              {"ranks", 1},
              {"steps", options.timed},
              {"seconds_per_step", spread_of(std::move(seconds))},
              {"share_outside_kernels", spread_of(std::move(outside))},
              {"copy_bytes_per_second", copy},
              {"kernels",
               Json::parse(kernel_rows(steps, precision_name(spec.engine.precision), copy, peak))}}
      .dump();
}

}  // namespace zl::cli
