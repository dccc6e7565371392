// The subcommands of 'zerolab check'.
#pragma once

#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

void add_check_traffic(CLI::App& check, Invocation& invocation);
void add_check_losses(CLI::App& check, Invocation& invocation);

}  // namespace zl::cli
