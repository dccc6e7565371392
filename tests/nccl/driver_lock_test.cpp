// Ranks of one process share CUDA's driver. A call that keeps its lock until the GPUs are idle must
// not come while a GPU waits for a rank that needs the driver.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <thread>

#include "tensor/kernels.h"
#include "tests/cuda/on_cpu/controls.h"
#include "tests/nccl/fake/fake_ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

using Program = std::function<void(Rank&, const Tensor&)>;

// What ends a run of two ranks on a GPU each; "" if it ends well. Rank 1 calls `first` before it
// gives NCCL its part of a call.
std::string run_with(const std::function<void()>& first, const Program& program) {
  const cuda_on_cpu::EmulatedMachine machine({});
  FakeNccl fake({}, 22809, Streams::emulated);
  const NcclApi api = fake.api();
  try {
    run_nccl_ranks(2,
                   [&](Communicator& comm) {
                     RankBackends backends{cuda_on_cpu::make_gpu_backend(comm.rank()),
                                           cuda_on_cpu::make_pinned_backend()};
                     Rank rank(comm, {}, std::move(backends));
                     const Tensor t = rank.filled(64, 1);
                     comm.barrier(kName).wait();
                     if (comm.rank() == 1)
                       comm.events().listen([&](const Event& event) {
                         if (event.kind == EventKind::collective_met) first();
                       });
                     program(rank, t);
                   },
                   within(std::chrono::seconds(20)), {.api = &api});
  } catch (const std::exception& error) {
    return error.what();
  }
  return fake.misuse();
}

// Rank 1 comes 100 ms late.
std::string late_rank(const Program& program) {
  return run_with([] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }, program);
}

}  // namespace

TEST_CASE("the kernels that run behind an operation of NCCL are loaded before it", "[nccl]") {
  require_emulator();
  CHECK(late_rank([](Rank& rank, const Tensor& t) {
          rank.comm.all_reduce(t, Reduction::mean, kName).wait();
          rank.memory.backend().synchronize();
        }) == "");
}

TEST_CASE("a rank may allocate and launch new kernels while NCCL waits for another rank",
          "[nccl]") {
  require_emulator();
  const int what = GENERATE(0, 1, 2);
  CAPTURE(what);
  CHECK(late_rank([&](Rank& rank, const Tensor& t) {
          Work work = rank.comm.all_gather(t, kName);
          if (what == 0) kernel::gelu(rank.empty(64), rank.empty(64));
          if (what == 1) (void)rank.empty(int64_t(16) << 20);  // more than a segment
          if (what == 2) (void)rank.filled(1000, 2);           // by way of new pinned memory
          work.wait();
          rank.memory.backend().synchronize();
        }) == "");
}

TEST_CASE("a rank that fails before it gives NCCL its part ends the ranks that have given theirs",
          "[nccl]") {
  require_emulator();
  const auto begin = std::chrono::steady_clock::now();
  const auto fails = [] { throw std::runtime_error("the listener has had enough"); };
  CHECK(run_with(fails, [](Rank& rank, const Tensor& t) {
          rank.comm.all_gather(t, kName).wait();
        }) == "the listener has had enough");
  CHECK(std::chrono::steady_clock::now() - begin <
        std::chrono::seconds(10));  // of 20, the deadline
}

TEST_CASE("ranks that are threads compare every call, also when a timeout would be enough",
          "[nccl]") {
  FakeNccl fake;
  const NcclApi api = fake.api();
  const auto run = [&](int64_t count_of_rank_1) {
    run_nccl_ranks(2,
                   [&](Communicator& comm) {
                     Rank rank(comm, {}, {});
                     comm.compare_calls_only_on_timeout();
                     const int64_t count = comm.rank() == 1 ? count_of_rank_1 : 64;
                     comm.all_gather(rank.filled(count, 1), kName).wait();
                   },
                   within(std::chrono::seconds(20)), {.api = &api});
  };
  CHECK_NOTHROW(run(64));
  CHECK_THROWS_WITH(run(32), Catch::Matchers::ContainsSubstring("rank 1 calls all_gather") &&
                                 Catch::Matchers::ContainsSubstring("of 32 f32 elements"));
}

TEST_CASE(
    "NCCL is asked to connect its rings when ranks that are threads join, unless the user chose",
    "[nccl]") {
  constexpr const char* kVariable = "NCCL_RUNTIME_CONNECT";
  const auto value_in_run = [&](const char* before) {
    if (before)
      setenv(kVariable, before, 1);
    else
      unsetenv(kVariable);
    FakeNccl fake;
    const NcclApi api = fake.api();
    run_nccl_ranks(1, [](Communicator&) {}, within(std::chrono::seconds(20)), {.api = &api});
    const std::string value = std::getenv(kVariable);
    unsetenv(kVariable);
    return value;
  };
  CHECK(value_in_run(nullptr) == "0");
  CHECK(value_in_run("1") == "1");
}
