// NCCL between ranks that are processes, each on a GPU.
#pragma once

#include <functional>
#include <string>

#include "dist/nccl/api.h"
#include "dist/processes/process_ranks.h"

namespace zl {

struct NcclOptions {
  const NcclApi* api = nullptr;  // null: the library, which this opens
  bool ordered = true;           // sums in rank order, with the bits of run_ranks(); false: NCCL
                                 // adds, equal but for rounding
  // Selects the rank's GPU, on its thread, before NCCL is used.
  std::function<void(int rank)> choose_gpu = {};
  // Names a rank's machine, for tests; null: the real one.
  std::function<std::string(int rank)> machine = {};
};

// `options.timeout` is also that of joining and leaving NCCL. Throws InputError if NCCL is not
// built in, or too old.
ProcessTransport nccl_transport(const LaunchedRank& place, const RankOptions& options,
                                const NcclOptions& nccl);

}  // namespace zl
