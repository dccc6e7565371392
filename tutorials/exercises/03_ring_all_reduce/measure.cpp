#include "tutorials/exercises/judge/measure.h"

#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"
#include "tutorials/exercises/judge/late_communicator.h"

namespace zl::exercises {
namespace {

// Sends and receives through `inner`, and notes them.
class WatchedCommunicator final : public LimitedCommunicator {
 public:
  WatchedCommunicator(Communicator& inner, Record& seen)
      : LimitedCommunicator(inner.rank(), inner.size(), inner.events(), "send and receive"),
        inner_(inner),
        seen_(seen) {}

 private:
  Work do_send(const Tensor& from, const Call& call) override {
    seen_.numbers["sends"].push_back(call.peer);
    seen_.numbers["elements"].push_back(double(call.count));
    return inner_.send(from, call.peer, {call.name, Purpose::gradient});
  }
  Work do_receive(const Tensor& to, const Call& call) override {
    seen_.numbers["receives"].push_back(call.peer);
    return inner_.receive(to, call.peer, {call.name, Purpose::gradient});
  }

  Communicator& inner_;
  Record& seen_;
};

}  // namespace

// Of each rank the peers of its messages, the elements that it sends, "result 0" of the first call,
// and "memory": allocations, and the peak [B] beyond values and scratch.
Record measure(const std::string& check, const CheckOptions& options) {
  const ring_checks::RingCase c = ring_checks::make_case(check, options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) {
    // Fresh memory is filled with NaN.
    Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
    WatchedCommunicator watched(comm, seen);
    for (const char* list : {"sends", "elements", "receives"}) seen.numbers[list] = {};
    Values& used = seen.numbers["memory"] = {0, 0};
    for (size_t call = 0; call < c.values.size(); ++call) {
      const int64_t n = c.n(call), N = c.ranks;
      const Tensor values = Tensor::empty(memory, MemoryUse::gradient, {n}),
                   scratch = Tensor::empty(memory, MemoryUse::communication, {(n + N - 1) / N});
      kernel::upload<float>(c.values[call][size_t(comm.rank())], values);
      const int64_t allocations = memory.allocations(), live = memory.ledger().live_total();
      memory.ledger().reset_peak();
      ring_all_reduce(watched, values, scratch);
      used[0] += double(memory.allocations() - allocations);
      used[1] += double(memory.ledger().peak_total() - live);
      seen.put(str("result ", call), kernel::download_floats(values));
    }
    watched.finish();
  });
}

}  // namespace zl::exercises
