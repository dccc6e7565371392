#include "tutorials/zerolab/run/backend_choice.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "dist/mpi/library.h"
#include "dist/mpi/mpi_transport.h"
#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_transport.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

// Why NCCL cannot serve ranks that are processes, and what to do; "" if it can. They compare their
// GPUs when they connect.
std::string refusal(const NcclInBuild& nccl, const DeviceChoice& device, int ranks) {
  const std::string threads =
      str("start one process with --ranks ", ranks, ", whose ranks are threads");
  if (!nccl.api) return nccl.problem + "; " + threads + ". How to fix it: " + nccl.cure;
  if (const std::string problem = nccl_version_problem(*nccl.api); !problem.empty())
    return problem + "; or " + threads;
  if (!device.on_gpus() && nccl.api->needs_gpu)  // the fake NCCL of tests does not
    return "NCCL communicates GPU memory, but ranks compute on the CPU here; " + threads;
  return "";
}

using MakeTransport = std::function<ProcessTransport(const LaunchedRank&, const RankOptions&)>;

RunRanks run_as_process(const LaunchedRank& process, const MakeTransport& transport,
                        const ProcessOptions& options) {
  const auto runs = std::make_shared<int>(0);
  return [=](int ranks, const std::function<void(Communicator&)>& body, RankOptions rank_options) {
    require(ranks == process.size, "a run of ", ranks, " ranks on ", process.size, " processes");
    LaunchedRank here = process;
    here.run += str("/", ++*runs);  // a late rank of one run must not join the next
    run_process_rank(here, body, rank_options, transport(here, rank_options), options);
  };
}

const char* variable(const char* name) { return std::getenv(name); }

// Launchers that MPI finds its ranks through.
bool serves_mpi(const LaunchedRank& rank) {
  return rank.launcher == "mpirun" || rank.launcher == "srun";
}

// How to start ranks on MPI.
std::string mpi_start(const RunOptions& options) {
  return str("start them with mpirun -n N zerolab ", options.command,
             " --backend mpi …, with srun, or with zerolab launch -n N -- ", options.command,
             " --backend mpi …");
}

// How to start ranks on NCCL.
std::string nccl_start(const RunOptions& options) {
  return str("start them with zerolab launch -n ", options.ranks.value_or(2), " -- ",
             options.command, " --backend nccl …, with torchrun, srun or mpirun");
}

bool takes_mpi(const RunOptions& options, const DeviceChoice& device, const LaunchedRank& process) {
  if (options.backend != RunOptions::BackendWish::automatic)
    return options.backend == RunOptions::BackendWish::mpi;
  return !device.on_gpus() && serves_mpi(process) && mpi_in_build();
}

// Before NCCL is loaded, and before there is another thread.
void share_gpu(int rank) {
  for (const auto& [name, value] : shared_gpu_variables(rank, variable))
    ::setenv(name.c_str(), value.c_str(), 1);
}

BackendChoice choose_mpi(const RunOptions& options, const DeviceChoice& device,
                         const LaunchedRank& process) {
  require_input(serves_mpi(process), "--backend mpi: ", process.launcher,
                " started these ranks, and cannot start ranks of MPI; ", mpi_start(options));
  require_input(!device.on_gpus(),
                "--backend mpi: MPI communicates the memory of CPUs here, but ranks compute on "
                "GPUs; add --device cpu, or use --backend nccl");
  const MpiInBuild mpi = require_mpi();
  return {.transport = Transport::mpi,
          .process = process,
          .version = str(mpi.name(), " ", mpi.version)};
}

// MPI has no sums of 16-bit floats.
void require_mpi_adds(const TrainingSpec& spec) {
  const Options& engine = spec.engine;
  const Dtype sums =
      engine.communication_data_type.value_or(engine.grad_accum_dtype.value_or(engine.precision));
  require_input(spec.ordered_sums || size_of(sums) >= 4,
                "\"zerolab\": {\"ordered\": false} leaves sums to MPI, and MPI cannot add ",
                name(sums),
                "; leave it out, or communicate in fp32 (\"communication_data_type\": \"fp32\")");
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const RunOptions& options) {
  const LaunchEnvironment found = launch_environment(variable);
  if (!found.note.empty() && !options.quiet) std::fprintf(stderr, "note: %s\n", found.note.c_str());
  const bool mpi = options.backend == RunOptions::BackendWish::mpi,
             nccl = options.backend == RunOptions::BackendWish::nccl;
  require_input((!mpi && !nccl) || found.rank, mpi ? "--backend mpi" : "--backend nccl",
                ": ranks are processes, and this one was started by no launcher; ",
                mpi ? mpi_start(options) : nccl_start(options));
  if (!found.rank || (found.rank->size == 1 && !mpi && !nccl)) return std::nullopt;
  const LaunchedRank& rank = *found.rank;
  require_input(!options.ranks || *options.ranks == rank.size, "--ranks ",
                options.ranks.value_or(0), ", but ", rank.launcher, " started ", rank.size,
                " processes, each of which is one rank; leave --ranks out");
  require_input(options.backend != RunOptions::BackendWish::threads,
                "--backend threads: ranks are threads of one process, but ", rank.launcher,
                " started ", rank.size,
                "; use --backend nccl or mpi, or start one process with --ranks ", rank.size);
  if (rank.shares_gpu) share_gpu(rank.rank);
  return rank;
}

void hush(RunOptions& options) {
  options.quiet = true;
  options.json = false;
}

BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process) {
  sigterm_follows_death = process && process->launcher != kNoLauncher;
  require_input(!process || !process->shares_gpu || device.on_gpus(),
                "--share-gpu (ZEROLAB_SHARE_GPU=1) lets ranks on NCCL share a GPU, but ranks "
                "compute on the CPU here; leave it out");
  if (process && takes_mpi(options, device, *process)) return choose_mpi(options, device, *process);
  if (!process) return {};
  const std::string problem = refusal(nccl_in_build(), device, ranks);
  require_input(problem.empty(), "ranks that are processes communicate by NCCL: ", problem);
  const std::string version = nccl_version();
  return {.transport = Transport::nccl,
          .process = process,
          .version = "NCCL" + (version.empty() ? "" : " " + version)};
}

void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings) {
  spec.transport = backend.transport;
  spec.run_ranks = nullptr;
  if (backend.on_threads()) return;
  const ProcessOptions options{.settings = settings,
                               .gpu = backend.process->shares_gpu ? "" : device.pci(),
                               .interrupted = interrupt_requested};
  if (backend.transport == Transport::mpi) {
    require_mpi_adds(spec);
    spec.run_ranks = run_as_process(
        *backend.process,
        [ordered = spec.ordered_sums](const LaunchedRank& here, const RankOptions& ranks) {
          return mpi_transport(here, ranks, ordered);
        },
        options);
    return;
  }
  NcclOptions nccl{.ordered = spec.ordered_sums};
  if (device.on_gpus())
    nccl.choose_gpu = [gpus = device.indices()](int rank) {
      select_gpu(gpus[size_t(rank) % gpus.size()]);
    };
  spec.run_ranks = run_as_process(
      *backend.process,
      [nccl](const LaunchedRank& here, const RankOptions& ranks) {
        return nccl_transport(here, ranks, nccl);
      },
      options);
}

std::string describe(const BackendChoice& backend, bool ordered_sums) {
  if (backend.on_threads()) return "threads, which read each other's memory";
  return str(
      backend.version,
      ordered_sums
          ? ", sums in rank order"
          : str(", sums in ", backend.transport == Transport::mpi ? "MPI" : "NCCL", "'s own order"),
      "; each is a process, started by ", backend.process->launcher,
      backend.process->shares_gpu ? ". They share GPUs, which tests NCCL; times mean nothing" : "");
}

}  // namespace zl::cli
