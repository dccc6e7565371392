// Which launcher started this process, and how its ranks communicate.

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "dist/mpi/mpi_transport.h"
#include "dist/nccl/api.h"
#include "dist/nccl/nccl_transport.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/run/device_choice.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Wanted = RunOptions::BackendWish;

const char* variable(const char* name) { return std::getenv(name); }

std::string how_to_start(const RunOptions& options) {
  const bool mpi = options.backend == Wanted::mpi;
  return str("start them with zerolab launch -n ", options.ranks.value_or(2), " -- ",
             options.command, " --backend ", mpi ? "mpi" : "nccl", " …, or with mpirun",
             mpi ? " or srun" : ", srun or torchrun");
}

// Throws InputError, with what to do, if NCCL cannot serve ranks that are processes. They compare
// their GPUs when they connect.
void require_nccl_for(const DeviceChoice& device, int ranks) {
  const NcclInBuild nccl = nccl_in_build();
  std::string problem = nccl.problem;
  if (nccl.api) problem = nccl_version_problem(*nccl.api);
  if (problem.empty() && nccl.api->needs_gpu && !device.on_gpus())  // the fake NCCL of tests: no
    problem = "NCCL communicates GPU memory, but ranks compute on the CPU here";
  require_input(problem.empty(), "ranks that are processes communicate by NCCL: ", problem,
                "; or start one process with --ranks ", ranks, ", whose ranks are threads",
                nccl.api ? "" : ". How to fix it: " + nccl.cure);
}

}  // namespace

std::optional<LaunchedRank> launched_rank(RunOptions& options) {
  const LaunchEnvironment found = launch_environment(variable);
  if (!found.note.empty() && !options.quiet) std::fprintf(stderr, "note: %s\n", found.note.c_str());
  const bool mpi = options.backend == Wanted::mpi, asked = mpi || options.backend == Wanted::nccl;
  require_input(!asked || found.rank, mpi ? "--backend mpi" : "--backend nccl",
                ": ranks are processes, and this one was started by no launcher; ",
                how_to_start(options));
  if (!found.rank || (found.rank->size == 1 && !asked)) return std::nullopt;
  const LaunchedRank& rank = *found.rank;
  require_input(!options.ranks || *options.ranks == rank.size, "--ranks ",
                options.ranks.value_or(0), ", but ", rank.launcher, " started ", rank.size,
                " processes, each of which is one rank; leave --ranks out");
  require_input(options.backend != Wanted::threads,
                "--backend threads: ranks are threads of one process, but ", rank.launcher,
                " started ", rank.size,
                "; use --backend nccl or mpi, or start one process with --ranks ", rank.size);
  if (rank.shares_gpu)  // before NCCL is loaded, and before there is another thread
    for (const auto& [name, value] : shared_gpu_variables(rank.rank, variable))
      ::setenv(name.c_str(), value.c_str(), 1);
  if (rank.rank > 0) options.quiet = true, options.json = false;
  return rank;
}

BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process) {
  sigterm_follows_death = process && process->launcher != kNoLauncher;
  if (!process) return {};
  require_input(!process->shares_gpu || device.on_gpus(),
                "--share-gpu (ZEROLAB_SHARE_GPU=1) lets ranks on NCCL share a GPU, but ranks "
                "compute on the CPU here; leave it out");
  const bool serves_mpi = process->launcher == "mpirun" || process->launcher == "srun";
  if (options.backend == Wanted::automatic ? !device.on_gpus() && serves_mpi && mpi_in_build()
                                           : options.backend == Wanted::mpi) {
    require_input(serves_mpi, "--backend mpi: ", process->launcher,
                  " started these ranks, and cannot start ranks of MPI; ", how_to_start(options));
    require_input(!device.on_gpus(),
                  "--backend mpi: MPI communicates the memory of CPUs here, but ranks compute on "
                  "GPUs; add --device cpu, or use --backend nccl");
    const MpiInBuild mpi = require_mpi();
    return {Transport::mpi, process, str(mpi.name(), " ", mpi.version)};
  }
  require_nccl_for(device, ranks);
  return {Transport::nccl, process, "NCCL " + nccl_version()};
}

void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings) {
  spec.transport = backend.transport;
  spec.run_ranks = nullptr;
  if (backend.on_threads()) return;
  const bool mpi = backend.transport == Transport::mpi;
  const LaunchedRank& process = *backend.process;
  const std::vector<int> gpus = device.indices();
  NcclOptions nccl{.ordered = spec.ordered_sums};
  if (device.on_gpus())
    nccl.choose_gpu = [gpus](int rank) { select_gpu(gpus[size_t(rank) % gpus.size()]); };
  const ProcessOptions options{
      .settings = settings,
      .gpu = gpus.empty() || process.shares_gpu ? "" : device.gpus.front().pci,
      .interrupted = interrupt_requested};
  spec.run_ranks = [=, runs = std::make_shared<int>(0)](
                       int ranks, const std::function<void(Communicator&)>& body,
                       RankOptions rank_options) {
    require(ranks == process.size, "a run of ", ranks, " ranks on ", process.size, " processes");
    LaunchedRank here = process;
    here.run += str("/", ++*runs);  // a late rank of one run must not join the next
    run_process_rank(here, body, rank_options,
                     mpi ? mpi_transport(here) : nccl_transport(here, rank_options, nccl), options);
  };
}

std::string describe(const BackendChoice& backend, bool ordered_sums) {
  if (backend.on_threads()) return "threads, which read each other's memory";
  return str(
      backend.version,
      ordered_sums || backend.transport == Transport::mpi ? ", sums in rank order"
                                                          : ", sums in NCCL's own order",
      "; each is a process, started by ", backend.process->launcher,
      backend.process->shares_gpu ? ". They share GPUs, which tests NCCL; times mean nothing" : "");
}

}  // namespace zl::cli
