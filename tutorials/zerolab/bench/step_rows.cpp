// The rows of 'zerolab bench step': each is run for some steps in every round.

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "stages/train/comparison.h"
#include "tutorials/zerolab/bench/backend.h"
#include "tutorials/zerolab/bench/process_cost.h"
#include "tutorials/zerolab/bench/step.h"

namespace zl::cli {
namespace {

// A product of each weight and token forward, two backward: 6 operations per parameter and token
// (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). Attention's own come on top: backward's are
// 10 for forward's 4, and unlike those they are not made twice where blocks are recomputed.
double operations_of(const TrainingSpec& spec, int64_t tokens, int64_t attention_backward,
                     int ranks) {
  return 6.0 * double(spec.model.parameters()) * double(tokens) +
         1.4 * double(attention_backward) * ranks;
}

int64_t share_of_round(const StepOptions& options, int64_t round) {
  const int64_t rounds = std::min(options.rounds, options.timed);
  return options.timed / rounds + (round < options.timed % rounds);
}

// One row in one round.
class RowRun {
 public:
  RowRun(StepRow& row, const StepOptions& options, int64_t round, BenchProgress& progress)
      : row_(row), options_(options), spec_(row.point->setup.spec), progress_(progress) {
    spec_.config.stage = row.kind.stage;
    spec_.config.steps = options.warm_up + share_of_round(options, round);
    spec_.ranks = row.kind.independent ? 1 : row.kind.ranks;
    // Where the optimizer's state lies on the host, this would make copies that cast go by way of a
    // third place, as they do between a GPU and the host.
    counts_ = spec_.device == DeviceKind::cpu && !spec_.config.offload_optimizer;
    if (counts_)
      spec_.backends = [this](int) {
        return RankBackends{.device = std::make_unique<CountingBackend>(allocations_)};
      };
  }

  void run() {
    const PeakResident resident;
    std::vector<TrainingResult> results = row_.kind.independent ? run_apart() : run_together();
    if (const auto peak = resident.peak(); peak && *peak > row_.peak_resident.value_or(0))
      row_.peak_resident = peak, row_.resident_before = resident.before();
    std::vector<double> seconds;
    row_.tokens = 0;
    row_.peak.clear();
    for (const TrainingResult& result : results) {
      for (size_t i = size_t(options_.warm_up); i < result.steps.size(); ++i)
        seconds.push_back(result.steps[i].seconds);
      row_.tokens += result.steps.back().tokens;
      for (const RankReport& rank : result.ranks)
        row_.peak.push_back(rank.rest.peak_total() + rank.host.peak_total());
    }
    const double timed = double(spec_.config.steps - options_.warm_up);
    row_.page_faults = std::max(row_.page_faults, double(faults_) / timed);
    if (counts_)
      row_.system_allocations =
          std::max(row_.system_allocations.value_or(0), double(blocks_) / timed);
    row_.operations =
        operations_of(spec_, row_.tokens, attention_ / spec_.config.steps, row_.kind.ranks);
    row_.rounds.push_back(std::move(seconds));
  }

 private:
  std::vector<TrainingResult> run_together() {
    std::vector<TrainingResult> results;
    results.push_back(run_training(spec_, {.at_start =
                                               [&](RankTraining& training) {
                                                 if (training.comm().rank() == 0) watch(training);
                                               },
                                           .on_step = [&](const StepRecord&) { next_step(); }}));
    return results;
  }

  // As many runs of one rank as the row has ranks. They begin together, and go on together when all
  // are warm. Where the ranks of a stage have GPUs, so have these.
  std::vector<TrainingResult> run_apart() {
    const int n = row_.kind.ranks;
    std::vector<TrainingResult> results{size_t(n)};
    std::vector<std::exception_ptr> errors{size_t(n)};
    std::barrier together(n);
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i)
      threads.emplace_back([&, i] {
        try {
          results[size_t(i)] = run_alone(i, together);
        } catch (...) {
          errors[size_t(i)] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return results;
  }

  TrainingResult run_alone(int i, std::barrier<>& together) {
    TrainingSpec alone = spec_;
    alone.run_ranks = nullptr;
    alone.transport = Transport::threads;
    if (spec_.backends) alone.backends = [this, i](int) { return spec_.backends(i); };
    int64_t steps = 0;
    int meetings = options_.warm_up > 0 ? 2 : 1;  // that are still to come
    const auto meet = [&] {
      --meetings;
      together.arrive_and_wait();
    };
    const TrainingCallbacks callbacks{.at_start =
                                          [&](RankTraining& training) {
                                            meet();
                                            if (i == 0) watch(training);
                                          },
                                      .on_step =
                                          [&](const StepRecord&) {
                                            if (++steps == options_.warm_up) meet();
                                            if (i == 0) next_step();
                                          }};
    try {
      return run_training(alone, callbacks);
    } catch (...) {
      if (meetings > 0) together.arrive_and_drop();  // the others meet without it
      throw;
    }
  }

  // The three below: on the thread of rank 0, or of the first that trains alone. The others are in
  // the same step or near it.
  void watch(RankTraining& training) {
    training.memory().events().listen([&](const Event& e) {
      if (e.kind == EventKind::kernel && std::strcmp(e.what, "attention_backward") == 0)
        attention_ += e.count;
    });
    begin_step();
  }
  void begin_step() {
    if (steps_ == options_.warm_up) faults_ = -minor_page_faults(), blocks_ = -allocations_.load();
    const StepKind& kind = row_.kind;
    progress_.next(str(row_.point->label(", "), kind.name(), " on ", kind.ranks,
                       kind.ranks == 1 ? " rank" : " ranks", ", step ", steps_ + 1));
  }
  void next_step() {
    if (++steps_ < spec_.config.steps) return begin_step();
    faults_ += minor_page_faults();
    blocks_ += allocations_.load();
  }

  StepRow& row_;
  const StepOptions& options_;
  TrainingSpec spec_;
  BenchProgress& progress_;
  std::atomic<int64_t> allocations_ = 0;  // of all ranks, since the run began
  bool counts_ = false;
  int64_t steps_ = 0, attention_ = 0, faults_ = 0, blocks_ = 0;
};

// One rank, which communicates nothing; as many as asked for, each alone; then they under each
// stage.
std::vector<StepRow> rows_of(const StepPoint& point, const StepOptions& options) {
  const int ranks = point.setup.spec.ranks;
  std::vector<StepRow> rows = {{.point = &point}};
  if (ranks > 1) {
    rows.push_back({.point = &point, .kind = {.ranks = ranks, .independent = true}});
    rows.push_back({.point = &point, .kind = {.ranks = ranks}});
  }
  for (const StageKind stage : options.stages)
    if (stage != StageKind::ddp)
      rows.push_back({.point = &point, .kind = {.stage = stage, .ranks = ranks}});
  return rows;
}

void run_round(StepRow& row, const StepOptions& options, int64_t round, BenchProgress& progress) {
  try {
    const RunSetup& setup = row.point->setup;
    TrainingSpec checked = setup.spec;
    checked.ranks = row.kind.ranks;
    if (round == 0) require_memory(checked, setup, {row.kind.stage});
    RowRun(row, options, round, progress).run();
  } catch (const OutOfMemory& e) {
    row.out_of_memory = e.what();
  }
}

}  // namespace

Spread StepRow::seconds() const {
  std::vector<double> all;
  for (const auto& round : rounds) all.insert(all.end(), round.begin(), round.end());
  return spread_of(std::move(all));
}

Spread StepRow::relative_to(const StepRow& other) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < rounds.size(); ++i)
    ratios.push_back(spread_of(rounds[i]).median / spread_of(other.rounds[i]).median);
  return spread_of(std::move(ratios));
}

const StepRow* StepReport::beside(const StepRow& row, bool independent) const {
  if (row.kind.ranks != row.point->setup.spec.ranks) return nullptr;
  for (const StepRow& r : rows)
    if (r.point == row.point && r.kind.stage == StageKind::ddp && r.kind.ranks == row.kind.ranks &&
        r.kind.independent == independent)
      return r.ran() ? &r : nullptr;
  return nullptr;
}

StepReport measure_steps(const StepOptions& options, std::vector<StepPoint> points) {
  StepReport report{.options = options, .points = std::move(points)};
  for (const StepPoint& point : report.points)
    for (StepRow& row : rows_of(point, options)) report.rows.push_back(std::move(row));
  const int64_t rounds = std::min(options.rounds, options.timed),
                steps = options.timed + rounds * options.warm_up;
  const int64_t profiled = options.profile ? options.timed + options.warm_up : 0;
  BenchProgress progress(rounds + int64_t(report.rows.size()) * steps + profiled, options.quiet);
  for (int64_t round = 0; round < rounds; ++round) {
    progress.next("rate of operations");
    const double rate =
        Workbench(report.setup().device).operation_rate(report.setup().spec.config.precision);
    report.operation_rate = std::max(report.operation_rate, rate);
    for (StepRow& row : report.rows)
      if (row.ran()) run_round(row, options, round, progress);
  }
  for (StepRow& row : report.rows)
    if (row.ran())
      row.share = row.operations / row.seconds().median /
                  (report.operation_rate * row.point->setup.device.places(row.kind.ranks));
  if (options.profile) report.profile = profile_kernels(report.points.front(), options, progress);
  return report;
}

}  // namespace zl::cli
