#include "tutorials/exercises/grader/measure.h"

#include <chrono>

#include "dist/run_ranks.h"
#include "tensor/backend.h"
#include "tutorials/exercises/04_ddp/recording_communicator.h"

namespace zl::exercises {
namespace {

struct RankRecord {
  std::vector<DdpEvent> events;
  std::vector<std::vector<double>> values;  // by step: the gradients of all units after wait()
};

void add_gradients(const DdpCase& c, const std::vector<UnitGradient>& units, RankRecord& record,
                   GradientReducer& reducer, int rank, size_t step) {
  const auto& passes = c.ready[step];
  for (size_t m = 0; m < passes.size(); ++m) {
    const bool last = m + 1 == passes.size();
    for (const size_t u : passes[m]) {
      const std::span<float> values = units[u].gradient.data<float>();
      for (size_t i = 0; i < values.size(); ++i)
        values[i] += c.gradient(rank, step, m, u, int64_t(i));
      record.events.push_back({DdpEvent::gradient_ready, int64_t(u), int64_t(m)});
      reducer.gradient_ready(u, last);
    }
    record.events.push_back({DdpEvent::backward_done, 0, int64_t(m)});
    reducer.backward_done(last);
  }
}

void run_rank(const DdpCase& c, Communicator& transport, RankRecord& record) {
  EventStream events(transport.rank());
  Memory memory({DeviceKind::cpu}, cpu_backend(), events);
  std::vector<UnitGradient> units;
  for (size_t u = 0; u < c.sizes.size(); ++u) {
    units.emplace_back();
    units.back().name = c.unit_name(u) + " gradient";
    units.back().gradient = Tensor::zeros(memory, MemoryUse::gradient, {c.sizes[u]});
  }
  RecordingCommunicator comm(transport, events, units, record.events);
  {
    const auto reducer = make_gradient_reducer(units, comm, c.bucket_size);
    for (size_t step = 0; step < c.ready.size(); ++step) {
      add_gradients(c, units, record, *reducer, transport.rank(), step);
      record.events.push_back({DdpEvent::wait});
      reducer->wait();
      record.events.push_back({DdpEvent::update});
      std::vector<double>& values = record.values.emplace_back();
      for (const UnitGradient& u : units) {
        for (const float x : u.gradient.data<float>()) values.push_back(double(x));
        kernel::fill(0, u.gradient);
      }
    }
  }
  comm.finish();
}

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const DdpCase c = ddp_case(check, options.seed);
  std::vector<RankRecord> ranks(size_t(c.ranks));
  Record record;
  RankOptions limits;
  limits.timeout = std::chrono::seconds(3);
  try {
    run_ranks(
        c.ranks, [&](Communicator& comm) { run_rank(c, comm, ranks[size_t(comm.rank())]); },
        limits);
  } catch (const CommunicationError& e) {
    record.texts["communication"] = e.what();
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    record.numbers[str("events ", r)] = encode(ranks[r].events);
    for (size_t step = 0; step < ranks[r].values.size(); ++step)
      record.numbers[str("values ", r, " ", step)] = ranks[r].values[step];
  }
  return record;
}

}  // namespace zl::exercises
