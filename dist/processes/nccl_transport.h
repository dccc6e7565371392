// NCCL between ranks that are processes, each on a GPU.
#pragma once

#include "dist/nccl/nccl_ranks.h"
#include "dist/processes/process_ranks.h"

namespace zl {

// Throws InputError if NCCL is not built in or is too old.
ProcessTransport nccl_transport(const LaunchedRank& place, const RankOptions& options,
                                const NcclOptions& nccl);

}  // namespace zl
