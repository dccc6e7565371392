#include "dist/processes/mpi_transport.h"

#include <atomic>
#include <cstdlib>

#include "dist/mpi/library.h"
#include "dist/mpi/mpi_communicator.h"
#include "dist/trace/host_id.h"
#include "tensor/error.h"

namespace zl {

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               bool ordered) {
  const MpiApi& api = load_mpi([](const char* name) { return std::getenv(name); });
  const auto inside = std::make_shared<std::atomic<const char*>>(nullptr);
  ProcessTransport transport;
  transport.join = [=, &api](const std::string&, FingerprintCheck& others, EventStream& events) {
    return std::make_unique<MpiCommunicator>(
        MpiJoin{api, place.rank, place.size, options.timeout, *inside, machine_id()}, others,
        events, ordered);
  };
  transport.where = [inside] { return where_text("MPI", *inside); };
  return transport;
}

}  // namespace zl
