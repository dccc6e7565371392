// zerolab bench: its subcommands.
#include "tutorials/zerolab/bench/commands.h"

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

}  // namespace zl::cli
