#include "tutorials/exercises/grader/measure.h"

#include <algorithm>
#include <chrono>

#include "dist/run_ranks.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"
#include "tutorials/exercises/grader/heap_count.h"

namespace zl::exercises {
namespace {

using namespace ring_checks;

// Sends and receives through `inner`, and notes them.
class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(Communicator& inner, std::vector<Message>& messages)
      : Communicator(inner.rank(), inner.size(), inner.events()),
        inner_(inner),
        messages_(messages) {}

 private:
  Work do_send(const Tensor& from, const Call& call) override {
    messages_.push_back({true, call.peer, call.count});
    return inner_.send(from, call.peer, {call.name, Purpose::gradient});
  }
  Work do_receive(const Tensor& to, const Call& call) override {
    messages_.push_back({false, call.peer, call.count});
    return inner_.receive(to, call.peer, {call.name, Purpose::gradient});
  }
  [[noreturn]] static Work refuse() {
    throw std::logic_error("ring_all_reduce may communicate by send and receive only");
  }
  Work do_all_reduce(const Tensor&, const Tensor&, const Call&) override { refuse(); }
  Work do_reduce_scatter(const Tensor&, const Tensor&, const Call&) override { refuse(); }
  Work do_all_gather(const Tensor&, const Call&) override { refuse(); }
  Work do_broadcast(const Tensor&, const Call&) override { refuse(); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call&) override { refuse(); }
  Work do_barrier(const Call&) override { refuse(); }
  std::vector<std::string> do_all_gather_object(const std::string&, const Call&) override {
    refuse();
  }

  Communicator& inner_;
  std::vector<Message>& messages_;
};

struct OfRank {
  std::vector<std::vector<double>> results;  // by call
  std::vector<Message> messages;             // of all calls, also if one fails
  int64_t allocations = 0, peak = 0;         // during the calls; [B] beyond values and scratch
  int64_t kept = 0;                          // [B] after the calls
  int64_t largest_on_heap = 0;               // [B] of one allocation of new or a container
};

void run_rank(Communicator& comm, const Case& c, OfRank& out) {
  // Fresh memory is filled with NaN.
  Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
  WatchedCommunicator watched(comm, out.messages);
  for (size_t call = 0; call < c.values.size(); ++call) {
    const int64_t n = c.n(call), N = c.ranks;
    const Tensor values = Tensor::empty(memory, MemoryUse::gradient, {n}),
                 scratch = Tensor::empty(memory, MemoryUse::communication, {(n + N - 1) / N});
    kernel::upload<float>(c.values[call][size_t(comm.rank())], values);
    const int64_t allocations = memory.allocations(), live = memory.ledger().live_total();
    memory.ledger().reset_peak();
    take_largest_allocation();
    ring_all_reduce(watched, values, scratch);
    out.largest_on_heap = std::max(out.largest_on_heap, take_largest_allocation());
    out.allocations += memory.allocations() - allocations;
    out.peak += memory.ledger().peak_total() - live;
    out.kept += memory.ledger().live_total() - live;
    const std::vector<float> result = kernel::download_floats(values);
    out.results.emplace_back(result.begin(), result.end());
  }
  watched.finish();
}

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const Case c = make_case(check, options);
  std::vector<OfRank> ranks(static_cast<size_t>(c.ranks));
  Record record;
  try {
    run_ranks(c.ranks, [&](Communicator& comm) { run_rank(comm, c, ranks[size_t(comm.rank())]); },
              {.timeout = std::chrono::seconds(3), .grace = std::chrono::seconds(2)});
  } catch (const CommunicationError& e) {
    record.texts["communication"] = e.what();
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t call = 0; call < ranks[r].results.size(); ++call)
      record.numbers[str("result ", call, " of ", r)] = ranks[r].results[call];
    record.numbers[str("messages of ", r)] = encoded(ranks[r].messages);
    record.numbers["allocations"].push_back(double(ranks[r].allocations));
    record.numbers["peak"].push_back(double(ranks[r].peak));
    record.numbers["kept"].push_back(double(ranks[r].kept));
    record.numbers["largest on heap"].push_back(double(ranks[r].largest_on_heap));
  }
  return record;
}

}  // namespace zl::exercises
