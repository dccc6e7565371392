#include "tutorials/zerolab/bench/collectives.h"

#include <algorithm>

#include "dist/processes/wire.h"
#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {
namespace {

// [s] The same on all ranks.
std::vector<double> slowest_seconds(CollectiveTrial& trial, int64_t warm_up, int64_t calls,
                                    Communicator& comm) {
  WireWriter wire;  // [ns] of each call
  for (int64_t i = -warm_up; i < calls; ++i) {
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

int64_t wrong_values(CollectiveTrial& trial, Communicator& comm) {
  trial.fill();
  trial.call();
  int64_t wrong = 0;
  for (const std::string& of_rank : comm.all_gather_object(str(trial.wrong()), "wrong"))
    wrong += std::stoll(of_rank);
  return wrong;
}

// The system may start two ranks on one core and move one of them later: then calls take long, and
// a fifth of a second in them gives it the time.
void wait_until_spread(Communicator& comm, Memory& memory) {
  CollectiveTrial trial({Collective::all_reduce, 1 << 16, Dtype::f32}, comm, memory);
  trial.clear();
  double spent = 0;
  for (int i = 0; i < 100 && spent < 0.2; ++i)
    for (const double seconds : slowest_seconds(trial, 0, 20, comm)) spent += seconds;
}

}  // namespace

void time_trials(std::vector<TimedTrial>& trials, const TrainingSpec& spec,
                 const TrialOptions& options, const std::function<void(const TimedTrial&)>& begin) {
  const auto body = [&](Communicator& comm) {
    const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends();
    Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events());
    if (options.spread) wait_until_spread(comm, memory);
    for (int64_t round = 0; round < options.rounds; ++round)
      for (TimedTrial& trial : trials) {
        if (comm.rank() == 0) begin(trial);
        CollectiveTrial collective(trial.spec, comm, memory);
        const int64_t wrong = options.check ? wrong_values(collective, comm) : 0;
        collective.clear();
        const auto seconds = slowest_seconds(collective, options.warm_up, options.calls, comm);
        if (comm.rank() > 0) continue;  // the ranks that are threads share the trials
        trial.wrong += wrong;
        trial.seconds.insert(trial.seconds.end(), seconds.begin(), seconds.end());
      }
  };
  spec.run_ranks ? spec.run_ranks(spec.ranks, body, spec.rank_options)
                 : run_ranks(spec.ranks, body, spec.rank_options);
}

std::vector<int64_t> sizes_between(int64_t least, int64_t most, int64_t factor) {
  std::vector<int64_t> all;
  for (int64_t bytes = least; bytes <= most; bytes *= factor) {
    all.push_back(bytes);
    if (factor == 1 || bytes > most / factor) break;
  }
  return all;
}

}  // namespace zl::cli
