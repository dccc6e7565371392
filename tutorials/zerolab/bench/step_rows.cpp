// The rows of 'zerolab bench step': every round runs each row for some steps.

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutorials/zerolab/bench/step.h"
#include "tutorials/zerolab/run/preflight.h"

namespace zl::cli {

using Json = nlohmann::ordered_json;

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

// `ranks` ranks of one stage, or `ranks` independent runs of one rank at the same time.
class StepRow {
 public:
  StepRow(const StepPoint& point, StageKind stage, int ranks, bool independent = false)
      : point_(point), stage_(stage), ranks_(ranks), independent_(independent) {}

  // One round: `warm_up` steps, then `timed` steps.
  void run(int64_t warm_up, int64_t timed, Progress& progress) {
    warm_up_ = warm_up, timed_ = timed, progress_ = &progress;
    steps_ = attention_ = faults_ = 0;
    try {
      GptTrainingSpec checked = point_.setup.spec;
      checked.ranks = ranks_;
      if (rounds_.empty()) require_memory(checked, point_.setup, {stage_});
      const int64_t resident = restart_peak_resident();
      const auto results = independent_ ? run_independent() : run_together();
      if (const int64_t peak = status_bytes("VmHWM"); resident > 0 && peak > peak_resident_)
        peak_resident_ = peak, resident_before_ = resident;
      add(results);
    } catch (const OutOfMemory& e) {
      out_of_memory_ = e.what();
    }
  }
  bool ran() const { return out_of_memory_.empty(); }

  Json json(const std::deque<StepRow>& rows, double operation_rate) const {
    const RunSetup& setup = point_.setup;
    Json row{{"stage", name()}, {"ranks", ranks_}};
    if (!point_.setting.empty())
      row["sweep"] = {{"setting", point_.setting}, {"value", point_.value}};
    row["micro_batch"] = setup.spec.micro_batch;
    row["window"] = setup.spec.window;
    row["parameters"] = setup.spec.model.parameters();
    if (!ran()) {
      row["out_of_memory"] = out_of_memory_;
      return row;
    }
    const auto known = [](auto value, bool is) { return is ? Json(value) : Json(nullptr); };
    std::vector<double> all;
    for (const auto& round : rounds_) all.insert(all.end(), round.begin(), round.end());
    const Spread seconds = spread_of(std::move(all));
    const int places = setup.device.places(ranks_);
    row["seconds_per_step"] = seconds;
    row["tokens_per_second"] = double(tokens_) / seconds.median;
    for (const bool independent : {false, true})
      add_ratio(row, independent ? "time_relative_to_independent" : "time_relative_to_ddp", rows,
                [&](const StepRow& r) {
                  return &r.point_ == &point_ && r.ranks_ == ranks_ && ranks_ == setup.spec.ranks &&
                         r.stage_ == StageKind::ddp && r.independent_ == independent;
                });
    add_ratio(row, "time_relative_to_previous", rows, [&](const StepRow& r) {
      return &r.point_ + 1 == &point_ && r.point_.setting == point_.setting && r.stage_ == stage_ &&
             r.independent_ == independent_ && (r.ranks_ == 1) == (ranks_ == 1);
    });
    row.update({{"operations_per_step", operations_},
                {"places", places},
                {"share_of_peak", operations_ / seconds.median / (operation_rate * places)},
                {"peak_total_bytes", peak_},
                {"tokens_per_step", tokens_},
                {"page_faults_per_step", page_faults_},
                {"peak_resident_bytes", known(peak_resident_, peak_resident_ > 0)},
                {"resident_bytes_before", known(resident_before_, peak_resident_ > 0)}});
    return row;
  }

 private:
  const char* name() const { return independent_ ? "independent" : zl::name(stage_); }

  // The ratio of each round's median to that of the row that `is_other` accepts; null if none ran.
  template <class IsOther>
  void add_ratio(Json& row, const std::string& key, const std::deque<StepRow>& rows,
                 const IsOther& is_other) const {
    row[key] = row[key + "_range"] = nullptr;
    for (const StepRow& other : rows) {
      if (!other.ran() || !is_other(other)) continue;
      std::vector<double> ratios;
      for (size_t i = 0; i < rounds_.size(); ++i)
        ratios.push_back(spread_of(rounds_[i]).median / spread_of(other.rounds_[i]).median);
      const Spread ratio = spread_of(std::move(ratios));
      row[key] = ratio.median;
      row[key + "_range"] = {{"min", ratio.min}, {"max", ratio.max}};
    }
  }

  GptTrainingSpec spec() {
    GptTrainingSpec spec = independent_ ? one_rank(point_.setup.spec) : point_.setup.spec;
    spec.engine.stage = stage_;
    spec.steps = warm_up_ + timed_;
    if (!independent_) spec.ranks = ranks_;
    return spec;
  }

  std::vector<TrainingResult> run_together() {
    TrainingCallbacks callbacks;
    callbacks.at_start = [&](Trainer& training) {
      if (training.comm().rank() == 0) watch(training);
    };
    callbacks.on_step = [&](const StepRecord&) { end_step(); };
    std::vector<TrainingResult> results;
    results.push_back(run_training(spec(), callbacks));
    return results;
  }

  // Runs of one rank each. They start together, and their timed steps start together.
  std::vector<TrainingResult> run_independent() {
    const GptTrainingSpec all_ranks = spec();
    std::vector<TrainingResult> results{size_t(ranks_)};
    const auto body = [&](Communicator& all) {
      const int run = all.rank();
      GptTrainingSpec spec = all_ranks;
      int64_t steps = 0;
      TrainingCallbacks callbacks;
      callbacks.at_start = [&](Trainer& training) {
        all.all_gather_object("", "start");
        if (run == 0) watch(training);
      };
      callbacks.on_step = [&](const StepRecord&) {
        if (++steps == warm_up_) all.all_gather_object("", "warm");
        if (run == 0) end_step();
      };
      results[size_t(run)] = run_training(spec, callbacks);
    };
    run_ranks(ranks_, body, all_ranks.rank_options);
    return results;
  }

  // On the thread of rank 0, or of the first independent run. The other ranks are in the same step
  // or next to it.
  void watch(Trainer& training) {
    training.memory().events().listen([&](const Event& e) {
      if (e.kind == EventKind::kernel && std::strcmp(e.what, "attention_backward") == 0)
        attention_ += e.count;
    });
    begin_step();
  }
  void begin_step() {
    if (steps_ == warm_up_) faults_ = -minor_page_faults();
    progress_->item(str(point_.label(), name(), " on ", ranks_, ranks_ == 1 ? " rank" : " ranks",
                        ", step ", steps_ + 1));
  }
  void end_step() {
    if (++steps_ < warm_up_ + timed_) return begin_step();
    faults_ += minor_page_faults();
  }

  void add(const std::vector<TrainingResult>& results) {
    rounds_.emplace_back();
    tokens_ = 0;
    peak_.clear();
    for (const TrainingResult& result : results) {
      for (size_t i = size_t(warm_up_); i < result.steps.size(); ++i)
        rounds_.back().push_back(result.steps[i].seconds);
      tokens_ += result.steps.back().tokens;
      for (const RankReport& rank : result.ranks)
        peak_.push_back(rank.rest.peak_total() + rank.host.peak_total());
    }
    // 6 operations per parameter and token, 2 in forward and 4 in backward (Kaplan et al. 2020,
    // arXiv:2001.08361, section 2.1), plus attention. Attention's forward takes 4 operations for
    // every 10 of its backward, which never runs twice under activation checkpointing.
    operations_ = 6.0 * double(point_.setup.spec.model.parameters()) * double(tokens_) +
                  1.4 * double(attention_ / (warm_up_ + timed_)) * ranks_;
    page_faults_ = std::max(page_faults_, double(faults_) / double(timed_));
  }

  const StepPoint& point_;
  const StageKind stage_;
  const int ranks_;
  const bool independent_;

  // Results.
  std::string out_of_memory_;                // why it did not run; then the rest is unset
  std::vector<std::vector<double>> rounds_;  // [s] of each timed step
  int64_t tokens_ = 0;                       // per step, over all ranks
  double operations_ = 0;                    // [FLOP] per step, over all ranks
  std::vector<int64_t> peak_;                // [B] per rank, device and host together
  // Pages that the whole process touched for the first time, per timed step: the maximum over the
  // rounds.
  double page_faults_ = 0;
  // [B] of the whole process: the maximum over the rounds, and before that round began.
  int64_t peak_resident_ = 0, resident_before_ = 0;

  // Of the current round.
  Progress* progress_ = nullptr;
  int64_t warm_up_ = 0, timed_ = 0, steps_ = 0, attention_ = 0, faults_ = 0;
};

std::deque<StepRow> all_rows(const StepOptions& options, const std::vector<StepPoint>& points) {
  std::deque<StepRow> rows;
  for (const StepPoint& point : points) {
    const int ranks = point.setup.spec.ranks;
    rows.emplace_back(point, StageKind::ddp, 1);
    if (ranks > 1) {
      rows.emplace_back(point, StageKind::ddp, ranks, true);
      rows.emplace_back(point, StageKind::ddp, ranks);
    }
    for (const StageKind stage : options.stages)
      if (stage != StageKind::ddp) rows.emplace_back(point, stage, ranks);
  }
  return rows;
}

}  // namespace

GptTrainingSpec one_rank(GptTrainingSpec spec) {
  spec.ranks = 1;
  spec.run_ranks = nullptr;
  spec.transport = Transport::threads;
  return spec;
}

template <>
Json measure_steps(const StepOptions& options, const std::vector<StepPoint>& points) {
  std::deque<StepRow> rows = all_rows(options, points);
  const RunSetup& first = points.front().setup;
  const int64_t steps = options.timed + options.rounds * options.warm_up;
  Progress progress(options.rounds + int64_t(rows.size()) * steps, options.quiet);
  double operation_rate = 0;  // [FLOP/s]
  for (int64_t round = 0; round < options.rounds; ++round) {
    progress.item("peak FLOP/s");
    operation_rate = std::max(operation_rate,
                              Workbench(first.device).operation_rate(first.spec.engine.precision));
    const int64_t timed = options.timed / options.rounds + (round < options.timed % options.rounds);
    for (StepRow& row : rows)
      if (row.ran()) row.run(options.warm_up, timed, progress);
  }
  progress.clear();
  Json results = Json::array();
  for (const StepRow& row : rows) results.push_back(row.json(rows, operation_rate));
  return {{"operations_per_second", operation_rate}, {"results", results}};
}

}  // namespace zl::cli
