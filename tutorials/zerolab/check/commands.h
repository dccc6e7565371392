// The subcommands of 'zerolab check', and 'zerolab golden'.
#pragma once

#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

void add_check_traffic(CLI::App& check, Invocation& invocation);
void add_check_losses(CLI::App& check, Invocation& invocation);
void add_golden(CLI::App& app, Invocation& invocation);

// --config, --set and --precision, which say how the run was configured.
void add_run_settings(Flags& flags, RunOptions& options);

}  // namespace zl::cli
