#include <algorithm>

#include "tutorials/zerolab/cli/comma_list.h"
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
  flags.value("--stragglers", "S",
              "ranks differ: kernels of a rank take exp(S z) times as long, z standard normal\n"
              "(default 0); every call waits for the slowest rank",
              [&](const auto& text) {
                options.stragglers.deviation = read_real(text);
                require_input(options.stragglers.deviation <= 2, "'", text,
                              "' is too large; try 0.02");
              });
}

void require_machine(const ClockFlags& o) {
  const char* flag = o.overlap                ? "--overlap"
                     : o.advise               ? "--advise"
                     : !o.sweep_ranks.empty() ? "--sweep"
                     : o.stragglers.deviation ? "--stragglers"
                                              : nullptr;
  if (flag && o.machine.empty())
    throw UsageError(str(flag, " needs a machine; give --machine NAME (--machines lists them)"));
}

}  // namespace zl::cli
