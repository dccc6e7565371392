// Collectives among ranks on one GPU, and on two without peer access.
#include "tests/dist/ranks.h"

#include <atomic>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"

using namespace zl;
using namespace zl::test;

namespace {

// One GPU for all ranks, or another one for every second rank. A real machine may have only one.
std::vector<int> some_gpus(bool two) {
  if (two && test_gpus().gpus.size() < 2) SKIP("this machine has one GPU");
  return two ? std::vector{0, 1} : std::vector{0};
}

}  // namespace

TEMPLATE_TEST_CASE("on GPUs every collective has the CPU's bits", "[cuda]", float, bf16, double,
                   int32_t) {
  const auto [ranks, two] = GENERATE(std::pair{2, true}, std::pair{3, false}, std::pair{4, true});
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
    const auto gpu = after<TestType>(in, call, where),
               cpu = after<TestType>(in, call, [](int) { return RankBackends{}; });
    for (size_t r = 0; r < gpu.size(); ++r) CHECK(same_bits(gpu[r], cpu[r]));
    CHECK_FALSE(same_bits(gpu[0], in[0]));
  }
}

TEST_CASE("on GPUs without peer access a sum of many pieces has the CPU's bits", "[cuda]") {
  const auto in = inputs<float>(2, 900'000);  // more than the staging memory holds at once
  const auto sum = [](Communicator& comm, const Tensor& t) {
    comm.all_reduce(t, Reduction::mean, kName).wait();
  };
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
  CHECK(!result.errors[0].empty());
  CHECK(!result.errors[2].empty());
}

TEST_CASE("a Work that is dropped keeps its buffers until all have moved, and fails the run",
          "[cuda]") {
  const auto where = on_test_gpus();
  const auto in = inputs<float>(3, 3 * 1000);
  const auto dropping = [](Communicator& comm, const Tensor& t) {
    { const Work dropped = comm.all_gather(t, kName); }
    kernel::add(t, t, t);
  };
  const auto waiting = [](Communicator& comm, const Tensor& t) {
    comm.all_gather(t, kName).wait();
    kernel::add(t, t, t);
  };
  std::vector<std::vector<float>> gpu(3);
  const Outcome result = outcome(3, [&](Communicator& comm) {
    Rank rank(comm, {}, where(comm.rank()));
    const Tensor t = rank.tensor(in[size_t(comm.rank())]);
    dropping(comm, t);
    gpu[size_t(comm.rank())] = contents<float>(t);
  });
  CHECK(result.thrown.find("dropped the Work of all_gather") != std::string::npos);
  const auto cpu = after<float>(in, waiting, [](int) { return RankBackends{}; });
  for (size_t r = 0; r < 3; ++r) CHECK(same_bits(gpu[r], cpu[r]));
}

TEST_CASE("a send and a receive follow the earlier kernels of both ranks on their buffers",
          "[cuda]") {
  const int late = GENERATE(0, 1),
            first = GENERATE(
                0, 1);  // the rank that comes second and copies; the GPU that is synchronized first
  CAPTURE(late, first);
  const auto where = on_test_gpus();
  std::atomic<int> posted{0}, done{0};
  std::vector<float> received, read;
  run_ranks(
      2,
      [&](Communicator& comm) {
        const int me = comm.rank();
        Rank rank(comm, {}, where(me));
        const Tensor t = rank.empty(1000), twice = rank.empty(1000);
        kernel::fill(me == 0 ? 5 : 1, t);
        kernel::add(t, t, twice);
        if (me == late) posted.wait(0);
        Work work = me == 0 ? comm.send(t, 1, kName) : comm.receive(t, 0, kName);
        if (me != late) posted = 1, posted.notify_all();
        work.wait();
        if (me != first) done.wait(0);
        rank.memory.backend().synchronize();
        if (me == first) done = 1, done.notify_all();
        if (me == 1) received = contents<float>(t), read = contents<float>(twice);
      },
      within(std::chrono::seconds(20)));
  CHECK(received == std::vector<float>(1000, 5));
  CHECK(read == std::vector<float>(1000, 2));
}

TEST_CASE("a sum follows the earlier kernels of all ranks on their buffers", "[cuda]") {
  const int first = GENERATE(0, 1, 2);  // the rank that synchronizes first
  CAPTURE(first);
  const auto where = on_test_gpus();
  std::atomic<int> done{0};
  std::vector<std::vector<float>> sums(3);
  run_ranks(
      3,
      [&](Communicator& comm) {
        const int me = comm.rank();
        Rank rank(comm, {}, where(me));
        const Tensor t = rank.empty(1000);
        kernel::fill(me + 1, t);
        comm.all_reduce(t, Reduction::sum, kName).wait();
        if (me != first) done.wait(0);
        rank.memory.backend().synchronize();
        if (me == first) done = 1, done.notify_all();
        sums[size_t(me)] = contents<float>(t);
      },
      within(std::chrono::seconds(20)));
  for (const auto& sum : sums) CHECK(sum == std::vector<float>(1000, 1 + 2 + 3));
}

TEST_CASE("a send that is dropped after the other side came still sends what was in its buffer",
          "[cuda]") {
  const auto where = on_test_gpus();
  std::atomic<int> came{0};
  std::vector<float> received;
  const Outcome result = outcome(
      2,
      [&](Communicator& comm) {
        Rank rank(comm, {}, where(comm.rank()));
        if (comm.rank() == 0) {
          {
            const Tensor t = rank.filled(1000, 5);
            const Work dropped = comm.send(t, 1, kName);
            came.wait(0);
          }
          const Tensor next = rank.empty(1000);  // of the same memory
          kernel::fill(7, next);
          rank.memory.backend().synchronize();
        } else {
          const Tensor t = rank.filled(1000, 1);
          comm.receive(t, 0, kName).wait();
          came = 1, came.notify_all();
          received = contents<float>(t);
        }
      },
      std::chrono::seconds(20));
  CHECK(result.thrown.find("dropped the Work of send") != std::string::npos);
  CHECK(received == std::vector<float>(1000, 5));
}

TEST_CASE("a Work that outlives its run and its GPU holds no tensor and no stream of them",
          "[cuda]") {
  const bool sends = GENERATE(false, true);
  CAPTURE(sends);
  const auto where = on_test_gpus();
  const OutlivingWork left =
      outliving_work(sends, within(std::chrono::seconds(20)), [&where] { return where(0); });
  CHECK(left.thrown.find("rank 0 dropped the Work of") != std::string::npos);
  CHECK(left.live == 0);
  CHECK(left.refusal.find("whose run") != std::string::npos);
}

TEST_CASE("a tensor that dies before its Work is waited for is read first", "[cuda]") {
  const auto where = on_test_gpus();
  std::vector<float> received;
  run_ranks(
      2,
      [&](Communicator& comm) {
        Rank rank(comm, {}, where(comm.rank()));
        if (comm.rank() == 0) {
          Work work;
          {
            const Tensor t = rank.filled(1000, 5);
            work = comm.broadcast(t, 0, kName);
          }
          kernel::fill(7, rank.empty(1000));
          rank.memory.backend().synchronize();
          work.wait();
        } else {
          const Tensor t = rank.filled(1000, 1);
          comm.broadcast(t, 0, kName).wait();
          received = contents<float>(t);
        }
      },
      within(std::chrono::seconds(20)));
  CHECK(received == std::vector<float>(1000, 5));
}

TEST_CASE("if a rank's listener throws in a collective, the other ranks still get its values",
          "[cuda]") {
  const auto where = on_test_gpus();
  std::vector<float> received;
  const Outcome result = outcome(2, [&](Communicator& comm) {
    Rank rank(comm, {}, where(comm.rank()));
    if (comm.rank() == 0) {
      comm.events().listen([](const Event& event) {
        if (event.kind == EventKind::collective_met)
          throw std::runtime_error("the listener has had enough");
      });
      try {
        comm.broadcast(rank.filled(1000, 5), 0, kName).wait();
      } catch (const std::runtime_error&) {
        kernel::fill(7, rank.empty(1000));  // of the same memory
        rank.memory.backend().synchronize();
        throw;
      }
    } else {
      const Tensor t = rank.filled(1000, 1);
      comm.broadcast(t, 0, kName).wait();
      received = contents<float>(t);
    }
  });
  CHECK(result.thrown == "the listener has had enough");
  CHECK(received == std::vector<float>(1000, 5));
}
