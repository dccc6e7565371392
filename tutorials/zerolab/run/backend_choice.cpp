#include "tutorials/zerolab/run/backend_choice.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_ranks.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

// Why NCCL cannot serve these ranks, and what to do; "" if it can.
std::string refusal(const NcclInBuild& nccl, const DeviceChoice& device, int ranks, bool process) {
  const std::string threads =
      process ? str("start one process with --ranks ", ranks, ", whose ranks are threads")
              : "use --backend threads, which runs the same stages";
  if (!nccl.api) return nccl.problem + "; " + threads + ". How to fix it: " + nccl.cure;
  if (const std::string problem = nccl_version_problem(*nccl.api); !problem.empty())
    return problem + "; or " + threads;
  if (!device.on_gpus())
    return nccl.api->needs_gpu
               ? "NCCL communicates GPU memory, but ranks compute on the CPU here; " + threads
               : "";  // the fake NCCL of tests
  const int gpus = int(device.gpus.size());
  if (gpus >= ranks || process) return "";  // processes compare their GPUs when they connect
  return str("NCCL needs a GPU for each of ", ranks, " ranks, but ", plural(gpus, "usable GPU"),
             gpus == 1 ? " is" : " are", " here; ", threads, ", or --ranks ", gpus);
}

RunRanks run_as_process(const LaunchedRank& process, const NcclOptions& nccl,
                        const ProcessOptions& options) {
  const auto runs = std::make_shared<int>(0);
  return [=](int ranks, const std::function<void(Communicator&)>& body, RankOptions rank_options) {
    require(ranks == process.size, "a run of ", ranks, " ranks on ", process.size, " processes");
    LaunchedRank here = process;
    here.run += str("/", ++*runs);  // a late rank of one run must not join the next
    run_process_rank(here, body, rank_options, nccl, options);
  };
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const RunOptions& options) {
  const LaunchEnvironment found =
      launch_environment([](const char* name) { return std::getenv(name); });
  if (!found.note.empty() && !options.quiet) std::fprintf(stderr, "note: %s\n", found.note.c_str());
  if (!found.rank || found.rank->size == 1) return std::nullopt;
  const LaunchedRank& rank = *found.rank;
  require_input(!options.ranks || *options.ranks == rank.size, "--ranks ",
                options.ranks.value_or(0), ", but ", rank.launcher, " started ", rank.size,
                " processes, each of which is one rank; leave --ranks out");
  require_input(options.backend != RunOptions::BackendWish::threads,
                "--backend threads: ranks are threads of one process, but ", rank.launcher,
                " started ", rank.size, "; use --backend nccl, or start one process with --ranks ",
                rank.size);
  return rank;
}

void hush(RunOptions& options) {
  options.quiet = true;
  options.json = false;
}

BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process) {
  using Wish = RunOptions::BackendWish;
  const bool useful = ranks > 1 && device.on_gpus();
  if (!process &&
      (options.backend == Wish::threads || (options.backend == Wish::automatic && !useful)))
    return {};
  const std::string problem = refusal(nccl_in_build(), device, ranks, process.has_value());
  if (process)
    require_input(problem.empty(), "ranks that are processes communicate by NCCL: ", problem);
  require_input(problem.empty() || options.backend == Wish::automatic, "--backend nccl: ", problem);
  if (!problem.empty()) return {};
  return {.transport = Transport::nccl, .process = process, .version = nccl_version()};
}

void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings) {
  spec.transport = backend.transport;
  spec.run_ranks = nullptr;
  if (!backend.on_nccl()) return;
  NcclOptions nccl{.ordered = spec.ordered_sums};
  if (device.on_gpus())
    nccl.choose_gpu = [gpus = device.indices()](int rank) {
      select_gpu(gpus[size_t(rank) % gpus.size()]);
    };
  if (backend.process)
    spec.run_ranks = run_as_process(
        *backend.process, nccl,
        {.settings = settings, .gpu = device.pci(), .interrupted = interrupt_requested});
  else
    spec.run_ranks = [nccl](int ranks, const std::function<void(Communicator&)>& body,
                            RankOptions options) { run_nccl_ranks(ranks, body, options, nccl); };
}

std::string describe(const BackendChoice& backend, bool ordered_sums) {
  if (!backend.on_nccl()) return "threads, which read each other's memory";
  return str(
      "NCCL", backend.version.empty() ? "" : " ", backend.version,
      ordered_sums ? ", sums in rank order" : ", sums in NCCL's own order",
      backend.process ? str("; each is a process, started by ", backend.process->launcher) : "");
}

}  // namespace zl::cli
