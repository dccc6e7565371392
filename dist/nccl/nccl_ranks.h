// Ranks that are threads of one process, each on a GPU, with NCCL between them.
#pragma once

#include <functional>
#include <string>

#include "dist/nccl/api.h"
#include "dist/run_ranks.h"

namespace zl {

struct NcclOptions {
  const NcclApi* api = nullptr;  // null: the library that this program was linked with
  bool ordered = true;  // sums in rank order, with the bits of run_ranks(); false: NCCL adds, equal
                        // but for rounding
  std::function<void(int rank)>
      choose_gpu;  // called on each rank's thread before NCCL: make_gpu_backend() does it
  // Names a rank's machine, for tests; null: the real one.
  std::function<std::string(int rank)> machine = {};
};

// As run_ranks(), with `options.timeout` also for joining and leaving NCCL. Throws InputError if
// NCCL is not built in or is too old, CommunicationError if the ranks cannot join. A rank that
// hangs inside NCCL ends the process as run_ranks() says.
void run_nccl_ranks(int size, const std::function<void(Communicator&)>& body,
                    RankOptions options = {}, const NcclOptions& nccl = {});

}  // namespace zl
