#include "dist/processes/mpi_transport.h"

#include <atomic>
#include <cstdlib>

#include "dist/mpi/library.h"
#include "dist/mpi/mpi_communicator.h"
#include "dist/trace/host_id.h"
#include "tensor/error.h"

namespace zl {

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               const MpiOptions& mpi) {
  const MpiApi& api =
      mpi.api ? *mpi.api : open_mpi([](const char* name) { return std::getenv(name); });
  const auto inside = std::make_shared<std::atomic<const char*>>(nullptr);
  ProcessTransport transport;
  transport.join = [=, &api](const std::string&, FingerprintCheck& others, EventStream& events) {
    return std::make_unique<MpiCommunicator>(
        MpiJoin{api, place.rank, place.size, options.timeout, *inside,
                mpi.machine.empty() ? str(host_name(), " ", boot_id()) : mpi.machine},
        others, events, mpi.ordered);
  };
  transport.where = [inside] {
    const char* const function = *inside;
    return str(function ? "in " : "outside MPI", function ? function : "");
  };
  return transport;
}

}  // namespace zl
