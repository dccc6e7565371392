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
  int64_t tokens = 0;                            // of a rank and step
  // [B] As the dry run says, of one rank.
  int64_t device_peak = 0, host_peak = 0, disk_peak = 0;
  // As Chowdhery et al. 2022 (arXiv:2204.02311), appendix B, over the peak of the spec's precision.
  double mfu = 0;
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

// The factor of the slowest of so many ranks.
double slowest(const Stragglers& stragglers, int ranks);

// With overlap_comm and the next unit prefetched, or with neither.
void set_overlap(Options& options, bool on);

// ---- how wrong it may be: as beside published times (tutorials/reference/clock.md) -------------

// Where a machine's rates come from.
enum class MachineData {
  measured,    // kernels measured on it (`zerolab bench machine --save`)
  fitted,      // its shares are fitted to published steps of its kind of GPU
  data_sheet,  // peaks, with shares that are carried over from another kind
};
MachineData machine_data(const Machine& machine);

// Mean of |predicted / measured - 1|, by the number of ranks: up to 16, up to 128, and more. A step
// on measured kernels is as wrong as published steps that one step of their set calibrates.
struct ExpectedError {
  double error = 0;
  // Trust only which of two runs is faster. No published step without tensor or pipeline
  // parallelism has so many ranks.
  bool order_only = false;
};
ExpectedError expected_step_error(MachineData data, int ranks);

}  // namespace zl
