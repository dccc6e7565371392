#include "tutorials/exercises/judge/measure.h"

#include <chrono>

#include "dist/run_ranks.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h"
#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"

namespace zl::exercises {
namespace {

// What one rank did. memory: allocations, and the peak [B] beyond values and scratch.
struct OfRank {
  std::vector<std::vector<double>> results;  // by call
  std::vector<double> sent_to, sent, received_from, memory = {0, 0};
};

// Sends and receives through `inner`, and notes them.
class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(Communicator& inner, OfRank& out)
      : Communicator(inner.rank(), inner.size(), inner.events()), inner_(inner), out_(out) {}

 private:
  Work do_send(const Tensor& from, const Call& call) override {
    out_.sent_to.push_back(call.peer);
    out_.sent.push_back(double(call.count));
    return inner_.send(from, call.peer, {call.name, Purpose::gradient});
  }
  Work do_receive(const Tensor& to, const Call& call) override {
    out_.received_from.push_back(call.peer);
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
  OfRank& out_;
};

void run_rank(Communicator& comm, const ring_checks::RingCase& c, OfRank& out) {
  // Fresh memory is filled with NaN.
  Memory memory({}, cpu_backend(), comm.events(), {.poison = true});
  WatchedCommunicator watched(comm, out);
  for (size_t call = 0; call < c.values.size(); ++call) {
    const int64_t n = c.n(call), N = c.ranks;
    const Tensor values = Tensor::empty(memory, MemoryUse::gradient, {n}),
                 scratch = Tensor::empty(memory, MemoryUse::communication, {(n + N - 1) / N});
    kernel::upload<float>(c.values[call][size_t(comm.rank())], values);
    const int64_t allocations = memory.allocations(), live = memory.ledger().live_total();
    memory.ledger().reset_peak();
    ring_all_reduce(watched, values, scratch);
    out.memory[0] += double(memory.allocations() - allocations);
    out.memory[1] += double(memory.ledger().peak_total() - live);
    const std::vector<float> result = kernel::download_floats(values);
    out.results.emplace_back(result.begin(), result.end());
  }
  watched.finish();
}

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const ring_checks::RingCase c = ring_checks::make_case(check, options);
  std::vector<OfRank> ranks(static_cast<size_t>(c.ranks));
  Record record;
  try {
    run_ranks(c.ranks, [&](Communicator& comm) { run_rank(comm, c, ranks[size_t(comm.rank())]); },
              {.timeout = kRankTimeout, .grace = kRankGrace});
  } catch (const CommunicationError& e) {
    record.texts["communication"] = e.what();
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const OfRank& rank = ranks[r];
    for (size_t call = 0; call < rank.results.size(); ++call)
      record.numbers[str("result ", call, " of ", r)] = rank.results[call];
    record.numbers[str("sends of ", r)] = rank.sent_to;
    record.numbers[str("elements of ", r)] = rank.sent;
    record.numbers[str("receives of ", r)] = rank.received_from;
    record.numbers[str("memory of ", r)] = rank.memory;
  }
  return record;
}

}  // namespace zl::exercises
