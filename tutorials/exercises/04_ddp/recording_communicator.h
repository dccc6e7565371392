// A communicator that records calls and groups, and delivers each result when it is waited for.
#pragma once

#include <string>
#include <vector>

#include "dist/communicator.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/04_ddp/gradient_reducer.h"

namespace zl::exercises {

// On the CPU a collective has finished when the call returns, and a program that forgets to wait
// works by luck. Here the values change in Work::wait(), as on a slow network.
class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(Communicator& transport, EventStream& events,
                        const std::vector<UnitGradient>& units, std::vector<DdpEvent>& record)
      : Communicator(transport.rank(), transport.size(), events),
        transport_(transport),
        units_(units),
        record_(record) {}

  void begin_group() override { record_.push_back({DdpEvent::begin_group}); }
  void end_group() override { record_.push_back({DdpEvent::end_group}); }

 private:
  int64_t unit_of(const Tensor& tensor) const {
    for (size_t u = 0; u < units_.size(); ++u)
      if (units_[u].gradient.same_storage(tensor)) return int64_t(u);
    return -1;
  }
  static Tensor copy_of(const Tensor& tensor) {
    const Tensor copy =
        Tensor::empty(tensor.memory(), MemoryUse::communication, {tensor.numel()}, tensor.dtype());
    kernel::copy(tensor, copy);
    return copy;
  }
  CallName named(const Call& call) const { return {call.name, Purpose::gradient}; }
  void other(const Call& call) {
    record_.push_back({DdpEvent::other_call, int64_t(call.kind), call.count});
  }

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    record_.push_back({DdpEvent::all_reduce, unit_of(inout), call.count,
                       call.reduction == Reduction::mean ? 1 : 0});
    const Tensor result = copy_of(inout);
    transport_.all_reduce(result, call.reduction, named(call), start).wait();
    return Work([this, inout, result, number = all_reduces_++] {
      record_.push_back({DdpEvent::waited, number});
      kernel::copy(result, inout);
    });
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    other(call);
    return transport_.reduce_scatter(full, call.reduction, named(call), start);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    other(call);
    return transport_.all_gather(full, named(call));
  }
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    other(call);
    return transport_.broadcast(inout, call.peer, named(call));
  }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    other(call);
    return transport_.all_to_all(from, to, named(call));
  }
  Work do_barrier(const Call& call) override {
    other(call);
    return transport_.barrier(named(call));
  }
  Work do_send(const Tensor& from, const Call& call) override {
    other(call);
    return transport_.send(from, call.peer, named(call));
  }
  Work do_receive(const Tensor& to, const Call& call) override {
    other(call);
    return transport_.receive(to, call.peer, named(call));
  }
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    return transport_.all_gather_object(text, call.name);
  }

  Communicator& transport_;
  const std::vector<UnitGradient>& units_;
  std::vector<DdpEvent>& record_;
  int64_t all_reduces_ = 0;
};

}  // namespace zl::exercises
