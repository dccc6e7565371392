#include "tutorials/exercises/judge/measure.h"

#include "tensor/kernels.h"
#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/04_ddp/gradient_reducer.h"
#include "tutorials/exercises/judge/late_communicator.h"

namespace zl::exercises {
namespace {

// The loop's position in the run, and what the rank has called so far.
struct Position {
  std::vector<ReduceCall> calls;
  int64_t step = 0, micro_batch = 0, place = 0, group = -1, groups = 0;
};

class RecordingCommunicator final : public LateCommunicator {
 public:
  RecordingCommunicator(Communicator& transport, const Memory& memory,
                        const std::vector<UnitGradient>& units, Position& now)
      : LateCommunicator(transport, memory, "all_reduce"), units_(units), now_(now) {}

  void begin_group() override { now_.group = now_.groups++; }
  void end_group() override { now_.group = -1; }

 private:
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    int64_t unit = std::ssize(units_) - 1;
    while (unit >= 0 && !units_[size_t(unit)].gradient.same_storage(inout)) --unit;
    now_.calls.push_back({now_.step, now_.micro_batch, unit, call.count, now_.place, now_.group});
    const auto waited = [this, number = now_.calls.size() - 1] {
      require(now_.group < 0, "wait() between begin_group() and end_group(): the calls of a group ",
              "begin with end_group(), so with NCCL this waits forever");
      ReduceCall& made = now_.calls[number];
      if (made.step == now_.step) made.waited = now_.place;
    };
    return and_then(LateCommunicator::do_all_reduce(inout, start, call), waited);
  }

  Work do_reduce_scatter(const Tensor&, const Tensor&, const Call& call) override { refuse(call); }
  Work do_all_gather(const Tensor&, const Call& call) override { refuse(call); }

  const std::vector<UnitGradient>& units_;
  Position& now_;
};

void run_rank(const DdpCase& c, Communicator& transport, Record& seen) {
  Memory memory({DeviceKind::cpu}, cpu_backend(), transport.events());
  std::vector<UnitGradient> units;
  for (size_t u = 0; u < c.sizes.size(); ++u)
    units.push_back(
        {c.unit_name(u) + " gradient", Tensor::zeros(memory, MemoryUse::gradient, {c.sizes[u]})});
  Position now;
  RecordingCommunicator comm(transport, memory, units, now);
  auto reducer = make_gradient_reducer(units, comm, c.bucket_size);
  const auto called = [&] {
    require(now.group < 0, "begin_group() without an end_group() after it");
    ++now.place;
  };
  for (; now.step < std::ssize(c.ready); ++now.step) {
    const auto& passes = c.ready[size_t(now.step)];
    for (size_t m = 0; m < passes.size(); ++m) {
      const bool last = m + 1 == passes.size();
      now.micro_batch = int64_t(m), now.place = 0;
      for (const size_t u : passes[m]) {
        for (int64_t i = 0; float& x : units[u].gradient.data<float>())
          x += c.gradient(comm.rank(), size_t(now.step), m, u, i++);
        reducer->gradient_ready(u, last);
        called();
      }
      reducer->backward_done(last);
      called();
    }
    reducer->wait();
    called();
    for (size_t u = 0; u < units.size(); ++u) {
      seen.put(str("gradient ", now.step, " ", u), units[u].gradient.data<float>());
      kernel::fill(0, units[u].gradient);
    }
  }
  reducer.reset();
  comm.finish();
  seen.put_rows("calls", now.calls);
}

}  // namespace

// Of each rank "gradient 1 2" of unit 2 after wait() in step 1, and its calls.
Record measure(const std::string& check, const CheckOptions& options) {
  const DdpCase c = ddp_case(check, options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) { run_rank(c, comm, seen); });
}

}  // namespace zl::exercises
