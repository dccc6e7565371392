#include "tutorials/zerolab/bench/collectives.h"

#include <algorithm>
#include <numeric>

#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {
namespace {

std::vector<int64_t> of_all_ranks(int64_t mine, Communicator& comm) {
  std::vector<int64_t> all;
  for (const std::string& text : comm.all_gather_object(std::to_string(mine), "measured"))
    all.push_back(std::stoll(text));
  return all;
}

double slowest_seconds(CollectiveTrial& trial, Communicator& comm) {  // [s] the same on all ranks
  if (interrupt_requested()) throw Interrupted();
  return 1e-9 * double(std::ranges::max(of_all_ranks(trial.time(), comm)));
}

int64_t wrong_values(CollectiveTrial& trial, Communicator& comm) {
  trial.fill();
  trial.call();
  const std::vector<int64_t> wrong = of_all_ranks(trial.wrong(), comm);
  return std::accumulate(wrong.begin(), wrong.end(), int64_t(0));
}

// The system may start two ranks on one core and move one of them later: then calls take long, and
// a fifth of a second in them gives it the time.
void wait_until_spread(Communicator& comm, Memory& memory) {
  CollectiveTrial trial({Collective::all_reduce, 1 << 16, Dtype::f32}, comm, memory);
  trial.clear();
  double spent = 0;
  for (int i = 0; i < 2000 && spent < 0.2; ++i) spent += slowest_seconds(trial, comm);
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
        if (comm.rank() == 0) trial.wrong += wrong;  // the ranks that are threads share the trials
        for (int64_t i = -options.warm_up; i < options.calls; ++i) {
          const double seconds = slowest_seconds(collective, comm);
          if (comm.rank() == 0 && i >= 0) trial.seconds.push_back(seconds);
        }
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
