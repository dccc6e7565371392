// Seconds of a step on a machine, from a dry run of the real stage.
#pragma once

#include "stages/predict/clock/step_clock.h"
#include "stages/train/gpt_spec.h"

namespace zl {

// How fast ranks differ: each rank's kernels take exp(deviation * z) times as long, with z from the
// standard normal distribution. Every call waits for the slowest rank.
struct Stragglers {
  double deviation = 0;
  uint64_t seed = 1;
};

struct StepTime {
  ClockTimes times;                              // of a whole step
  std::map<std::string, double> kernels, calls;  // [s] of the micro-batches that the dry run makes
  std::vector<ClockSpan> spans;                  // likewise
  int64_t tokens = 0;                            // of a rank and step
  // [B] As the dry run says, of one rank.
  int64_t device_peak = 0, host_peak = 0, disk_peak = 0;
  double flops = 0;  // [1/s] of a rank, as Chowdhery et al. 2022 (arXiv:2204.02311), appendix B
  double mfu = 0;    // flops over the peak of the spec's precision
  double tokens_per_second() const {
    return times.seconds > 0 ? double(tokens) / times.seconds : 0;
  }
};

// `spec.device` is the machine's.
StepTime clock_step(const GptTrainingSpec& spec, const Machine& machine,
                    const Stragglers& stragglers = {});

// What a step needs more of than there is.
enum class Shortage { none, device_memory, host_memory, disk };
// By the limits of `spec`, which are those of a rank, and by the machine's host memory and disk,
// which the ranks of a node share. A size that the machine's file does not say is no limit; a disk
// without a rate is none.
Shortage shortage(const StepTime& time, const GptTrainingSpec& spec, const Machine& machine);
const char* name(Shortage shortage);  // "device memory"

// Operations for one token of a step: 6 for each parameter, and 12 * layers * width * window for
// attention, without a discount for the causal mask and without recomputation.
double model_operations_per_token(const GptTrainingSpec& spec);

// The factor of the slowest of so many ranks.
double slowest(const Stragglers& stragglers, int ranks);

// With overlap_comm and the next unit prefetched, or with neither.
void set_overlap(Options& options, bool on);

}  // namespace zl
