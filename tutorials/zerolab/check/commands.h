// What the commands of this folder share.
#pragma once

#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

void add_losses(CLI::App& check, Invocation& invocation);  // of 'zerolab check losses'
void add_settings(Flags& flags, RunOptions& options);      // --model, --config and --set

}  // namespace zl::cli
