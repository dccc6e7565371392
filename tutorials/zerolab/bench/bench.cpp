// zerolab bench: its subcommands.
#include <CLI/CLI.hpp>

#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App& bench = *app.add_subcommand("bench", kBenchDescription);
  bench.require_subcommand(1);
  add_bench_machine(bench, invocation);
  add_bench_comm(bench, invocation);
  add_bench_kernels(bench, invocation);
  add_bench_step(bench, invocation);
}

std::string become_bench(char**) { return ""; }

void add_counts(Flags& flags, const std::vector<CountFlag>& counts) {
  for (const auto& [flag, type, help, into, least, most] : counts)
    flags.value(flag, type, help, [&into = into, least = least, most = most](const auto& text) {
      into = read_count(text, least, most);
    });
}

}  // namespace zl::cli
