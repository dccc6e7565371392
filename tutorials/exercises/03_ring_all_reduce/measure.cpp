#include "tutorials/exercises/judge/measure.h"

#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"
#include "tutorials/exercises/judge/watched_communicator.h"

namespace zl::exercises {

// Of each rank the peers of its messages, the elements that it sends, its "result", and "memory":
// allocations, and the peak [B] beyond values and scratch.
Record measure(const CheckOptions& options) {
  const ring_checks::RingCase c = ring_checks::make_case(options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) {
    // Fresh memory is filled with NaN.
    Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
    for (const char* list : {"sends to", "receives from", "elements"}) seen.numbers[list] = {};
    const auto watch = [&](const Tensor&, const Call& call) {
      const bool sends = call.kind == Collective::send;
      seen.numbers[sends ? "sends to" : "receives from"].push_back(call.peer);
      if (sends) seen.numbers["elements"].push_back(double(call.count));
      return [] {};
    };
    WatchedCommunicator watched(comm, memory, {Collective::send, Collective::receive}, watch);
    const Tensor values = Tensor::empty(memory, MemoryUse::gradient, {c.n()}),
                 scratch = Tensor::empty(memory, MemoryUse::communication,
                                         {(c.n() + c.ranks - 1) / c.ranks});
    kernel::upload<float>(c.values[size_t(comm.rank())], values);
    if (ring_checks::is_second_call(options))
      ring_all_reduce(watched, Tensor::zeros(memory, MemoryUse::gradient, {c.ranks}), scratch);
    const int64_t allocations = memory.allocations(), live = memory.ledger().live_total();
    memory.ledger().reset_peak();
    ring_all_reduce(watched, values, scratch);
    seen.put("memory",
             std::vector{memory.allocations() - allocations, memory.ledger().peak_total() - live});
    seen.put("result", kernel::download_floats(values));
    watched.finish();
  });
}

}  // namespace zl::exercises
