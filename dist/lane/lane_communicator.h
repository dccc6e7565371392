// A communicator whose calls another thread, the rank's lane, carries out while the rank computes.
//
// The calls are those of another engine, the inner communicator. The rank checks and logs a call
// when it issues it, so the log has the order of the program. The lane makes the same call of the
// inner communicator and waits for it there: collectives one after another in the order of issue,
// also those of a group. A send or receive is only posted in that order. It is waited for when the
// rank waits for it, so that two ranks may both send first. Work::wait() returns when the lane has
// done the call, and throws what the lane caught.
//
// The tensors of a call belong to its Work, that is to the rank: the lane never allocates or frees
// memory of a Memory, which only its rank's thread may use. So a Work that is destroyed without
// wait() first waits for the lane. If an exception unwinds the stack, it fails the run before that,
// because the other ranks may never come to the call.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "dist/lane/lane.h"
#include "dist/run_ranks.h"

namespace zl {

// How a lane takes part in the failure of a run. Both may be called by any thread.
struct LaneFailure {
  std::function<void(const std::string& why)> fail;  // ends the calls of all ranks
  std::function<bool()> failed;
};

class LaneCommunicator final : public Communicator {
 public:
  // `inner` has an event stream that no other thread uses while this lives: the lane labels its
  // events with the phase and unit in which the rank issued the call. `events` is the rank's.
  // Throws std::invalid_argument if reductions of `inner` need scratch memory, which the lane must
  // not allocate, and std::system_error if the system gives no more threads.
  LaneCommunicator(std::unique_ptr<Communicator> inner, EventStream& events, const Link& link,
                   LaneFailure failure);
  // The lane ends first, or has done the calls of a group. A Work of a send or receive must not
  // outlive it.
  ~LaneCommunicator() override;

  void finish() override;

  // Whether the rank has got an exception of the lane.
  bool has_rethrown() const { return rethrown_; }

 private:
  LaneCommunicator(LaneCommunicator& all, const Split& split, std::unique_ptr<Communicator> inner);

  struct Operation;

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return issue(call, inout, start);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return issue(call, full, start);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override { return issue(call, full); }
  Work do_broadcast(const Tensor& inout, const Call& call) override { return issue(call, inout); }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return issue(call, from, to);
  }
  Work do_barrier(const Call& call) override { return issue(call); }
  Work do_send(const Tensor& from, const Call& call) override { return issue(call, from); }
  Work do_receive(const Tensor& to, const Call& call) override { return issue(call, to); }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call& call) override;
  std::unique_ptr<Communicator> do_split(const Split& split) override;

  // On the rank's thread.
  Work issue(const Call& call, const Tensor& a = {}, const Tensor& b = {});
  void wait(Operation& operation);
  void drop(Operation& operation) noexcept;
  void get(std::future<void> done);  // waits, and throws what the lane caught
  // On the lane.
  void carry_out(Operation& operation, bool begins, bool completes);
  void pass_link(const Operation& operation);

  LaneCommunicator& all_;  // of all ranks: it has the lane
  const std::unique_ptr<Communicator> inner_;
  const Link link_;
  const LaneFailure failure_;
  bool rethrown_ = false;  // the rank's
  // The lane's.
  Operation* current_ = nullptr;
  int64_t link_free_at_ = 0;          // [ns] when the simulated link has sent all calls so far
  const std::shared_ptr<Lane> lane_;  // groups share it
};

}  // namespace zl
