#include "dist/nccl/nccl_transport.h"

#include <atomic>

#include "dist/nccl/errors.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/trace/host_id.h"
#include "dist/wire.h"

namespace zl {

ProcessTransport nccl_transport(const LaunchedRank& place, const RankOptions& options,
                                const NcclOptions& nccl) {
  const NcclApi& api = require_nccl(nccl.api);
  const auto inside = std::make_shared<std::atomic<const char*>>(nullptr);
  ProcessTransport transport;
  transport.welcome = [&api] {
    const NcclUniqueId id = nccl_unique_id(api);
    return std::string(id.bytes, sizeof id.bytes);
  };
  transport.join = [=, &api](const std::string& welcome, FingerprintCheck& others,
                             EventStream& events) {
    if (nccl.choose_gpu) nccl.choose_gpu(place.rank);
    return nccl_communicator(
        {api, WireReader(welcome).get<NcclUniqueId>(), place.rank, place.size, options.timeout,
         *inside, nccl.machine ? nccl.machine(place.rank) : machine_id(), nccl.ordered},
        others, events);
  };
  transport.where = [inside] { return where_text("NCCL", *inside); };
  return transport;
}

}  // namespace zl
