#include <algorithm>

#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/plan/clock_section.h"

namespace zl::cli {
namespace {

std::vector<int> read_sweep_ranks(const std::string& text) {
  const std::string setting = "ranks=";
  require_input(text.starts_with(setting) && text.size() > setting.size(), "'", text,
                "' is no sweep; write ranks=8,64,512");
  std::vector<int> ranks;
  for (const std::string& word : comma_list(text.substr(setting.size()))) {
    ranks.push_back(int(read_count(word, 1, 1 << 20)));
    require_input(std::ranges::count(ranks, ranks.back()) == 1, "'", text, "' has ", ranks.back(),
                  " twice");
  }
  return ranks;
}

bool read_on(const std::string& text) {
  require_input(text == "on" || text == "off", "'", text, "' is neither on nor off");
  return text == "on";
}

double read_deviation(const std::string& text) {
  const double deviation = read_real(text);
  require_input(deviation <= 2, "'", text, "' is too large; try 0.02");
  return deviation;
}

}  // namespace

void add_clock_flags(Flags& flags, ClockFlags& o) {
  const char* heading = "Seconds of a step on a machine that need not be here";
  flags.group(heading);
  flags.name("--machine", "NAME",
             "one of --machines, or a description in a file such as ./machine.json\f"
             "Its GPUs imply --as cuda, their memory --device-memory, and --ranks-per-node changes "
             "its\nnodes",
             o.machine);
  flags.toggle("--machines", "list the machines, and end", o.list);
  flags.toggle(
      "--advise",
      "the fastest settings that fit, and why the next three lose\f"
      "They are stage, recomputation, offload and micro-batch, with the same tokens per\n"
      "step. Without --stages it tries the four, and hsdp on several full nodes; --overlap "
      "off\ntries all without overlap",
      o.advise);
  flags.add("--sweep", "ranks=N,N,...", o.sweep_ranks, read_sweep_ranks,
            "seconds of a step by number of ranks");
  flags.group(heading, true);
  flags.add("--overlap", "on|off", o.overlap, read_on,
            "communication beside computation, with the next unit prefetched, or neither\n"
            "(default: as configured, which is off)");
  flags.add("--stragglers", "S", o.stragglers.deviation, read_deviation,
            "ranks differ: kernels of a rank take exp(S z) times as long, z standard normal\n"
            "(default 0); every call waits for the slowest rank");
  for (const char* flag : {"--overlap", "--advise", "--sweep", "--stragglers"})
    flags.needs(flag, "--machine");
}

}  // namespace zl::cli
