// Where ranks compute on this machine: --device, --tf32 and --threads.
#pragma once

#include <string>
#include <vector>

#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  bool reference = false;   // on the CPU, by the kernels of tensor/reference
  std::vector<Gpu> gpus;    // to be used; none on the CPU
  bool of_process = false;  // of one rank: the GPUs of the others are not known here
  bool tf32 = false;        // fp32 matrices are multiplied in TF32
  int threads = 1;          // compute threads of each rank, for kernels on the CPU
  bool quiet = false;       // says nothing while GPUs get ready

  bool on_gpus() const { return kind == DeviceKind::cuda; }
  std::vector<int> indices() const;  // of the GPUs
  // How many of `ranks` compute on gpus[i]: rank r uses GPU r modulo their number.
  int ranks_on(size_t i, int ranks) const;
  // How many of `ranks` compute at the same time, each on a GPU or on as many cores as threads.
  int places(int ranks) const;
  std::string pci() const;   // of the one GPU of a process; "" on the CPU
  std::string name() const;  // "NVIDIA H200", or the CPU's
};

// auto takes the usable GPUs, at most one for each rank. If there are more, the first ones with
// more than 1/5 of their memory free, then those with the most. If it takes none, or fewer than
// there are ranks, it says, unless quiet, why a GPU that is there cannot be used. Throws InputError
// if cuda was asked for and no GPU is usable, or if --tf32 was and ranks compute on the CPU. Prints
// a note, unless quiet, if --tf32 has no effect in `precision`. Throws InputError if --threads is
// more than the cores, or if they are given for the reference.
DeviceChoice choose_device(const RunOptions& options, Dtype precision, int ranks);
// For one rank of several processes on this machine: the GPU of its local rank, modulo the GPUs
// that it sees. The GPU is not opened here, so its free memory is unknown.
DeviceChoice choose_device_of_process(const RunOptions& options, Dtype precision, int local_rank);

// Throws InputError if --threads has no effect: on GPUs, unless the optimizer is offloaded.
void require_threads_used(DeviceKind device, int threads, bool offload_optimizer);

// Makes `spec` compute there, and all CPU kernels of this process on `device.threads` threads.
void place(TrainingSpec& spec, const DeviceChoice& device);

// "cuda, NVIDIA H200, 3 ranks share it".
std::string describe(const DeviceChoice& device, int ranks);

}  // namespace zl::cli
