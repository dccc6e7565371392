#include "dist/mpi/mpi_transport.h"

#include "dist/mpi/library.h"
#include "dist/mpi/mpi_communicator.h"
#include "dist/trace/host_id.h"

namespace zl {

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               bool ordered) {
  (void)require_mpi();
  ProcessTransport transport;
  const MpiJoin join{place.rank, place.size, ordered, options.timeout, machine_id()};
  transport.join = [join](const std::string&, FingerprintCheck& others, EventStream& events) {
    return mpi_communicator(join, others, events);
  };
  transport.where = [] { return where_text("MPI", inside_mpi()); };
  return transport;
}

}  // namespace zl
