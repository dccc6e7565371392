#include "tutorials/zerolab/run/device_choice.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "dist/mpi/mpi_transport.h"
#include "dist/nccl/api.h"
#include "dist/nccl/nccl_transport.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Wish = RunOptions::DeviceWish;
using Wanted = RunOptions::BackendWish;

// Whether more than 1/5 of its memory is free, so that a run may fit.
bool has_room(const Gpu& gpu) { return gpu.problem.empty() && gpu.available > gpu.memory / 5; }

// At most one for each rank: other programs on this machine may need the rest. Those with room come
// first, then those with the most free memory.
std::vector<Gpu> usable(std::vector<Gpu> gpus, int ranks) {
  std::erase_if(gpus, [](const Gpu& gpu) { return gpu.available == 0 || !gpu.problem.empty(); });
  std::ranges::stable_sort(gpus, [](const Gpu& a, const Gpu& b) {
    if (has_room(a) || has_room(b)) return has_room(a) > has_room(b);
    return a.available > b.available;
  });
  if (int(gpus.size()) > ranks) gpus.resize(size_t(ranks));
  std::ranges::sort(gpus, {}, &Gpu::index);
  return gpus;
}

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

std::vector<int> DeviceChoice::indices() const {
  std::vector<int> all;
  for (const Gpu& gpu : gpus) all.push_back(gpu.index);
  return all;
}

int DeviceChoice::ranks_on(size_t i, int ranks) const {
  const int n = int(gpus.size());
  return (ranks - int(i) + n - 1) / n;
}

int DeviceChoice::places(int ranks) const {
  return std::min(ranks, on_gpus() ? int(gpus.size()) : std::max(1, usable_cores() / threads));
}

std::string DeviceChoice::name() const {
  if (!on_gpus()) return cpu_model();
  std::string all;
  for (const Gpu& gpu : gpus)
    if (all.empty() || gpu.name != gpus.front().name) all += (all.empty() ? "" : ", ") + gpu.name;
  return all;
}

DeviceChoice choose_device(const RunOptions& options, Dtype precision, int ranks,
                           const std::optional<LaunchedRank>& process) {
  DeviceChoice choice{.reference = options.device == Wish::reference,
                      .of_process = process.has_value(),
                      .tf32 = options.tf32 && precision == Dtype::f32,
                      .threads = options.threads};
  std::vector<std::string> notes;
  if (options.device == Wish::automatic || options.device == Wish::cuda) {
    // Only as many are opened as there are ranks, unless too few of them have room.
    Gpus found = find_gpus(process ? 0 : ranks);
    if (!process && std::ranges::count_if(found.gpus, has_room) <
                        std::min<int64_t>(ranks, std::ssize(found.gpus)))
      found = find_gpus();
    choice.gpus = process ? found.gpus : usable(found.gpus, ranks);
    const bool none = choice.gpus.empty();
    if (none && found.usable()) {
      found.problem = str("no memory is free on ", found.gpus.size(), " GPUs");
      found.cure = "wait until the programs that use the GPUs have ended";
      found.broken = true;
    }
    require_input(!none || options.device != Wish::cuda, "--device cuda: ", found.problem,
                  "; use --device cpu, which runs the same stages, or ", found.cure);
    if (none && found.broken)
      notes = {str("ranks compute on the CPU: ", found.problem, ". How to fix it: ", found.cure)};
    for (const Gpu& gpu : found.gpus)
      if (!process && !none && !gpu.problem.empty() && int(choice.gpus.size()) < ranks)
        notes.push_back(str("GPU ", gpu.index, " (", gpu.name, ") is not used: ", gpu.problem));
    if (process && !none)
      choice.gpus = {choice.gpus[size_t(process->local_rank) % choice.gpus.size()]};
    if (!none) choice.kind = DeviceKind::cuda;
  }
  require_input(!choice.reference || options.threads == 1,
                "--threads splits the kernels of --device cpu; those of the reference run on one "
                "thread, so leave it out");
  require_input(!options.tf32 || choice.on_gpus(),
                "--tf32 is a way in which GPUs multiply, but ranks compute on the CPU here; leave "
                "it out");
  if (options.tf32 && !choice.tf32)
    notes.push_back("--tf32 has no effect in bf16 and fp16, which multiply no fp32 matrices");
  for (const std::string& note : notes)
    if (!options.quiet) say(note, "note");
  return choice;
}

void require_threads_used(DeviceKind device, int threads, bool offload_optimizer) {
  require_input(threads == 1 || device == DeviceKind::cpu || offload_optimizer,
                "--threads splits kernels on the CPU, but these ranks compute on GPUs; leave it "
                "out");
}

void place(TrainingSpec& spec, const DeviceChoice& device) {
  set_compute_threads(device.threads);
  spec.device = device.kind;
  spec.backends = nullptr;
  if (device.reference) use_reference(spec);
  if (!device.on_gpus()) return;
  spec.backends =
      on_gpus(device.indices(), {.tf32 = device.tf32, .preloads = spec.engine.precision});
}

std::string describe(const DeviceChoice& device, int ranks) {
  if (device.reference) return "reference kernels, on one thread of " + device.name();
  if (!device.on_gpus()) return "cpu, " + device.name();
  const std::vector<int> indices = device.indices();
  const size_t n = indices.size();
  std::string taken;
  for (const int index : indices) taken += str(" ", index);
  return str("cuda, ", n > 1 ? str(n, " GPUs (", device.name(), ")") : device.name(),
             n > 1 && ranks > 1 ? ", ranks take GPUs" + taken + " in turn" : "",
             n == 1 && ranks > 1 && !device.of_process ? str(", ", ranks, " ranks share it") : "",
             device.tf32 ? ", fp32 matrices multiplied in TF32" : "");
}

// ---- how ranks communicate ----------------------------------------------------------------------

std::optional<LaunchedRank> launched_rank(RunOptions& options) {
  const LaunchEnvironment found = launch_environment(variable);
  if (!found.note.empty() && !options.quiet) say(found.note, "note");
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
