// What a student's code communicates with: only what its exercise needs, and each result of a
// collective arrives when its Work is waited for.
#pragma once

#include <memory>

#include "dist/communicator.h"
#include "tensor/backend.h"

namespace zl::exercises {

// Refuses each call that a derived class does not carry out.
class LimitedCommunicator : public Communicator {
 protected:
  // `needed`: the calls that the exercise needs, for the sentence about another one.
  LimitedCommunicator(int rank, int size, EventStream& events, const char* needed)
      : Communicator(rank, size, events), needed_(needed) {}

  [[noreturn]] void refuse(const Call& call) const {
    throw std::invalid_argument(
        str("do not call ", name(call.kind), ": this exercise needs ", needed_, " only"));
  }
  Work do_all_reduce(const Tensor&, const Tensor&, const Call& call) override { refuse(call); }
  Work do_reduce_scatter(const Tensor&, const Tensor&, const Call& call) override { refuse(call); }
  Work do_all_gather(const Tensor&, const Call& call) override { refuse(call); }
  Work do_broadcast(const Tensor&, const Call& call) override { refuse(call); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call& call) override { refuse(call); }
  Work do_barrier(const Call& call) override { refuse(call); }
  Work do_send(const Tensor&, const Call& call) override { refuse(call); }
  Work do_receive(const Tensor&, const Call& call) override { refuse(call); }
  std::vector<std::string> do_all_gather_object(const std::string&, const Call& call) override {
    refuse(call);
  }

 private:
  const char* const needed_;
};

// On the CPU a collective has finished when the call returns, and code that reads too early
// works by luck. Here a collective works on a copy, and Work::wait() copies the result back. The
// copies are in a memory that the rank's ledger and events do not know. The transport counts each
// call, where the student's code cannot write.
class LateCommunicator : public LimitedCommunicator {
 public:
  LateCommunicator(Communicator& transport, const Memory& rank,
                   const char* needed = "all_reduce, reduce_scatter or all_gather")
      : LimitedCommunicator(transport.rank(), transport.size(), calls_, needed),
        transport_(transport),
        calls_(transport.rank()),
        copies_(rank.device(), rank.backend(), calls_) {}

  // Calls of this communicator that have been waited for.
  int64_t waits() const { return waits_; }
  const Communicator& transport() const { return transport_; }

 protected:
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return late(inout, [&](const Tensor& copy) {
      return transport_.all_reduce(copy, call.reduction, named(call), start);
    });
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return late(full, [&](const Tensor& copy) {
      return transport_.reduce_scatter(copy, call.reduction, named(call), start);
    });
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return late(full, [&](const Tensor& copy) { return transport_.all_gather(copy, named(call)); });
  }

 private:
  // The base class counts a call before it is carried out, here in a log that was empty.
  CallName named(const Call& call) {
    const auto& rows = log().rows();
    require(rows.size() == 1, "do not write to the log of the communicator");
    const Purpose purpose = rows.begin()->first.purpose;
    log().clear();
    return {call.name, purpose};
  }

  template <class Collective>
  Work late(const Tensor& tensor, const Collective& begin) {
    const Tensor copy =
        Tensor::empty(copies_, MemoryUse::communication, {tensor.numel()}, tensor.dtype());
    tensor.backend().copy(tensor, copy);
    return Work([this, tensor, copy, work = std::make_shared<Work>(begin(copy))] {
      ++waits_;
      work->wait();
      tensor.backend().copy(copy, tensor);
    });
  }

  Communicator& transport_;
  EventStream calls_;
  Memory copies_;
  int64_t waits_ = 0;
};

}  // namespace zl::exercises
