// Collectives among ranks on one GPU, and on two that cannot reach each other.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

// One GPU for all, or every second rank on another. A real machine may have one only.
std::vector<int> some_gpus(bool two) {
  if (two && test_gpus().gpus.size() < 2) SKIP("this machine has one GPU");
  return two ? std::vector{0, 1} : std::vector{0};
}

}  // namespace

TEMPLATE_TEST_CASE("on GPUs every collective has the CPU's bits", "[cuda]", float, bf16, double, int32_t) {
  const int ranks = GENERATE(2, 3, 4);
  const bool two = GENERATE(false, true);
  CAPTURE(ranks, two);
  const auto where = on_test_gpus(some_gpus(two));
  const auto in = inputs<TestType>(ranks, ranks * 67);
  const Reduction reduction = std::is_same_v<TestType, int32_t> ? Reduction::sum : Reduction::mean;
  const std::function<void(Communicator&, const Tensor&)> calls[] = {
      [&](Communicator& comm, const Tensor& t) { comm.all_reduce(t, reduction, kName).wait(); },
      [&](Communicator& comm, const Tensor& t) {
        comm.reduce_scatter(t, reduction, kName).wait();
        comm.all_gather(t, kName).wait();
      },
      [&](Communicator& comm, const Tensor& t) { comm.all_gather(t, kName).wait(); },
      [&](Communicator& comm, const Tensor& t) { comm.broadcast(t, 1, kName).wait(); },
      [&](Communicator& comm, const Tensor& t) {
        const int n = comm.size(), r = comm.rank();
        Work receive = comm.receive(t.slice(0, {67}), (r + 1) % n, kName);
        comm.send(t.slice(67, {67}), (r + n - 1) % n, kName).wait();
        receive.wait();
        comm.barrier(kName).wait();
      }};
  for (const auto& call : calls) {
    const auto gpu = after<TestType>(in, call, where), cpu = after<TestType>(in, call, [](int) { return RankBackends{}; });
    for (size_t r = 0; r < gpu.size(); ++r) CHECK(same_bits(gpu[r], cpu[r]));
    CHECK_FALSE(same_bits(gpu[0], in[0]));
  }
}

TEST_CASE("on GPUs that cannot reach each other a sum of many pieces has the CPU's bits", "[cuda]") {
  const auto in = inputs<float>(2, 900'000);  // more than the staging memory holds at once
  const auto sum = [](Communicator& comm, const Tensor& t) { comm.all_reduce(t, Reduction::mean, kName).wait(); };
  const auto gpu = after<float>(in, sum, on_test_gpus(some_gpus(true)));
  const auto cpu = after<float>(in, sum, [](int) { return RankBackends{}; });
  CHECK(same_bits(gpu[0], cpu[0]));
  CHECK(same_bits(gpu[1], cpu[1]));
}

TEST_CASE("a rank that fails on a GPU leaves nothing that another still reads", "[cuda]") {
  require_gpu();
  const auto where = on_test_gpus();
  const Outcome result = outcome(3, [&](Communicator& comm) {
    Rank rank(comm, {}, where(comm.rank()));
    const Tensor t = rank.filled(1 << 16, float(comm.rank()));
    for (int call = 0; call < 20; ++call) {
      comm.all_reduce(t, Reduction::mean, kName).wait();
      if (comm.rank() == 1 && call == 7) throw std::runtime_error("rank 1 has had enough");
    }
  });
  CHECK(result.thrown == "rank 1 has had enough");
  CHECK(!result.told[0].empty());
  CHECK(!result.told[2].empty());
}

TEST_CASE("a Work that nobody waits for still keeps its buffers until all have moved", "[cuda]") {
  const auto where = on_test_gpus();
  const auto in = inputs<float>(3, 3 * 1000);
  const auto dropping = [](Communicator& comm, const Tensor& t) {
    { const Work dropped = comm.all_gather(t, kName); }
    kernel::add(t, t, t);
  };
  const auto gpu = after<float>(in, dropping, where), cpu = after<float>(in, dropping, [](int) { return RankBackends{}; });
  for (size_t r = 0; r < 3; ++r) CHECK(same_bits(gpu[r], cpu[r]));
}
