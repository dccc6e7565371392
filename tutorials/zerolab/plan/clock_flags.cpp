#include <algorithm>

#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

std::vector<int> read_sweep_ranks(const std::string& text) {
  const std::string setting = "ranks=";
  require_input(text.starts_with(setting) && text.size() > setting.size(), "'", text,
                "' is no sweep; write ranks=8,64,512");
  std::vector<int> ranks;
  for (const std::string& word : comma_list(text.substr(setting.size())))
    ranks.push_back(int(read_count(word, 1, kMostRanks)));
  for (const int n : ranks)
    require_input(std::ranges::count(ranks, n) == 1, "'", text, "' has ", n, " twice");
  return ranks;
}

}  // namespace

void add_clock_flags(Flags& flags, ClockFlags& options) {
  flags.group("Seconds of a step on a machine that need not be here");
  flags.value(
      "--machine", "NAME",
      "a machine of --machines, or a description in a file such as ./machine.json; its GPUs\n"
      "imply --as cuda, their memory --device-memory, and --ranks-per-node changes its nodes",
      [&](const auto& text) {
        require_input(!text.empty(), "the name is empty");
        options.machine = text;
      });
  flags.toggle("--machines", "list the machines, and end", options.list);
  flags.value("--overlap", "on|off",
              "communication beside computation, with the next unit prefetched, or neither\n"
              "(default: as configured, which is off)",
              [&](const auto& text) {
                require_input(text == "on" || text == "off", "'", text, "' is neither on nor off");
                options.overlap = text == "on";
              });
  flags.toggle("--advise",
               "the fastest settings that fit: stage, recomputation, offload, micro-batch, with\n"
               "the same tokens per step; and why the next three lose. Without --stages it tries\n"
               "the four, and hsdp on several full nodes; --overlap off tries all without overlap",
               options.advise);
  flags.value("--sweep", "ranks=N,N,…", "seconds of a step by number of ranks",
              [&](const auto& text) { options.sweep_ranks = read_sweep_ranks(text); });
  flags.name("--csv", "FILE", "write the sweep as CSV", options.csv);
  flags.value("--stragglers", "S",
              "ranks differ: kernels of a rank take exp(S z) times as long, z standard normal\n"
              "(default 0); every call waits for the slowest rank",
              [&](const auto& text) {
                options.stragglers.deviation = read_real(text);
                require_input(options.stragglers.deviation <= 2, "'", text,
                              "' is too large; try 0.02");
              });
  flags.value("--stragglers-seed", "N", "of these numbers (default 1)", [&](const auto& text) {
    options.stragglers.seed = read_seed(text);
    options.seed = true;
  });
  flags.name("--trace", "FILE", "write the predicted step of each stage for ui.perfetto.dev",
             options.trace);
  flags.toggle("--force", "replace the files of --csv and --trace if they exist", options.force);
}

void require_machine(const ClockFlags& o) {
  const char* flag = o.overlap                ? "--overlap"
                     : o.advise               ? "--advise"
                     : !o.sweep_ranks.empty() ? "--sweep"
                     : o.stragglers.deviation ? "--stragglers"
                     : o.seed                 ? "--stragglers-seed"
                     : !o.trace.empty()       ? "--trace"
                     : !o.csv.empty()         ? "--csv"
                                              : nullptr;
  if (flag && o.machine.empty())
    throw UsageError(str(flag, " needs a machine; give --machine NAME (--machines lists them)"));
  if (!o.csv.empty() && o.sweep_ranks.empty())
    throw UsageError("--csv writes a sweep; give --sweep ranks=8,64,512 too");
  if (o.seed && o.stragglers.deviation == 0)
    throw UsageError("--stragglers-seed is for --stragglers, which is not given");
  if (o.force && o.csv.empty() && o.trace.empty())
    throw UsageError("--force replaces the files of --csv and --trace, and neither is given");
  if (!o.csv.empty() && !o.trace.empty() && same_file(o.csv, o.trace))
    throw UsageError("--csv and --trace name the same file");
}

}  // namespace zl::cli
