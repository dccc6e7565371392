// Ranks that are processes and each have a GPU, with NCCL moving their data.
//
// Reductions are ordered by default: dist/ordered/ sums in rank order, so that the bits
// are those of ranks that are threads. Between machines such a sum may take several groups of NCCL,
// with a kernel after each. All are enqueued at once, and the host waits for none of them.
//
// Ranks first check that they all make the same call, so that NCCL never sees a mismatch. A call
// runs on the communication stream, after everything enqueued on the compute stream before it.
// `Work::wait()` does not block the host: it makes the compute stream wait, so what is enqueued
// there afterwards runs after the data has moved. Until then kernels that were enqueued between the
// call and its wait() run beside it. Only the host can notice that NCCL hangs, so a watchdog does
// (dist/nccl/handle.h). What it finds is thrown by the rank's next call, wait() or finish().
// After a failure a synchronisation with the GPU returns all the same, and what it reads may be
// garbage: a value is sound only if a later call, finish() or require_running() does not throw.
//
// In a group (begin_group), calls are issued at its end, and may be waited for only then. Groups do
// not nest. There is no send and receive.
//
// A rank's memory, its backend and its communicator belong to its thread.
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

// Its communicator is there when all ranks have joined and are connected with each other. All ranks
// meet in `others` before any calls NCCL, so a rank that fails before that fails the others at
// once. Its finish() returns when the data of all calls has moved and all ranks have left NCCL,
// groups first; it waits for the others without a deadline. Without finish() the destructor aborts
// NCCL. `options.timeout` is also that of joining and leaving NCCL. Throws InputError if NCCL is
// not built in, or too old.
ProcessTransport nccl_transport(const LaunchedRank& place, const RankOptions& options,
                                const NcclOptions& nccl);

}  // namespace zl
