// The commands below 'zerolab bench' that stand in files of their own.
#pragma once

#include "tutorials/zerolab/commands/command.h"

namespace zl::cli {

void add_bench_comm(CLI::App& bench, Invocation& invocation);
void add_bench_kernels(CLI::App& bench, Invocation& invocation);
void add_bench_machine(CLI::App& bench, Invocation& invocation);
void add_bench_step(CLI::App& bench, Invocation& invocation);

}  // namespace zl::cli
