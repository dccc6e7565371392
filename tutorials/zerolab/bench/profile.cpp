#include "tutorials/zerolab/bench/profile.h"

#include <utility>

#include "tutorials/zerolab/cli/text_table.h"

namespace zl::cli {

KernelProfile profile_kernels(const StepPoint& point, const StepOptions& options,
                              BenchProgress& progress) {
  KernelProfile profile{.steps = options.timed};
  TrainingSpec spec = point.setup.spec;
  spec.config.stage = StageKind::ddp;
  spec.config.steps = options.warm_up + options.timed;
  spec.ranks = 1;
  spec.run_ranks = nullptr;
  spec.transport = Transport::threads;
  std::atomic<int64_t> allocations = 0;
  TimingBackend* kernels = nullptr;  // the rank's, which lives as long as its run
  spec.backends = [&](int) {
    auto made = std::make_unique<TimingBackend>(allocations);
    kernels = made.get();
    return RankBackends{.device = std::move(made)};
  };
  int64_t steps = 0;
  double before = 0;  // [s] in kernels
  std::vector<double> seconds, outside;
  const auto next = [&] {
    if (steps == options.warm_up) kernels->begin();
    if (steps < spec.config.steps) progress.next(str("profile, step ", steps + 1));
  };
  const TrainingCallbacks callbacks{
      .at_start =
          [&](RankTraining& training) {
            training.memory().events().listen([&](const Event& e) {
              if (e.kind == EventKind::kernel) kernels->announce(e);
            });
            next();
          },
      .on_step =
          [&](const StepRecord& record) {
            if (++steps > options.warm_up) {
              const double in_kernels = kernels->seconds_in_kernels();
              seconds.push_back(record.seconds);
              outside.push_back(1 -
                                (in_kernels - std::exchange(before, in_kernels)) / record.seconds);
            }
            next();
            if (steps < spec.config.steps) return;
            kernels->end();
            profile.kernels = kernels->totals();
            profile.untimed = kernels->uncalled();
          }};
  run_training(spec, callbacks);
  int64_t calls = 0;
  for (const KernelTotal& k : profile.kernels) calls += k.calls;
  for (const double s : seconds) profile.total += s;
  profile.clock = TimingBackend::clock_seconds() * double(calls) / double(profile.steps);
  profile.seconds = spread_of(std::move(seconds));
  profile.outside = spread_of(std::move(outside));
  return profile;
}

std::string profile_text(const KernelProfile& profile, double operation_rate) {
  const auto percent = [](double share) { return digits(100 * share, 3) + " %"; };
  const double steps = double(profile.steps);
  TextTable table;
  table.row({"kernel", "calls", "ms", "of step", "GFLOP/s", "of peak", "GB/s"});
  for (const KernelTotal& k : profile.kernels) {
    const bool computes = k.operations > 0;
    const double rate = double(k.operations) / k.seconds;
    table.row({k.kernel, digits(double(k.calls) / steps, 4), digits(1e3 * k.seconds / steps, 3),
               percent(k.seconds / profile.total), computes ? digits(rate / 1e9, 3) : "-",
               computes ? percent(rate / operation_rate) : "-",
               k.bytes > 0 ? digits(double(k.bytes) / k.seconds / 1e9, 3) : "-"});
  }
  table.row({"outside of kernels", "",
             digits(1e3 * profile.outside.median * profile.seconds.median, 3),
             percent(profile.outside.median), "", "", ""});
  return str("Where a step of one rank goes (", profile.steps, " steps, ",
             digits(1e3 * profile.seconds.median, 4), " ms each):\n\n", table.text(),
             "\nOutside are tape, events, ledger and checks, ", percent(profile.outside.least),
             " to ", percent(profile.outside.most),
             " of a step; reading the clock for this table is ",
             percent(profile.clock / profile.seconds.median), " of a step.\n",
             profile.untimed > 0
                 ? str(profile.untimed, " calls of kernels are not timed, and count as outside.\n")
                 : "");
}

}  // namespace zl::cli
