// Where the ranks of a run compute on this machine, and how they communicate: --device, --tf32,
// --threads, --backend, and the variables of launchers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/processes/process_ranks.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

// Which rank this process is, if a launcher started several. None: this process
// runs all ranks. Only rank 0's process prints and writes files: the options of
// another one become quiet. Prints notes to stderr. If the process shares a
// GPU, sets NCCL's variables for that in the environment. Throws InputError if
// the launcher's variables contradict each other or the flags.
std::optional<LaunchedRank> launched_rank(RunOptions& options);
inline bool is_first(const std::optional<LaunchedRank>& process) {
  return !process || process->rank == 0;
}

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;
  bool reference = false;   // on the CPU, by the kernels of tensor/reference
  std::vector<Gpu> gpus;    // to be used; none on the CPU
  bool of_process = false;  // of one rank: the GPUs of the others are not known here
  bool tf32 = false;        // fp32 matrices are multiplied in TF32
  int threads = 1;          // compute threads of each rank, for kernels on the CPU

  bool on_gpus() const { return kind == DeviceKind::cuda; }
  std::vector<int> indices() const;  // of the GPUs
  // How many of `ranks` compute on gpus[i]: rank r uses GPU r modulo their
  // number.
  int ranks_on(size_t i, int ranks) const;
  // How many of `ranks` compute at the same time, each on a GPU or on as many
  // cores as threads.
  int places(int ranks) const;
  std::string name() const;  // "NVIDIA H200", or the CPU's
};

// auto takes the usable GPUs, at most one for each rank, those with more than
// 1/5 of their memory free first. A process that is one rank takes the GPU of
// its local rank, modulo the GPUs that it sees, and does not open it here. If
// auto takes none, or fewer than there are ranks, it says, unless quiet, why a
// GPU that is there cannot be used. Throws InputError if cuda was asked for and
// no GPU is usable, or if --tf32 or --threads cannot have an effect.
DeviceChoice choose_device(const RunOptions& options, Dtype precision, int ranks,
                           const std::optional<LaunchedRank>& process = {});

// Throws InputError if --threads has no effect: on GPUs, unless the optimizer
// is offloaded.
void require_threads_used(DeviceKind device, int threads, bool offload_optimizer);

struct BackendChoice {
  Transport transport = Transport::threads;
  std::optional<LaunchedRank> process;  // set unless on_threads(): this process is one rank
  std::string version;                  // "NCCL 2.28.9", "Open MPI 4.1.4"

  bool on_threads() const { return transport == Transport::threads; }
};

// Without a launcher ranks are threads. For processes, auto takes MPI if mpirun
// or srun started them without GPUs, else NCCL. Throws InputError, with the
// reason, if NCCL or MPI is needed and cannot be used.
BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process = {});

// Makes `spec` compute there, and all CPU kernels of this process on
// `device.threads` threads.
void place(TrainingSpec& spec, const DeviceChoice& device);
// Makes the ranks of `spec` communicate so; spec.ordered_sums decides who adds.
// All processes of a run must have equal `settings`, and make the same runs in
// the same order.
void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings = "");

// "cuda, NVIDIA H200, 3 ranks share it".
std::string describe(const DeviceChoice& device, int ranks);
// "NCCL 2.28.9, sums in rank order".
std::string describe(const BackendChoice& backend, bool ordered_sums);

}  // namespace zl::cli
