#include "tutorials/zerolab/run/backend_choice.h"

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_ranks.h"
#include "tutorials/zerolab/cli/interrupt.h"

namespace zl::cli {
namespace {

// Why NCCL cannot serve these ranks, and what to do; "" if it can.
std::string refusal(const NcclInBuild& nccl, const DeviceChoice& device, int ranks, bool process) {
  const std::string threads =
      process ? str("start one process with --ranks ", ranks, ", whose ranks are threads")
              : "use --backend threads, which runs the same stages";
  if (!nccl.api) return nccl.problem + "; " + threads + ". Cure: " + nccl.cure;
  if (const std::string problem = nccl_version_problem(*nccl.api); !problem.empty())
    return problem + "; or " + threads;
  if (!device.on_gpus() && !nccl.api->needs_gpu) return "";  // one that tests put in NCCL's place
  if (!device.on_gpus())
    return str("NCCL moves the memory of GPUs, but ranks compute on the CPU here; ", threads);
  const int gpus = int(device.gpus.size());
  if (gpus >= ranks || process) return "";  // processes compare their GPUs when they meet
  return str("NCCL needs a GPU for each rank, but here ",
             gpus == 1 ? "is 1 GPU" : str("are ", gpus, " GPUs"), " that can be used for ", ranks,
             " ranks; ", threads, ", or --ranks ", gpus);
}

std::string version_of(const NcclApi& api) {
  int code = 0;
  return api.get_version(&code) == NcclResult::success ? nccl_version_text(code) : "";
}

}  // namespace

BackendChoice choose_backend(const RunOptions& options, const DeviceChoice& device, int ranks,
                             const std::optional<LaunchedRank>& process) {
  using Wish = RunOptions::BackendWish;
  const bool worth_it = ranks > 1 && device.on_gpus();
  if (!process &&
      (options.backend == Wish::threads || (options.backend == Wish::automatic && !worth_it)))
    return {};
  const NcclInBuild nccl = nccl_in_build();
  const std::string problem = refusal(nccl, device, ranks, process.has_value());
  if (process)
    require_input(problem.empty(), "ranks that are processes communicate by NCCL: ", problem);
  require_input(problem.empty() || options.backend == Wish::automatic, "--backend nccl: ", problem);
  if (!problem.empty()) return {};
  return {.transport = Transport::nccl, .process = process, .version = version_of(*nccl.api)};
}

void place(TrainingSpec& spec, const BackendChoice& backend, const DeviceChoice& device,
           const std::string& settings) {
  spec.transport = backend.transport;
  spec.run_ranks = nullptr;
  if (!backend.on_nccl()) return;
  NcclOptions nccl{.ordered = spec.config.ordered};
  if (device.on_gpus())
    nccl.choose_gpu = [gpus = device.indices()](int rank) {
      (void)make_gpu_backend(gpus[size_t(rank) % gpus.size()]);
    };
  if (backend.process) {
    spec.run_ranks = run_as_process(
        *backend.process, nccl,
        {.settings = settings, .gpu = device.pci(), .interrupted = interrupt_requested});
    return;
  }
  spec.run_ranks = [nccl](int ranks, const std::function<void(Communicator&)>& body,
                          RankOptions options) { run_nccl_ranks(ranks, body, options, nccl); };
}

std::string describe(const BackendChoice& backend, const Config& config) {
  if (!backend.on_nccl()) return "threads, which read each other's memory";
  return str(
      "NCCL", backend.version.empty() ? "" : " ", backend.version,
      config.ordered ? ", sums in rank order" : ", whose sums are in an order of its own",
      backend.process ? str("; each is a process, started by ", backend.process->launcher) : "");
}

}  // namespace zl::cli
