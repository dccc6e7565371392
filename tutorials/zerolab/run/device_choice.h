// What --device and --tf32 mean on this machine.
#pragma once

#include <string>
#include <vector>

#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  std::vector<Gpu> gpus;  // the ones to be used; none on the CPU
  bool tf32 = false;      // fp32 products in TF32

  bool on_gpus() const { return kind == DeviceKind::cuda; }
  std::vector<int> indices() const;  // of the GPUs
  // How many of `ranks` compute on gpus[i]: rank r takes GPU r modulo their number.
  int ranks_on(size_t i, int ranks) const;
  // Devices that compute at the same time when `ranks` run: GPUs, or cores of this CPU.
  int places(int ranks) const;
  std::string pci() const;   // of the one GPU of a process; "" on the CPU
  std::string name() const;  // "NVIDIA H200", or the CPU's
};

// auto takes the GPUs if there are any that can be used, at most one for each rank. Throws
// InputError if cuda was asked for and none can, or if --tf32 was and ranks compute on the CPU;
// says on stderr, unless quiet, if --tf32 has no effect in `precision`.
DeviceChoice choose_device(const RunOptions& options, Dtype precision, int ranks);
// For one rank of several processes on this machine: the GPU of its number among them, modulo the
// GPUs that it sees. None is opened here, so its free memory is not known.
DeviceChoice choose_device_of_process(const RunOptions& options, Dtype precision, int local_rank);

// Where `spec` computes.
void place(TrainingSpec& spec, const DeviceChoice& device);

// "cuda, NVIDIA H200, 3 ranks share it".
std::string describe(const DeviceChoice& device, int ranks);

}  // namespace zl::cli
