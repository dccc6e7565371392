#include "dist/nccl/nccl_ranks.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"

namespace zl {

void run_nccl_ranks(int size, const std::function<void(Communicator&)>& body, RankOptions options,
                    const NcclOptions& nccl) {
  const NcclApi& api = require_nccl(nccl.api);
  // Since NCCL 2.22 the first collective of a kind connects its ring, which allocates memory: in an
  // ordered all_reduce while this GPU may wait for a rank that needs the driver's lock.
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  const NcclUniqueId id = nccl_unique_id(api);
  std::array<std::atomic<const char*>, kMostRanks> inside{};  // the function that each rank is in
  RankTransport transport;
  transport.join = [&](int rank, FingerprintCheck& others, EventStream& events) {
    if (nccl.choose_gpu) nccl.choose_gpu(rank);
    return std::make_unique<NcclCommunicator>(
        NcclJoin{api, id, rank, size, options.timeout, inside[size_t(rank)],
                 nccl.machine ? nccl.machine(rank) : ""},
        others, events, nccl.ordered);
  };
  transport.where = [&](int rank) {
    const char* const function = inside[size_t(rank)];
    return std::string(function ? function : "");
  };
  run_rank_threads(size, transport, body, options);
}

}  // namespace zl
