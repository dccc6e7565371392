// A description of this machine for the clock (stages/predict/clock/machine.h), all of it measured.
#pragma once

#include <algorithm>
#include <string>

#include "stages/predict/clock/machine.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

// The flags of 'zerolab bench machine'.
struct MachineOptions : RunOptions {
  std::string folder;  // on the disk; "": none is measured
  std::string save;    // the file of the description; "": none
  bool quick = false, force = false;
  // Set from these flags.
  CoreRun cores;
  int64_t array = 0;                                              // [B] of each large array
  int64_t disk_file() const { return (quick ? 4 : 128) * kMiB; }  // [B]
  int64_t disk_samples() const { return std::min<int64_t>(cores.samples, 5); }
  int64_t disk_passes() const { return folder.empty() ? 0 : 2 * (disk_samples() + 1); }
};

// Throws Interrupted, InputError if the ranks' device cannot be used,
// and any error of a rank.
Machine describe_machine(const MachineOptions& options);

}  // namespace zl::cli
