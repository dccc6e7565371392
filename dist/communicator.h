// Collectives among N ranks: one interface, several transports.
//
// Each call is checked, logged and then carried out by one private virtual function. Collectives
// work in place: where one side is sharded, this rank's shard is its slice [rank * n, (rank + 1) *
// n) of the full tensor. Sums accumulate in fp32 in rank order (f64 in fp64, integers exactly). A
// mean divides the sum once by N and then rounds to the type.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/call.h"
#include "tensor/tensor.h"

namespace zl {

// A collective that cannot complete: mismatched calls, a dead rank, a passed deadline. Programs
// exit with 4.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A collective in flight.
//
// Do not access the tensors of a collective before wait() has returned. Every Work must be waited
// for: overwriting a pending one throws std::logic_error, and destroying one runs `dropped`, by
// which the Communicator makes its next call throw. While an exception unwinds the stack a Work may
// be destroyed: the rank fails anyway. A Work may outlive its run or the memory of its tensors:
// the transfer ends with them, and wait() throws CommunicationError. Use it on the rank's thread.
class Work {
 public:
  Work() = default;  // complete
  explicit Work(std::function<void()> finish, std::function<void()> dropped = {});
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other);
  ~Work();
  // From then on the compute stream (CPUs: the caller) sees the result. Throws CommunicationError.
  void wait();
  // Whether it has to be waited for: also where the data has moved already.
  bool pending() const;

 private:
  std::function<void()> finish_, dropped_;
};

// Its wait() waits for `work`, and then calls `then`.
Work and_then(Work work, std::function<void()> then);

// The name of a call in logs and errors ("h.3 gradient"), and what it communicates.
struct CallName {
  std::string_view text;
  Purpose purpose;
};

// A split as an engine carries it out.
struct Split {
  Call call;                 // the same on all ranks, if they split alike
  RankGroup group;           // this rank's
  std::vector<int> members;  // the ranks of this rank's color, in order
  std::vector<int> color_of_rank;
};

// Belongs to its rank's thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  // All ranks must make the same calls with the same types, counts and names in the same order.
  // Each call throws std::invalid_argument at once if its arguments cannot be right on this rank,
  // and CommunicationError otherwise. Do not access the tensors before `Work::wait()` returns.
  // Several calls may be in flight, and be waited for in any order. After a CommunicationError
  // their contents are unspecified, and every further call throws it again.

  // In: this rank's values. Out: the reduction of all ranks' values, the same bits on every rank.
  // `start`: a sum begins with it instead of with 0, so that several calls add one after another.
  // It has as many elements, and is the same on every rank.
  [[nodiscard]] Work all_reduce(const Tensor& inout, Reduction reduction, CallName name,
                                const Tensor& start = {});
  // In: this rank's full tensor. Out: the local shard holds the reduction of all ranks' values of
  // it; the rest is unspecified. `start`: likewise, of this rank's shard.
  [[nodiscard]] Work reduce_scatter(const Tensor& full, Reduction reduction, CallName name,
                                    const Tensor& start = {});
  // In: the local shard. Out: every shard, each from its rank.
  [[nodiscard]] Work all_gather(const Tensor& full, CallName name);
  // In: the root's values. Out: the same on every rank.
  [[nodiscard]] Work broadcast(const Tensor& inout, int root, CallName name);
  // Shard r of `from` goes to rank r; shard r of `to` comes from rank r. The two must not overlap.
  [[nodiscard]] Work all_to_all(const Tensor& from, const Tensor& to, CallName name);
  [[nodiscard]] Work barrier(CallName name);
  // One rank sends what another receives; no other rank takes part. Neither call blocks, so two
  // ranks may both send first; waiting blocks. Between two ranks, the first send matches the first
  // receive, and so on. Only for ranks that are threads.
  [[nodiscard]] Work send(const Tensor& from, int to_rank, CallName name);
  [[nodiscard]] Work receive(const Tensor& to, int from_rank, CallName name);

  // The texts of all ranks in rank order, on every rank: for reports and results, which are small.
  // It is not logged, and it has no deadline, because a rank may write files while the others wait
  // for it here.
  std::vector<std::string> all_gather_object(const std::string& text, std::string_view name);

  // Divides the ranks into groups: ranks of one color make calls among themselves by the result, in
  // which they are numbered from 0 in rank order. All ranks pass the same label ("intra") and the
  // color of every rank, so that a dry run knows the groups too. The groups' calls are counted in
  // this log, in rows with the label. A failure in one group ends all ranks. A group must be
  // destroyed before this communicator, which also finishes it, and cannot be split again.
  std::unique_ptr<Communicator> split(const std::vector<int>& color_of_rank,
                                      std::string_view label);
  const RankGroup& group() const { return group_; }

  // From now on, calls are compared only when one of them does not complete in time. All ranks call
  // this at the same point. Ranks that are threads go on comparing every call, which costs nothing.
  virtual void compare_calls_only_on_timeout() {}

  // Calls between the two are issued together (an NCCL group); other transports issue each at once.
  // The log counts each member.
  virtual void begin_group() {}
  virtual void end_group() {}

  // [B] of scratch memory (use: communication) that a reduction of `count` elements [n] allocates
  // on this rank until it has been waited for.
  virtual int64_t reduction_scratch_bytes(int64_t /*count*/, Dtype) const { return 0; }

  // Throws CommunicationError if this rank knows that the run has failed. A device whose transport
  // has failed goes on with garbage, so call it between reading a result and reporting it.
  virtual void require_running() {}

  // To be called after the rank's last call. Throws CommunicationError if a Work was not waited
  // for.
  virtual void finish();

  const CommunicationLog& log() const { return run_.log_; }
  CommunicationLog& log() { return run_.log_; }
  EventStream& events() const { return events_; }

 protected:
  Communicator(int rank, int size, EventStream& events)
      : rank_(rank), size_(size), events_(events), run_(*this) {}
  Communicator(Communicator& all, const Split& split);
  // What a transport tells of a call, so that its events and times are right.
  // It calls this when all ranks have come to `call`: until then this rank waited.
  // `at` [ns]: when, if that was earlier than now.
  void all_ranks_came(const Call& call, int64_t at = 0);
  // For a transport whose data has moved when a call returns, although its Work keeps memory until
  // it is waited for: the call ends here.
  void has_moved(const Call& call);
  // For a transport that carries a call out on another thread, before the wait() of its Work
  // returns: when that thread began, and when the data had moved [ns].
  void carried_out(const Call& call, int64_t began, int64_t moved);

 private:
  // A call whose Work has not been waited for. Each has its own times, because several may be in
  // flight.
  struct Operation {
    Call call;
    int64_t began = 0, all_came = 0;         // [ns]
    int64_t wait_began = 0, moved = 0;       // [ns]; 0: as began and the end
    bool returned = false, dropped = false;  // its Work
    bool ended = false;                      // end_event() has been called
    Memory* memory = nullptr;                // of its tensors; null: none, or another thread's
  };
  struct TransportWork;

  virtual Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) = 0;
  virtual Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) = 0;
  virtual Work do_all_gather(const Tensor& full, const Call& call) = 0;
  virtual Work do_broadcast(const Tensor& inout, const Call& call) = 0;
  virtual Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) = 0;
  virtual Work do_barrier(const Call& call) = 0;
  // A send from `tensor` or a receive into it. By default there is none: std::invalid_argument.
  virtual Work do_point_to_point(const Tensor& tensor, const Call& call);
  virtual std::vector<std::string> do_all_gather_object(const std::string& text,
                                                        const Call& call) = 0;
  // First compares `split.call` with that of the other ranks.
  virtual std::unique_ptr<Communicator> do_split(const Split& split);

  // Checks the arguments, and then tells all that observe calls: the log, the events, and what is
  // in flight. `other`: the start of a sum, or the receiving tensor of an all_to_all.
  Call begin(Call call, const Tensor& tensor, CallName name, const Tensor& other = {});
  Work end(const Call& call, Work work);
  void end_event(Operation& operation);
  std::shared_ptr<Operation> find(const Call& call);  // null: not in flight
  void require_none_dropped() const;

  int64_t append(EventKind kind, const Call& call, int64_t bytes = 0, int64_t at = 0);

  const int rank_, size_;
  const RankGroup group_;
  EventStream& events_;
  Communicator& run_;     // of all ranks: this one, or the one that was split
  CommunicationLog log_;  // these three of all ranks' communicator only
  std::vector<std::shared_ptr<Operation>> in_flight_;
  int splits_ = 0;
  int64_t collectives_ = 0;
  std::map<std::pair<Collective, int>, int64_t> point_to_point_;  // sends and receives, by peer
};

}  // namespace zl
