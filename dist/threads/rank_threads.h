// Ranks that are threads of one process, whatever moves their data: their threads, their deadlines,
// and what is said when one fails. run_ranks() and run_nccl_ranks() are its users.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/run_ranks.h"
#include "dist/threads/rendezvous.h"

namespace zl {

// What makes and ends the communicators. All but `where` is called on the rank's own thread.
class RankTransport {
 public:
  virtual ~RankTransport() = default;
  virtual std::unique_ptr<Communicator> join(int rank, Meeting& meeting, EventStream& events) = 0;
  // When the rank's body has returned without an error. The communicator is destroyed afterwards,
  // and also after an error.
  virtual void part(Communicator&) {}
  // What a rank is doing that it may be stuck in, for the report before the process ends; "" if
  // nothing is known.
  virtual std::string where(int) const { return ""; }
};

// What last_failure_report() says on this thread.
void set_last_failure_report(std::string report);

// As run_ranks().
void run_rank_threads(int size, RankTransport& transport,
                      const std::function<void(Communicator&)>& body, RankOptions options);

}  // namespace zl
