// How ranks communicate on this machine (--backend), and which of them this process is.
#pragma once

#include <optional>
#include <string>

#include "dist/processes/process_ranks.h"
#include "tutorials/zerolab/run/device_choice.h"

namespace zl::cli {

// Which rank this process is, if a launcher started several. None: this process runs all ranks.
// Prints notes to stderr. If it shares a GPU, sets NCCL's variables for that in the environment.
// Throws InputError if the launcher's variables contradict each other or the flags.
std::optional<LaunchedRank> launched_rank(const RunOptions& options);

// Only rank 0's process prints and writes files.
inline bool is_first(const std::optional<LaunchedRank>& process) {
  return !process || process->rank == 0;
}
// Makes this process silent.
void hush(RunOptions& options);

struct BackendChoice {
  Transport transport = Transport::threads;
  std::optional<LaunchedRank> process;  // set unless on_threads(): this process is one rank
  std::string version;                  // "NCCL 2.28.9", "Open MPI 4.1.4"

  bool on_threads() const { return transport == Transport::threads; }
};

// Without a launcher ranks are threads. For processes, auto takes MPI if mpirun or srun started
// them without GPUs, else NCCL. Throws InputError, with the reason, if NCCL or MPI is needed and
// cannot be used.
BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process = {});

// Makes the ranks of `spec` communicate so; spec.ordered_sums decides who adds. All processes of
// a run must have equal `settings`, and make the same runs in the same order.
void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings = "");

// "NCCL 2.28.9, sums in rank order".
std::string describe(const BackendChoice& backend, bool ordered_sums);

}  // namespace zl::cli
