#include "tutorials/zerolab/bench/machine_collectives.h"

#include <algorithm>
#include <chrono>

#include "dist/processes/wire.h"
#include "dist/trace/collective_trial.h"
#include "stages/predict/clock/collective_time.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

constexpr Collective kTimed[] = {Collective::all_reduce, Collective::reduce_scatter,
                                 Collective::all_gather};
constexpr int64_t kLeast = 256, kSizeFactor = 4, kWarmUp = 2;  // [B], …, calls
constexpr double kNoLimit = 1e15;          // [B/s] the bytes of a call make no difference
constexpr int64_t kSpreadCount = 1 << 16;  // [n]
constexpr auto kSpreadTime = std::chrono::milliseconds(200);

// [s] of `calls` calls, each of the slowest rank; on rank 0.
std::vector<double> trial_seconds(const TrialSpec& spec, int64_t calls, Communicator& comm,
                                  Memory& memory) {
  CollectiveTrial trial(spec, comm, memory);
  WireWriter wire;
  for (int64_t i = -kWarmUp; i < calls; ++i) {
    if (interrupt_requested()) throw Interrupted();
    const int64_t nanoseconds = trial.time();
    if (i >= 0) wire.put(nanoseconds);
  }
  std::vector<double> slowest(size_t(calls), 0.0);
  for (const std::string& part : comm.all_gather_object(wire.take(), "measured")) {
    WireReader reader(part);
    for (double& seconds : slowest)
      seconds = std::max(seconds, 1e-9 * double(reader.get<int64_t>()));
  }
  return slowest;
}

// The system may start two ranks on one core and move one of them later.
void wait_until_spread(Communicator& comm, Memory& memory) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const char* const done = "done";
  for (std::string first; first != done;) {
    trial_seconds({Collective::all_reduce, kSpreadCount, Dtype::f32}, 20, comm, memory);
    const bool over = Clock::now() - begin > kSpreadTime;
    first = comm.all_gather_object(over ? done : "", "spread").front();
  }
}

struct SizeTrial {
  TrialSpec spec;
  std::vector<double> seconds;
};

std::vector<SizeTrial> all_trials(const CollectiveSizes& sizes, int ranks) {
  std::vector<SizeTrial> all;
  for (const Collective collective : kTimed)
    for (int64_t bytes = kLeast; bytes <= sizes.most; bytes *= kSizeFactor)
      all.push_back({{collective, bytes / 4 / ranks * ranks, Dtype::f32}, {}});
  return all;
}

// The fits. Of each size the shortest call counts: other programs can only make calls longer, and a
// call between two ranks of which one waits for a core takes a hundred times as long as others.
std::vector<CollectiveRow> rows_of(const std::vector<SizeTrial>& trials, int ranks) {
  std::vector<CollectiveRow> rows;
  for (const Collective collective : kTimed) {
    std::vector<TimedCall> calls;
    for (const SizeTrial& t : trials)
      if (t.spec.kind == collective)
        calls.push_back({t.spec.count * 4, std::ranges::min(t.seconds)});
    CollectiveTerms terms = fit_terms(calls, collective, ranks);
    if (terms.bus == 0) terms.bus = kNoLimit;
    rows.push_back({.collective = collective, .ranks = ranks, .terms = terms});
  }
  return rows;
}

}  // namespace

int64_t timed_sizes(const CollectiveSizes& sizes) {
  return sizes.rounds * std::ssize(all_trials(sizes, 1));
}

std::vector<CollectiveRow> time_collectives(const TrainingSpec& spec, const CollectiveSizes& sizes,
                                            const std::function<void(std::string)>& begin_trial) {
  std::vector<SizeTrial> trials = all_trials(sizes, spec.ranks);  // only rank 0 uses their times
  const auto body = [&](Communicator& comm) {
    const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends();
    Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events());
    wait_until_spread(comm, memory);
    for (int64_t round = 0; round < sizes.rounds; ++round)
      for (SizeTrial& trial : trials) {
        if (comm.rank() == 0)
          begin_trial(str(name(trial.spec.kind), " of ", human_bytes(trial.spec.count * 4), " on ",
                          comm.size(), " ranks"));
        const std::vector<double> seconds = trial_seconds(trial.spec, sizes.calls, comm, memory);
        if (comm.rank() == 0)
          trial.seconds.insert(trial.seconds.end(), seconds.begin(), seconds.end());
      }
  };
  spec.run_ranks ? spec.run_ranks(spec.ranks, body, spec.rank_options)
                 : run_ranks(spec.ranks, body, spec.rank_options);
  return rows_of(trials, spec.ranks);
}

}  // namespace zl::cli
