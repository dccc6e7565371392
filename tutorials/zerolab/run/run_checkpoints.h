// The checkpoints of a run, as the flags ask for them.
#pragma once

#include <string>

#include "stages/checkpoint/checkpoint.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

// Fills in the folders that follow from each other: --resume without DIR takes --out, and --resume
// DIR without --out goes on in DIR. Throws UsageError if a flag needs another one or has no effect.
void complete_checkpoint_flags(RunOptions& options);
// Of completed flags.
CheckpointOptions checkpoint_options(const RunOptions& options);

// Whether the run goes on in the folder of the checkpoint that it begins with.
bool resumes_in_place(const RunOptions& options);

// Throws InputError, before any time is spent, where there is no checkpoint and the run must not
// begin at its start: --resume names another folder than --out, or --out holds the weights of a
// run; or where a run that ends at `steps` would replace results of later steps. Returns a note if
// the run begins at its start, or "".
std::string check_resume(const RunOptions& options, int64_t steps);

}  // namespace zl::cli
