#include "tutorials/zerolab/run/device_choice.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Wish = RunOptions::DeviceWish;

// Whether more than 1/5 of its memory is free, so that a run may fit.
bool has_room(const Gpu& gpu) { return gpu.problem.empty() && gpu.available > gpu.memory / 5; }

// At most one for each rank: other programs on this machine may need the rest. Those with room come
// first, then those with the most free memory.
std::vector<Gpu> usable(const Gpus& found, int ranks) {
  std::vector<Gpu> gpus;
  for (const Gpu& gpu : found.gpus)
    if (gpu.available > 0 && gpu.problem.empty()) gpus.push_back(gpu);
  std::ranges::stable_sort(gpus, [](const Gpu& a, const Gpu& b) {
    if (has_room(a) || has_room(b)) return has_room(a) > has_room(b);
    return a.available > b.available;
  });
  if (int(gpus.size()) > ranks) gpus.resize(size_t(ranks));
  std::ranges::sort(gpus, {}, &Gpu::index);
  return gpus;
}

// Opens only as many GPUs as there are ranks, unless too few of them have room.
Gpus gpus_for(int ranks) {
  Gpus found = find_gpus(ranks);
  return std::ranges::count_if(found.gpus, has_room) < std::min(ranks, int(found.gpus.size()))
             ? find_gpus()
             : found;
}

// For GPUs of which none was taken.
std::string problem_of(const Gpus& found) {
  return found.usable() ? str("no memory is free on ", found.gpus.size(), " GPUs") : found.problem;
}
std::string cure_of(const Gpus& found) {
  return found.usable() ? "wait until the programs that use the GPUs have ended" : found.cure;
}

// Ranks may not fit on a GPU that other programs use.
void warn_if_occupied(const std::vector<Gpu>& taken) {
  std::string free;
  for (const Gpu& gpu : taken)
    if (!has_room(gpu))
      free += str(free.empty() ? "" : ", ", human_bytes(gpu.available), " of ",
                  human_bytes(gpu.memory), " on GPU ", gpu.index);
  if (!free.empty())
    std::fprintf(stderr,
                 "warning: other programs occupy the GPUs: free is %s; nvidia-smi lists them\n",
                 free.c_str());
}

// While it lives, it says that the driver compiles kernels, if that takes longer than a second.
class CompilingKernels {
 public:
  explicit CompilingKernels(int gpu)
      : thread_([gpu](const std::stop_token& ended) {
          using Clock = std::chrono::steady_clock;
          const Clock::time_point begin = Clock::now();
          std::mutex mutex;
          std::condition_variable_any changed;
          std::unique_lock lock(mutex);
          const auto never = [] { return false; };
          changed.wait_for(lock, ended, std::chrono::seconds(1), never);
          if (ended.stop_requested()) return;
          const auto say = [gpu](const std::string& text) {
            std::fprintf(stderr, "compiling kernels for GPU %d from PTX: %s\n", gpu, text.c_str());
          };
          say("this can take 10 s, and CUDAARCHS of the build avoids it");
          changed.wait(lock, ended, never);
          say(str("done after ",
                  short_time(std::chrono::duration<double>(Clock::now() - begin).count())));
        }) {}

 private:
  std::jthread thread_;
};

// For --device auto: why ranks do not use a GPU that is there.
void say_why_not(const Gpus& found, const std::vector<Gpu>& taken, int ranks) {
  if (taken.empty() && (found.broken || found.usable()))
    std::fprintf(stderr, "note: ranks compute on the CPU: %s. How to fix it: %s\n",
                 problem_of(found).c_str(), cure_of(found).c_str());
  if (taken.empty() || int(taken.size()) >= ranks) return;
  for (const Gpu& gpu : found.gpus)
    if (!gpu.problem.empty())
      std::fprintf(stderr, "note: GPU %d (%s) is not used: %s\n", gpu.index, gpu.name.c_str(),
                   gpu.problem.c_str());
}

void require_gpu(const RunOptions& options, bool any, const std::string& problem,
                 const std::string& fix) {
  require_input(any || options.device != Wish::cuda, "--device cuda: ", problem,
                "; use --device cpu, which runs the same stages, or ", fix);
}

DeviceChoice with_options(DeviceChoice choice, const RunOptions& options, Dtype precision) {
  choice.reference = options.device == Wish::reference;
  require_input(!choice.reference || options.threads == 1,
                "--threads splits the kernels of --device cpu; those of the reference run on one "
                "thread, so leave it out");
  choice.threads = options.threads;
  choice.quiet = options.quiet;
  if (!options.tf32) return choice;
  require_input(choice.on_gpus(),
                "--tf32 is a way in which GPUs multiply, but ranks compute on the CPU here; leave "
                "it out");
  choice.tf32 = precision == Dtype::f32;
  if (!choice.tf32 && !options.quiet)
    std::fputs("note: --tf32 has no effect in bf16 and fp16, which multiply no fp32 matrices\n",
               stderr);
  return choice;
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

std::string DeviceChoice::pci() const { return gpus.empty() ? "" : gpus.front().pci; }

std::string DeviceChoice::name() const {
  if (!on_gpus()) return cpu_model();
  std::string all;
  for (const Gpu& gpu : gpus)
    if (all.empty() || gpu.name != gpus.front().name) all += (all.empty() ? "" : ", ") + gpu.name;
  return all;
}

DeviceChoice choose_device(const RunOptions& options, Dtype precision, int ranks) {
  DeviceChoice choice;
  if (options.device == Wish::automatic || options.device == Wish::cuda) {
    const Gpus found = gpus_for(ranks);
    std::vector<Gpu> gpus = usable(found, ranks);
    require_gpu(options, !gpus.empty(), problem_of(found), cure_of(found));
    if (!options.quiet) say_why_not(found, gpus, ranks);
    if (!options.quiet) warn_if_occupied(gpus);
    if (!gpus.empty()) choice = {.kind = DeviceKind::cuda, .gpus = std::move(gpus)};
  }
  return with_options(std::move(choice), options, precision);
}

DeviceChoice choose_device_of_process(const RunOptions& options, Dtype precision, int local_rank) {
  DeviceChoice choice;
  if (options.device == Wish::automatic || options.device == Wish::cuda) {
    const Gpus found = find_gpus(0);  // opening a GPU takes memory on it
    require_gpu(options, !found.gpus.empty(), found.problem, found.cure);
    if (!options.quiet) say_why_not(found, found.gpus, 1);
    if (!found.gpus.empty())
      choice = {.kind = DeviceKind::cuda,
                .gpus = {found.gpus[size_t(local_rank) % found.gpus.size()]},
                .of_process = true};
  }
  return with_options(std::move(choice), options, precision);
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
      [gpus = device.indices(), says = !device.quiet,
       make = on_gpus(device.indices(), {.tf32 = device.tf32, .preloads = spec.engine.precision})](
          int rank) {
        const int gpu = gpus[size_t(rank) % gpus.size()];
        select_gpu(gpu);  // to open it is no compiling
        std::optional<CompilingKernels> compiling;
        if (says && rank < int(gpus.size())) compiling.emplace(gpu);  // once for each GPU
        return make(rank);
      };
}

std::string describe(const DeviceChoice& device, int ranks) {
  if (device.reference) return "reference kernels, on one thread of " + device.name();
  if (!device.on_gpus()) return "cpu, " + device.name();
  const std::vector<int> indices = device.indices();
  const size_t n = indices.size();
  std::string text = "cuda, " + (n > 1 ? str(n, " GPUs (", device.name(), ")") : device.name());
  if (n > 1 && ranks > 1) {
    std::string listed;
    for (const int index : indices) listed += str(" ", index);
    text += indices.back() == int(n) - 1 ? str(", rank r on GPU r mod ", n)
                                         : ", ranks take GPUs" + listed + " in turn";
  }
  if (n == 1 && ranks > 1 && !device.of_process) text += str(", ", ranks, " ranks share it");
  return text + (device.tf32 ? ", fp32 matrices multiplied in TF32" : "");
}

}  // namespace zl::cli
