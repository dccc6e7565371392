// Collectives among N ranks: one interface, several transports.
//
// A call is checked, logged, then carried out by one private virtual function. Collectives work in
// place: where one side is sharded, this rank's shard is its own slice [rank * n, (rank + 1) * n)
// of the whole. Sums add in fp32 in rank order (fp64 for f64, exactly for integers); a mean divides
// the sum once by N and then rounds to the type.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/call.h"
#include "dist/communication_log.h"
#include "dist/work.h"
#include "tensor/tensor.h"

namespace zl {

// A call that cannot end as its callers meant: mismatched calls, a rank that died, a deadline.
// Programs exit with 4.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a call is called in logs and errors ("h.3 gradient") and what it moves.
struct CallName {
  std::string_view text;
  Purpose purpose;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }

  // All ranks must make the same calls with the same types, counts and names in the same order.
  // Each throws std::invalid_argument at once if its arguments cannot be right on this rank, and
  // CommunicationError otherwise. Tensors must not be touched until the Work was waited for. After
  // a CommunicationError their contents are unspecified and every further call throws it again. In:
  // this rank's values. Out: the reduction of all ranks' values, the same bits on every rank.
  [[nodiscard]] Work all_reduce(const Tensor& inout, Reduction reduction, CallName name);
  // In: this rank's whole. Out: the own slice holds the reduction of all ranks' slices; the rest is
  // unspecified.
  [[nodiscard]] Work reduce_scatter(const Tensor& whole, Reduction reduction, CallName name);
  // In: the own slice. Out: every slice, each from its rank.
  [[nodiscard]] Work all_gather(const Tensor& whole, CallName name);
  // In: the root's values. Out: the same on every rank.
  [[nodiscard]] Work broadcast(const Tensor& inout, int root, CallName name);
  // Slice r of `from` goes to rank r; slice r of `to` comes from rank r. The two must not overlap.
  [[nodiscard]] Work all_to_all(const Tensor& from, const Tensor& to, CallName name);
  [[nodiscard]] Work barrier(CallName name);
  // One rank sends what another receives; only the two of them take part. Neither call blocks, so
  // two ranks may both send first; waiting does. Between two ranks, the first send meets the first
  // receive, and so on.
  [[nodiscard]] Work send(const Tensor& from, int to_rank, CallName name);
  [[nodiscard]] Work receive(const Tensor& to, int from_rank, CallName name);

  // What every rank says, in the order of ranks, on every rank: for reports and results, which are
  // text and small. It stands in no log, and has no deadline, since a rank may write files while
  // the others wait for it here.
  std::vector<std::string> exchange(const std::string& text, std::string_view name);

  // From now on calls need be compared only when one of them fails to end; all ranks say so at the
  // same place. Ranks that compare for nothing, in one process, go on doing so.
  virtual void trust_calls() {}

  // Calls between the two are issued together (an NCCL group). A group counts as its members.
  virtual void begin_group() {}
  virtual void end_group() {}

  const CommunicationLog& log() const { return log_; }
  CommunicationLog& log() { return log_; }
  EventStream& events() const { return events_; }

 protected:
  Communicator(int rank, int size, EventStream& events)
      : rank_(rank), size_(size), events_(events) {}
  // The transport says that all ranks have arrived; the time until then was spent waiting.
  void met(const Call& call);

 private:
  virtual Work do_all_reduce(const Tensor& inout, const Call& call) = 0;
  virtual Work do_reduce_scatter(const Tensor& whole, const Call& call) = 0;
  virtual Work do_all_gather(const Tensor& whole, const Call& call) = 0;
  virtual Work do_broadcast(const Tensor& inout, const Call& call) = 0;
  virtual Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) = 0;
  virtual Work do_barrier(const Call& call) = 0;
  virtual Work do_send(const Tensor& from, const Call& call) = 0;
  virtual Work do_receive(const Tensor& to, const Call& call) = 0;
  virtual std::vector<std::string> do_exchange(const std::string& text, const Call& call) = 0;

  Call begin(Call call, const Tensor& tensor, CallName name);
  Call begin(Call call, int64_t bytes, CallName name);
  Work end(const Call& call, Work work);

  int rank_, size_;
  EventStream& events_;
  CommunicationLog log_;
  int64_t began_ = 0, met_ = 0;  // [ns] of the call that is under way
  int64_t collectives_ = 0;
  std::map<std::pair<Collective, int>, int64_t> between_two_;  // sends and receives, by peer
};

}  // namespace zl
