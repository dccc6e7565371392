// zerolab bench: its subcommands.
#include "tutorials/zerolab/bench/commands.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

void add_bench(CLI::App& bench, Invocation& invocation) {
  add_bench_machine(bench, invocation);
  add_bench_comm(bench, invocation);
  add_bench_kernels(bench, invocation);
  add_bench_step(bench, invocation);
}

[[maybe_unused]] const bool bench_is_here = have_program("bench", add_bench);

}  // namespace

void add_counts(Flags& flags, const std::vector<CountFlag>& counts) {
  for (const auto& [flag, type, help, into, least, most] : counts)
    flags.value(flag, type, help, [&into = into, least = least, most = most](const auto& text) {
      into = read_count(text, least, most);
    });
}

}  // namespace zl::cli
