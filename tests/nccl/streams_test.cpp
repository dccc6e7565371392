// The order between NCCL's stream and the compute stream, on emulated GPUs, which delay whatever is
// not waited for.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

using Program = std::function<void(Communicator&, const Tensor&)>;

// Kernels on both sides of a call, without waiting for them. Each rank adds other values, so that
// the order matters.
Program between_kernels(const Program& call) {
  return [call](Communicator& comm, const Tensor& t) {
    const Tensor own = activation_like(t, {t.numel()});
    kernel::fill(comm.rank() + 0.25, own);
    kernel::add(t, own, t);
    call(comm, t);
    kernel::add(t, own, t);
  };
}

const Program kCalls[] = {
    [](Communicator& comm, const Tensor& t) { comm.all_reduce(t, Reduction::mean, kName).wait(); },
    [](Communicator& comm, const Tensor& t) {
      Work scattered = comm.reduce_scatter(t, Reduction::sum, kName),
           gathered = comm.all_gather(t, kName);
      scattered.wait();
      gathered.wait();
    },
    [](Communicator& comm, const Tensor& t) { comm.broadcast(t, 1, kName).wait(); },
    [](Communicator& comm, const Tensor& t) {
      const int other = (comm.rank() + 1) % 2;
      const int64_t half = t.numel() / 2;
      // A third rank must not allocate memory meanwhile, nor free any.
      comm.barrier(kName).wait();
      if (comm.rank() < 2) {
        Work sent = comm.send(t.slice(0, {half}), other, kName);
        comm.receive(t.slice(half, {half}), other, kName).wait();
        sent.wait();
      }
      comm.barrier(kName).wait();
    }};

}  // namespace

TEST_CASE("NCCL's stream waits for the compute stream, and the compute stream waits for it",
          "[nccl]") {
  require_emulator();
  const int ranks = GENERATE(2, 3);
  const bool ordered = GENERATE(true, false);
  for (size_t i = 0; i < std::size(kCalls); ++i) {
    CAPTURE(ranks, ordered, i);
    if (!ordered && i < 2 && ranks > 2) continue;  // other bits
    const auto in = inputs<float>(ranks, ranks * 66);
    const auto nccl =
        after_nccl<float>(in, between_kernels(kCalls[i]), {.ordered = ordered, .emulated = true});
    const auto cpu =
        after<float>(in, between_kernels(kCalls[i]), [](int) { return RankBackends{}; });
    for (size_t r = 0; r < in.size(); ++r) CHECK(same_bits(nccl[r], cpu[r]));
  }
}
