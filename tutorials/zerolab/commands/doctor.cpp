// zerolab doctor: what this machine can run, and how to fix what it cannot.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "dist/mpi/mpi_transport.h"
#include "dist/nccl/api.h"
#include "dist/processes/launch_environment.h"
#include "tensor/cpu/cpu_backend.h"
#include "tutorials/terminal/terminal.h"
#include "tutorials/zerolab/bench/machine_rates.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMatrix = 512, kGpuMatrix = 4096;
// [B] enough for NCCL among the ranks of one machine; Docker gives 64 MiB.
constexpr int64_t kEnoughShared = int64_t(256) << 20;

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// "cannot be used: PROBLEM. How to fix it: CURE; " and the other values; of a GPU in `gpus`, too.
std::string line_of(const std::string& what, Json values) {
  std::string text;
  for (const auto& [key, begin] :
       {std::pair{"problem", "cannot be used: "}, {"cure", ". How to fix it: "}})
    if (values.contains(key) && values[key].is_string())
      text += begin + values[key].get<std::string>();
  const std::string left_out = "not compiled: ";
  if (const std::string build = values.value("build", ""); build.starts_with(left_out)) {
    text += ". Why it was left out: " + build.substr(left_out.size());
    values.erase("build");
  }
  const Json gpus = values.value("gpus", Json::array());
  const std::string unusable = text.empty() ? "" : "built_in";
  for (const std::string key : {"problem", "cure", "gpus", "usable", unusable.c_str()})
    values.erase(key);
  if (const std::string others = text_of("", values); !others.empty())
    text += (text.empty() ? "" : "; ") + others;
  if (text.empty()) return "";
  std::string lines = what + std::string(10 - what.size(), ' ') + text + "\n";
  for (const Json& gpu : gpus) lines += line_of("GPU " + gpu["index"].dump(), gpu);
  return lines;
}

// null for a GPU that fails here, which is reported.
Json speed_of(const Gpu& gpu) {
  const auto matmul = [&](Dtype dtype, bool tf32 = false) {
    return matmul_rate({.kind = DeviceKind::cuda, .gpus = {gpu}, .tf32 = tf32}, kGpuMatrix, dtype)
        .max;
  };
  try {
    return {{"matmul_size", kGpuMatrix},
            {"fp32_per_second", matmul(Dtype::f32)},
            {"tf32_per_second", matmul(Dtype::f32, true)},
            {"bf16_per_second", matmul(Dtype::bf16)},
            {"copy_bytes_per_second", copy_rate({.kind = DeviceKind::cuda, .gpus = {gpu}})}};
  } catch (const std::exception& e) {
    say(str("GPU ", gpu.index, " could not be measured: ", e.what()));
    return nullptr;
  }
}

Json cuda() {
  const Gpus g = find_gpus();
  Json json{{"built_in", g.built_in},
            {"build", cuda_build()},
            {"usable", g.usable()},
            {"toolkit", or_null(g.toolkit)},
            {"driver", or_null(g.driver)},
            {"problem", or_null(g.problem)},
            {"cure", or_null(g.cure.substr(0, g.cure.find("; 'zerolab doctor'")))},
            {"gpus", Json::array()}};
  for (const Gpu& gpu : g.gpus) {
    json["gpus"].push_back({{"index", gpu.index},
                            {"name", gpu.name},
                            {"pci", or_null(gpu.pci)},
                            {"total_bytes", gpu.memory},
                            {"available_bytes", gpu.available},
                            {"compute_capability", str(gpu.compute_major, ".", gpu.compute_minor)},
                            {"multiprocessors", gpu.multiprocessors},
                            {"peers", gpu.peers},
                            {"problem", or_null(gpu.problem)},
                            {"measured", gpu.problem.empty() ? speed_of(gpu) : Json()}});
  }
  return json;
}

Json nccl() {
  const int compiled_for = nccl_compiled_for();
  const NcclInBuild nccl = nccl_in_build();
  const int64_t shared = shared_memory();
  return {{"built_in", compiled_for != 0},
          {"compiled_for", or_null(compiled_for ? nccl_version_text(compiled_for) : "")},
          {"version", or_null(nccl_version())},
          {"problem", or_null(nccl.api ? nccl_version_problem(*nccl.api) : nccl.problem)},
          {"cure", or_null(nccl.cure)},
          {"shared_memory_bytes", shared},
          {"note", or_null(shared >= kEnoughShared
                               ? ""
                               : "/dev/shm may have too little memory for ranks whose GPUs cannot "
                                 "access each other. How to fix it: start the container with "
                                 "--shm-size=1g or --ipc=host, or set NCCL_SHM_DISABLE=1")}};
}

Json mpi() {
  const std::optional<MpiInBuild> mpi = mpi_in_build();
  const bool started = mpi && access(mpi->mpirun.c_str(), X_OK) == 0;
  return {{"built_in", mpi.has_value()},
          {"name", or_null(mpi ? mpi->name() : "")},
          {"compiled_for", or_null(mpi ? mpi->version : "")},
          {"mpirun", or_null(started ? mpi->mpirun : "")},
          {"problem", or_null(mpi ? "" : "it is not in this build")},
          {"cure", or_null(mpi ? "" : kMpiCure)}};
}

// What a launcher says that this process is.
Json launched() {
  Json json{{"launcher", nullptr}, {"note", nullptr}, {"problem", nullptr}};
  try {
    const LaunchEnvironment found =
        launch_environment([](const char* name) { return std::getenv(name); });
    json["note"] = or_null(found.note);
    if (const auto& r = found.rank)
      json.update({{"launcher", r->launcher},
                   {"rank", r->rank},
                   {"ranks", r->size},
                   {"local_rank", r->local_rank},
                   {"local_ranks", r->local_size},
                   {"address", r->address},
                   {"port", r->port},
                   {"run", or_null(r->run)}});
  } catch (const InputError& e) {
    json["problem"] = e.what();
  }
  return json;
}

int doctor(bool as_json) {
  const Terminal terminal = standard_error();
  const Json document{
      {"schema", 1},
      {"command", "doctor"},
      {"ok", true},
      {"version", kVersion},
      {"build",
       {{"compiler", compiler()},
        {"optimised", optimised_build()},
        {"kernels", cpu_architecture()}}},
      {"cpu", {{"model", cpu_model()}, {"cores", usable_cores()}}},
      {"memory", {{"total_bytes", total_memory()}, {"available_bytes", available_memory()}}},
      {"measured",
       {{"matmul_size", kMatrix},
        {"matmul_per_second", matmul_rate({}, kMatrix).max},
        {"copy_bytes_per_second", copy_rate(DeviceChoice())}}},
      {"terminal", {{"rewrites", terminal.rewrites}, {"color", terminal.colored}}},
      {"cuda", cuda()},
      {"nccl", nccl()},
      {"mpi", mpi()},
      {"launch", launched()}};
  if (as_json) return print_json(document), kFine;
  std::string text = str("zerolab ", kVersion, "\n\n");
  for (const auto& [key, values] : document.items())
    if (values.is_object() && key != "terminal") text += line_of(key, values);
  text += str("terminal  ", terminal.rewrites ? "" : "no ", "progress line, ",
              terminal.colored ? "" : "no ", "colour\n");
  std::printf(
      "%s\nRanks are threads of one process, or processes with NCCL on GPUs or MPI on CPUs;\n"
      "on several machines: tutorials/reference/machines.md.\n"
      "The CPU path runs here%s. Next: %s train --model tiny --steps 20\n",
      printable(text).c_str(), document["cuda"]["usable"] ? ", and so do GPUs" : "",
      printable(called_as()).c_str());
  return kFine;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  static bool json = false;
  Flags flags(app, invocation, "doctor", "what this machine can run", [] { return doctor(json); });
  flags.group("Output");
  flags.toggle("--json", "print one JSON document instead of text", json);
  flags.footer(
      "Measures the CPU for less than half a second, and each GPU as long. Exit code: 0 if "
      "training on\nthe CPU works.");
}

}  // namespace zl::cli
