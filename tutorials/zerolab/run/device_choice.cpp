#include "tutorials/zerolab/run/device_choice.h"

#include <algorithm>
#include <cstdio>

#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Wish = RunOptions::DeviceWish;

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
    if (!options.quiet) std::fprintf(stderr, "note: %s\n", note.c_str());
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

}  // namespace zl::cli
