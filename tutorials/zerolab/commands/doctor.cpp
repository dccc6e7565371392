// zerolab doctor: what this machine can run, and how to fix what it cannot.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "dist/mpi/library.h"
#include "dist/nccl/api.h"
#include "dist/nccl/errors.h"
#include "dist/processes/launch_environment.h"
#include "tensor/cpu/compute_threads.h"
#include "tensor/cpu/cpu_backend.h"
#include "tutorials/terminal/terminal.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMatrix = 512, kGpuMatrix = 4096;
constexpr int64_t kCopy = int64_t(64) << 20;              // [B]
constexpr CoreRun kBrief{.samples = 5, .seconds = 8e-3};  // one core
// [B] enough for NCCL among the ranks of one machine; Docker gives 64 MiB.
constexpr int64_t kEnoughShared = int64_t(256) << 20;

// The measured speed of one GPU; 0 if it could not be measured.
struct GpuRates {
  int index = 0;
  double fp32 = 0, tf32 = 0, bf16 = 0;  // [1/s] operations of a large matmul
  double copy = 0;                      // [B/s] read plus written
};

// All measurements and findings, made by the constructor.
struct Diagnosis {
  double multiply_add = multiply_add_peak();         // [1/s]
  double matmul = matmul_rate(kMatrix, kBrief).max;  // [1/s]
  double copy = memory_rate(kCopy, kBrief).max;      // [B/s]
  int cores = usable_cores();
  int64_t memory = total_memory(), available = available_memory();  // [B]
  Terminal terminal = standard_error(Color::automatic);
  bool driver = access("/dev/nvidiactl", F_OK) == 0;  // as far as a build without CUDA can tell
  Gpus gpus = find_gpus();
  std::vector<GpuRates> rates = measure_gpus();
  NcclInBuild nccl = nccl_in_build();
  std::string nccl_problem = nccl.api ? nccl_version_problem(*nccl.api) : "";
  std::optional<MpiInBuild> mpi = mpi_in_build();
  std::string mpirun = mpi && access(mpi->mpirun.c_str(), X_OK) == 0 ? mpi->mpirun : "";
  int64_t shared = shared_memory();  // [B]
  LaunchEnvironment launch;
  std::string launch_problem;

  Diagnosis() {
    try {
      launch = launch_environment([](const char* name) { return std::getenv(name); });
    } catch (const InputError& e) {
      launch_problem = e.what();
    }
  }
  int gpus_for_ranks() const {
    int usable = 0;
    for (const Gpu& gpu : gpus.gpus) usable += gpu.problem.empty();
    return usable;
  }

 private:
  std::vector<GpuRates> measure_gpus() const;
};

// A GPU that fails here is reported, and its rates stay 0.
std::vector<GpuRates> Diagnosis::measure_gpus() const {
  std::vector<GpuRates> all;
  for (const Gpu& gpu : gpus.gpus) {
    if (!gpu.problem.empty()) continue;
    GpuRates rates{.index = gpu.index};
    try {
      DeviceChoice device{.kind = DeviceKind::cuda, .gpus = {gpu}};
      rates.fp32 = matmul_rate(kGpuMatrix, kBrief, device, Dtype::f32).max;
      rates.bf16 = matmul_rate(kGpuMatrix, kBrief, device, Dtype::bf16).max;
      rates.copy = copy_rate(device);
      device.tf32 = true;
      rates.tf32 = matmul_rate(kGpuMatrix, kBrief, device, Dtype::f32).max;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "zerolab: GPU %d could not be measured: %s\n", gpu.index, e.what());
    }
    all.push_back(rates);
  }
  return all;
}

std::string rounded(double value, const char* unit) { return format("%.1f ", value) + unit; }

std::string build() {
  return compiler() + (optimised_build()
                           ? ", optimised"
                           : ", not optimised except for the kernels: slower, for stepping");
}

std::string terminal_line(const Terminal& terminal) {
  const std::string progress = terminal.rewrites ? "progress is one line that is rewritten"
                                                 : "stderr is no terminal: plain progress lines";
  return progress + (terminal.colored ? ", in colour" : ", without colour");
}

void line(const std::string& what, const std::string& text) {
  std::printf("%-14s%s\n", what.c_str(), printable(text).c_str());
}

// "GPU 0 reads GPUs 1 2 3 directly".
std::string peers_line(const Gpu& gpu) {
  std::string others;
  for (const int peer : gpu.peers) others += str(" ", peer);
  return others.empty()
             ? str("GPU ", gpu.index, " reads no other GPU directly: copies go through the host")
             : str("GPU ", gpu.index, " reads ", gpu.peers.size() == 1 ? "GPU" : "GPUs", others,
                   " directly");
}

std::string rates_line(const GpuRates& r) {
  return str("matmul ", rounded(r.fp32 / 1e12, "TFLOP/s in fp32, "),
             rounded(r.tf32 / 1e12, "in TF32, "), rounded(r.bf16 / 1e12, "in bf16"), " at ",
             kGpuMatrix, " × ", kGpuMatrix, "; copy ", rounded(r.copy / 1e9, "GB/s"));
}

void print_gpus(const Diagnosis& d) {
  const Gpus& g = d.gpus;
  std::string cuda =
      g.built_in ? "built in, toolkit " + g.toolkit
                 : std::string("not in this build") + (d.driver ? " (a GPU driver is here)" : "");
  if (!g.driver.empty()) cuda += "; the driver runs CUDA up to " + g.driver;
  if (g.built_in && !g.usable()) cuda += "; " + g.problem;
  if (!g.usable()) cuda += ": ranks compute on the CPU. How to fix it: " + g.cure;
  line("CUDA", cuda);
  line("", cuda_build());
  for (const Gpu& gpu : g.gpus) {
    line(str("GPU ", gpu.index),
         str(gpu.name, ", ", human_bytes(gpu.memory), ", ", human_bytes(gpu.available),
             " free, compute capability ", gpu.compute_major, ".", gpu.compute_minor, ", ",
             gpu.multiprocessors, " multiprocessors", gpu.pci.empty() ? "" : ", PCI " + gpu.pci));
    if (!gpu.problem.empty()) line("", "cannot be used: " + gpu.problem);
    for (const GpuRates& r : d.rates)
      if (r.index == gpu.index && r.copy > 0) line("", rates_line(r));
  }
  if (g.gpus.size() > 1)
    for (const Gpu& gpu : g.gpus) line(&gpu == &g.gpus.front() ? "peers" : "", peers_line(gpu));
}

void print_ranks(const Diagnosis& d) {
  line("ranks", str("1 to 64 threads of one process, also on fewer cores",
                    d.cores > 1 ? str("; --threads ", std::min(d.cores, kMostComputeThreads),
                                      " computes one rank on them")
                                : ""));
  const int n = d.gpus_for_ranks();
  if (!d.nccl.api)
    line("NCCL",
         str(nccl_compiled_for() ? "cannot be used: " : "not in this build: ", d.nccl.problem,
             "; ranks are threads, which need no library. How to fix it: ", d.nccl.cure));
  else if (!d.nccl_problem.empty())
    line("NCCL", "cannot be used: " + d.nccl_problem);
  else
    line("NCCL", str(nccl_version(), ", one rank per GPU: ",
                     n == 0   ? "none can be used here"
                     : n == 1 ? "on this machine 1 rank, and more on several machines"
                              : str("on this machine up to ", n, " ranks, by zerolab launch")));
  line("MPI",
       d.mpi ? str(d.mpi->name(), " ", d.mpi->version, ", ",
                   d.mpirun.empty() ? "whose mpirun is not installed" : "started by " + d.mpirun,
                   "; ranks as processes on CPUs (--backend mpi)")
             : str("not in this build; ranks as processes on CPUs need it. How to fix it: ",
                   kMpiCure));
  if (d.shared == 0)
    line("/dev/shm",
         "missing: NCCL uses it between GPUs that cannot access each other. How to fix it: mount "
         "it, or set NCCL_SHM_DISABLE=1");
  else if (d.shared < kEnoughShared)
    line("/dev/shm", human_bytes(d.shared) +
                         ", maybe too little for NCCL. How to fix it: start the container with "
                         "--shm-size=1g or --ipc=host");
  else
    line("/dev/shm", human_bytes(d.shared));
  if (const auto& r = d.launch.rank)
    line("launcher",
         str(r->launcher, ": this is rank ", r->rank, " of ", r->size, ", ", r->local_rank, " of ",
             r->local_size, " on this machine; rank 0 is at ", r->address, ", port ", r->port));
  else
    line("launcher", d.launch_problem.empty() ? "none: this process runs all ranks"
                                              : "not understood: " + d.launch_problem);
  if (!d.launch.note.empty()) line("", d.launch.note);
  line("machines",
       "several with srun, torchrun or mpirun, by NCCL or MPI; see "
       "tutorials/reference/lab_machines.md");
}

void print_doctor_text(const Diagnosis& d) {
  std::printf("zerolab %s\n\n", kVersion);
  line("build", build());
  line("kernels", str("compiled for ", cpu_architecture(), ", which this CPU runs"));
  line("CPU",
       str(cpu_model(), ", ", d.cores, d.cores == 1 ? " core" : " cores", " for this process"));
  line("memory", human_bytes(d.memory) +
                     (d.available > 0 ? ", " + human_bytes(d.available) + " available" : ""));
  if (d.multiply_add > 0)
    line("multiply-add",
         rounded(d.multiply_add / 1e9,
                 "GFLOP/s on one core, the most that fp32 kernels can reach (measured)"));
  const std::string share =
      d.multiply_add > 0 ? str(", ", int(100 * d.matmul / d.multiply_add + 0.5), " % of that") : "";
  line("matmul", str(rounded(d.matmul / 1e9, "GFLOP/s"), " at ", kMatrix, " × ", kMatrix, share));
  line("copy", rounded(d.copy / 1e9, "GB/s, reading and writing counted"));
  line("terminal", terminal_line(d.terminal));
  print_gpus(d);
  print_ranks(d);
  std::printf("\nThe CPU path runs here%s. Next: zerolab train --model tiny --steps 20\n",
              d.gpus.usable() ? ", and so do GPUs" : "");
}

Json text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json gpus_json(const Diagnosis& d) {
  const Gpus& g = d.gpus;
  Json json{{"built_in", g.built_in},     {"build", cuda_build()},    {"usable", g.usable()},
            {"toolkit", text(g.toolkit)}, {"driver", text(g.driver)}, {"problem", text(g.problem)},
            {"cure", text(g.cure)},       {"gpus", Json::array()}};
  for (const Gpu& gpu : g.gpus) {
    Json row{{"index", gpu.index},
             {"name", gpu.name},
             {"pci", text(gpu.pci)},
             {"total_bytes", gpu.memory},
             {"available_bytes", gpu.available},
             {"compute_capability", str(gpu.compute_major, ".", gpu.compute_minor)},
             {"multiprocessors", gpu.multiprocessors},
             {"peers", gpu.peers},
             {"problem", text(gpu.problem)}};
    for (const GpuRates& r : d.rates)
      if (r.index == gpu.index && r.copy > 0)
        row["measured"] = {{"matmul_size", kGpuMatrix},
                           {"fp32_per_second", r.fp32},
                           {"tf32_per_second", r.tf32},
                           {"bf16_per_second", r.bf16},
                           {"copy_bytes_per_second", r.copy}};
    json["gpus"].push_back(row);
  }
  return json;
}

Json nccl_json(const Diagnosis& d) {
  const int compiled_for = nccl_compiled_for();
  return {{"built_in", compiled_for != 0},
          {"compiled_for", text(compiled_for ? nccl_version_text(compiled_for) : "")},
          {"version", text(nccl_version())},
          {"problem", text(d.nccl.api ? d.nccl_problem : d.nccl.problem)},
          {"cure", text(d.nccl.cure)},
          {"shared_memory_bytes", d.shared}};
}

Json mpi_json(const Diagnosis& d) {
  return {{"built_in", d.mpi.has_value()},
          {"name", text(d.mpi ? d.mpi->name() : "")},
          {"compiled_for", text(d.mpi ? d.mpi->version : "")},
          {"mpirun", text(d.mpirun)},
          {"cure", text(d.mpi ? "" : kMpiCure)}};
}

Json launch_json(const Diagnosis& d) {
  Json json{
      {"launcher", nullptr}, {"note", text(d.launch.note)}, {"problem", text(d.launch_problem)}};
  if (const auto& r = d.launch.rank)
    json.update({{"launcher", r->launcher},
                 {"rank", r->rank},
                 {"ranks", r->size},
                 {"local_rank", r->local_rank},
                 {"local_ranks", r->local_size},
                 {"address", r->address},
                 {"port", r->port},
                 {"run", text(r->run)}});
  return json;
}

void print_doctor_document(const Diagnosis& d) {
  print_json(Json{
      {"schema", 1},
      {"command", "doctor"},
      {"ok", true},
      {"version", kVersion},
      {"build",
       {{"compiler", compiler()},
        {"optimised", optimised_build()},
        {"kernels", cpu_architecture()}}},
      {"cpu", {{"model", cpu_model()}, {"cores", d.cores}}},
      {"memory", {{"total_bytes", d.memory}, {"available_bytes", d.available}}},
      {"measured",
       {{"multiply_add_per_second", d.multiply_add},
        {"matmul_size", kMatrix},
        {"matmul_per_second", d.matmul},
        {"copy_bytes_per_second", d.copy}}},
      {"terminal", {{"rewrites", d.terminal.rewrites}, {"color", d.terminal.colored}}},
      {"cuda", gpus_json(d)},
      {"nccl", nccl_json(d)},
      {"mpi", mpi_json(d)},
      {"launch", launch_json(d)},
  });
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  static bool json = false;
  Flags flags(app, invocation, "doctor", "what this machine can run", [] {
    const Diagnosis diagnosis;
    json ? print_doctor_document(diagnosis) : print_doctor_text(diagnosis);
    return kFine;
  });
  flags.group("Output");
  flags.toggle("--json", "print one JSON document instead of text", json);
  flags.footer(
      "Measures the CPU for less than half a second, and each GPU as long. Exit code: 0 if "
      "training "
      "on\nthe CPU works.");
}

}  // namespace zl::cli
