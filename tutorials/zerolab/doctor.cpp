// zerolab doctor: what this machine can run, and the cure for what it cannot.

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tutorials/zerolab/flags.h"
#include "tutorials/zerolab/machine.h"
#include "tutorials/zerolab/terminal.h"
#include "tutorials/zerolab/version.h"

namespace zl::cli {
namespace {

constexpr int64_t kMatrix = 512;
constexpr const char* kNoCuda = "not in this build: ranks compute on the CPU";
constexpr const char* kNoNccl = "not in this build: ranks are threads of one process, which needs no library";
constexpr const char* kCure = "a later version of zerolab brings it; until then nothing is to be installed";

struct Diagnosis {
  double multiply_add = multiply_add_rate();   // [1/s]
  double matmul = matmul_rate(kMatrix);        // [1/s]
  double copy = copy_rate();                   // [B/s]
  int cores = usable_cores();
  int64_t memory = total_memory(), available = available_memory();  // [B]
  Terminal terminal = standard_error(Color::automatic);
  bool gpu = access("/dev/nvidiactl", F_OK) == 0;
};

std::string rounded(double value, const char* unit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ", value);
  return std::string(text) + unit;
}

std::string build() {
  return compiler() + (optimised_build() ? ", optimised" : ", not optimised except for the kernels: slower, for stepping");
}

std::string terminal_line(const Terminal& terminal) {
  const std::string progress = terminal.rewrites ? "progress is one line that is written over" : "stderr is no terminal: plain progress lines";
  return progress + (terminal.colored ? ", in colour" : ", without colour");
}

void print_text(const Diagnosis& d) {
  const auto line = [](const char* what, const std::string& text) { std::printf("%-14s%s\n", what, text.c_str()); };
  std::printf("zerolab %s\n\n", kVersion);
  line("build", build());
  line("kernels", str("compiled for ", cpu_architecture(), ", which this CPU runs"));
  line("CPU", str(cpu_model(), ", ", d.cores, d.cores == 1 ? " core" : " cores", " for this process"));
  line("memory", human_bytes(d.memory) + (d.available > 0 ? ", " + human_bytes(d.available) + " available" : ""));
  if (d.multiply_add > 0) line("multiply-add", rounded(d.multiply_add / 1e9, "GFLOP/s on one core, the most that fp32 kernels can reach (measured)"));
  const std::string share = d.multiply_add > 0 ? str(", ", int(100 * d.matmul / d.multiply_add + 0.5), " % of that") : "";
  line("matmul", str(rounded(d.matmul / 1e9, "GFLOP/s"), " at ", kMatrix, " × ", kMatrix, share));
  line("copy", rounded(d.copy / 1e9, "GB/s, reading and writing counted"));
  line("terminal", terminal_line(d.terminal));
  line("ranks", "1 to 64 threads of one process, also on fewer cores");
  line("CUDA", str(kNoCuda, d.gpu ? " (a GPU driver is here). " : ". ", "Cure: ", kCure));
  line("NCCL", str(kNoNccl, ". Cure: ", kCure));
  std::printf("\nThe CPU path runs here. Next: zerolab train --model tiny --steps 20\n");
}

void print_json(const Diagnosis& d) {
  const nlohmann::ordered_json document{
      {"schema", 1},
      {"command", "doctor"},
      {"ok", true},
      {"version", kVersion},
      {"build", {{"compiler", compiler()}, {"optimised", optimised_build()}, {"kernels", cpu_architecture()}}},
      {"cpu", {{"model", cpu_model()}, {"cores", d.cores}}},
      {"memory", {{"total_bytes", d.memory}, {"available_bytes", d.available}}},
      {"measured", {{"multiply_add_per_second", d.multiply_add}, {"matmul_size", kMatrix}, {"matmul_per_second", d.matmul},
                    {"copy_bytes_per_second", d.copy}}},
      {"terminal", {{"rewrites", d.terminal.rewrites}, {"color", d.terminal.colored}}},
      {"cuda", {{"built_in", false}, {"driver", d.gpu}, {"cure", kCure}}},
      {"nccl", {{"built_in", false}, {"cure", kCure}}},
  };
  std::printf("%s\n", document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  static bool json = false;
  Flags flags(app, invocation, "doctor", "what this machine can run", [] {
    const Diagnosis diagnosis;
    json ? print_json(diagnosis) : print_text(diagnosis);
    return 0;
  });
  flags.group("Output");
  flags.toggle("--json", "one JSON document on stdout instead of the text", json);
  flags.footer("Measures for less than half a second. Exit code: 0 whenever the CPU path can run.");
}

}  // namespace zl::cli
