#include "tutorials/exercises/judge/measure.h"

#include "tensor/kernels.h"
#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/04_ddp/gradient_reducer.h"
#include "tutorials/exercises/judge/watched_communicator.h"

namespace zl::exercises {
namespace {

void run_rank(const DdpCase& c, Communicator& transport, Record& seen) {
  Memory memory({DeviceKind::cpu}, cpu_backend(), transport.events());
  std::vector<UnitGradient> units;
  for (size_t u = 0; u < c.sizes.size(); ++u)
    units.push_back(
        {c.unit_name(u) + " gradient", Tensor::zeros(memory, MemoryUse::gradient, {c.sizes[u]})});
  std::vector<ReduceCall> calls;
  ReduceCall now{};  // the loop's position in the run
  const WatchedCommunicator* watched = nullptr;
  const auto watch = [&](const Tensor& inout, const Call& call) {
    const auto same = [&](const UnitGradient& unit) { return unit.gradient.same_storage(inout); };
    const auto unit = std::ranges::find_if(units, same);
    now.unit = unit == units.end() ? -1 : unit - units.begin();
    now.count = call.count, now.group = watched->group();
    calls.push_back(now);
    return [&, number = calls.size() - 1] {
      require(watched->group() < 0, "wait() between begin_group() and end_group(): the calls of a ",
              "group begin with end_group(), so with NCCL this waits forever");
      if (calls[number].step == now.step) calls[number].waited = now.place;
    };
  };
  WatchedCommunicator comm(transport, memory, {Collective::all_reduce}, watch);
  watched = &comm;
  auto reducer = make_gradient_reducer(units, comm, c.bucket_size);
  const auto called = [&] {
    require(comm.group() < 0, "begin_group() without an end_group() after it");
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
  seen.put_rows("calls", calls);
}

}  // namespace

// Of each rank "gradient 1 2" of unit 2 after wait() in step 1, and its calls.
Record measure(const CheckOptions& options) {
  const DdpCase c = ddp_case(options);
  return run_on_ranks(c.ranks, [&](Communicator& comm, Record& seen) { run_rank(c, comm, seen); });
}

}  // namespace zl::exercises
