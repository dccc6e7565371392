#include "tutorials/exercises/judge/measure.h"

#include "dist/run_ranks.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/04_ddp/gradient_reducer.h"
#include "tutorials/exercises/judge/late_communicator.h"

namespace zl::exercises {
namespace {

struct OfRank {
  std::vector<ReduceCall> calls;
  std::vector<std::vector<double>> gradients;  // after wait(), of each unit, in each step
  int64_t step = 0, micro_batch = 0, place = 0, group = -1, groups = 0;  // at present
};

class RecordingCommunicator final : public LateCommunicator {
 public:
  RecordingCommunicator(Communicator& transport, const Memory& memory,
                        const std::vector<UnitGradient>& units, OfRank& seen)
      : LateCommunicator(transport, memory, "all_reduce"), units_(units), seen_(seen) {}

  void begin_group() override { seen_.group = seen_.groups++; }
  void end_group() override { seen_.group = -1; }

 private:
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    int64_t unit = std::ssize(units_) - 1;
    while (unit >= 0 && !units_[size_t(unit)].gradient.same_storage(inout)) --unit;
    seen_.calls.push_back(
        {seen_.step, seen_.micro_batch, unit, call.count, seen_.place, seen_.group});
    const auto waited = [this, number = seen_.calls.size() - 1] {
      require(seen_.group < 0,
              "wait() between begin_group() and end_group(): the calls of a group ",
              "begin with end_group(), so with NCCL this waits forever");
      ReduceCall& made = seen_.calls[number];
      if (made.step == seen_.step) made.waited = seen_.place;
    };
    return and_then(LateCommunicator::do_all_reduce(inout, start, call), waited);
  }

  Work do_reduce_scatter(const Tensor&, const Tensor&, const Call& call) override { refuse(call); }
  Work do_all_gather(const Tensor&, const Call& call) override { refuse(call); }

  const std::vector<UnitGradient>& units_;
  OfRank& seen_;
};

void run_rank(const DdpCase& c, Communicator& transport, OfRank& seen) {
  Memory memory({DeviceKind::cpu}, cpu_backend(), transport.events());
  std::vector<UnitGradient> units;
  for (size_t u = 0; u < c.sizes.size(); ++u)
    units.push_back(
        {c.unit_name(u) + " gradient", Tensor::zeros(memory, MemoryUse::gradient, {c.sizes[u]})});
  RecordingCommunicator comm(transport, memory, units, seen);
  auto reducer = make_gradient_reducer(units, comm, c.bucket_size);
  const auto called = [&] {
    require(seen.group < 0, "begin_group() without an end_group() after it");
    ++seen.place;
  };
  for (; seen.step < std::ssize(c.ready); ++seen.step) {
    const auto& passes = c.ready[size_t(seen.step)];
    for (size_t m = 0; m < passes.size(); ++m) {
      const bool last = m + 1 == passes.size();
      seen.micro_batch = int64_t(m), seen.place = 0;
      for (const size_t u : passes[m]) {
        for (int64_t i = 0; float& x : units[u].gradient.data<float>())
          x += c.gradient(comm.rank(), size_t(seen.step), m, u, i++);
        reducer->gradient_ready(u, last);
        called();
      }
      reducer->backward_done(last);
      called();
    }
    reducer->wait();
    called();
    for (const UnitGradient& u : units) {
      const std::span<float> values = u.gradient.data<float>();
      seen.gradients.emplace_back(values.begin(), values.end());
      kernel::fill(0, u.gradient);
    }
  }
  reducer.reset();
  comm.finish();
}

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const DdpCase c = ddp_case(check, options);
  std::vector<OfRank> ranks(size_t(c.ranks));
  Record record;
  try {
    run_ranks(c.ranks, [&](Communicator& comm) { run_rank(c, comm, ranks[size_t(comm.rank())]); },
              {.timeout = kRankTimeout, .grace = kRankGrace});
  } catch (const CommunicationError& e) {
    record.texts["communication"] = e.what();
  }
  for (const auto& [step, micro_batch, unit, count, place, group, waited] : ranks[0].calls)
    for (const int64_t number : {step, micro_batch, unit, count, place, group, waited})
      record.numbers["calls"].push_back(double(number));
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t i = 0; i < ranks[r].gradients.size(); ++i)
      record.numbers[str("gradient ", r, " ", i)] = ranks[r].gradients[i];
  return record;
}

}  // namespace zl::exercises
