// What a student's code communicates with: only what its exercise needs, and each result of a
// collective arrives when its Work is waited for.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>

#include "dist/communicator.h"
#include "tensor/backend.h"

namespace zl::exercises {

// On the CPU a collective has finished when the call returns, and code that reads too early
// works by luck. Here a collective works on a copy, and Work::wait() copies the result back. The
// copies are in a memory that the rank's ledger and events do not know. The transport counts each
// call, where the student's code cannot write.
class WatchedCommunicator final : public Communicator {
 public:
  // Told of each call before it begins. What it returns is told when a collective was waited for.
  using Watch = std::function<std::function<void()>(const Tensor&, const Call&)>;

  // Refuses each call that the exercise does not need.
  WatchedCommunicator(
      Communicator& transport, const Memory& rank, std::vector<Collective> needed,
      Watch watch = [](const Tensor&, const Call&) { return [] {}; })
      : Communicator(transport.rank(), transport.size(), calls_),
        transport_(transport),
        calls_(transport.rank()),
        copies_(rank.device(), rank.backend(), calls_),
        needed_(std::move(needed)),
        watch_(std::move(watch)) {}

  // Calls of this communicator that have been waited for.
  int64_t waits() const { return waits_; }
  // The number of the group of calls that has begun and not ended; -1: none.
  int64_t group() const { return group_; }
  const Communicator& transport() const { return transport_; }

  void begin_group() override { group_ = groups_++; }
  void end_group() override { group_ = -1; }

 private:
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return late(inout, call, [&](const Tensor& copy) {
      return transport_.all_reduce(copy, call.reduction, named(call), start);
    });
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return late(full, call, [&](const Tensor& copy) {
      return transport_.reduce_scatter(copy, call.reduction, named(call), start);
    });
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return late(full, call,
                [&](const Tensor& copy) { return transport_.all_gather(copy, named(call)); });
  }
  Work do_point_to_point(const Tensor& tensor, const Call& call) override {
    begun(tensor, call);
    const CallName name{call.name, Purpose::gradient};
    return call.kind == Collective::send ? transport_.send(tensor, call.peer, name)
                                         : transport_.receive(tensor, call.peer, name);
  }
  // No exercise needs these.
  Work do_broadcast(const Tensor&, const Call& call) override { return begun({}, call), Work(); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call& call) override {
    return begun({}, call), Work();
  }
  Work do_barrier(const Call& call) override { return begun({}, call), Work(); }
  std::vector<std::string> do_all_gather_object(const std::string&, const Call& call) override {
    begun({}, call);
    return {};
  }

  std::function<void()> begun(const Tensor& tensor, const Call& call) const {
    std::string needs;
    for (const Collective one : needed_) needs += str(needs.empty() ? "" : ", ", zl::name(one));
    require(std::ranges::count(needed_, call.kind) > 0, "do not call ", zl::name(call.kind),
            ": this exercise needs only ", needs);
    return watch_(tensor, call);
  }

  // The base class counts a call before it is carried out, here in a log that was empty.
  CallName named(const Call& call) {
    const auto& rows = log().rows();
    require(rows.size() == 1, "do not write to the log of the communicator");
    const Purpose purpose = rows.begin()->first.purpose;
    log().clear();
    return {call.name, purpose};
  }

  template <class Begin>
  Work late(const Tensor& tensor, const Call& call, const Begin& begin) {
    const std::function<void()> waited = begun(tensor, call);
    const Tensor copy =
        Tensor::empty(copies_, MemoryUse::communication, {tensor.numel()}, tensor.dtype());
    tensor.backend().copy(tensor, copy);
    return Work([this, tensor, copy, waited, work = std::make_shared<Work>(begin(copy))] {
      ++waits_;
      work->wait();
      tensor.backend().copy(copy, tensor);
      waited();
    });
  }

  Communicator& transport_;
  EventStream calls_;
  Memory copies_;
  const std::vector<Collective> needed_;
  const Watch watch_;
  int64_t waits_ = 0, group_ = -1, groups_ = 0;
};

}  // namespace zl::exercises
