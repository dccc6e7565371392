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

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;
using Program = std::function<void(Rank&, const Tensor&)>;

// What ends a run of these ranks on a GPU each; "" if it ends well.
std::string run_of(int ranks, const std::function<void(Rank&)>& program,
                   std::vector<Fault> faults = {}, decltype(NcclApi::get_unique_id) id = {}) {
  const cuda_on_cpu::EmulatedMachine machine({.gpus = ranks});
  FakeNccl fake(std::move(faults), 22809, kEmulatedStreams);
  NcclApi api = fake.api();
  if (id) api.get_unique_id = id;
  try {
    run_nccl_ranks(ranks,
                   [&](Communicator& comm) {
                     RankBackends backends{cuda_on_cpu::make_gpu_backend(comm.rank()),
                                           cuda_on_cpu::make_pinned_backend()};
                     Rank rank(comm, {}, std::move(backends));
                     program(rank);
                     rank.memory.backend().synchronize();
                   },
                   within(20s), {.api = &api});
  } catch (const std::exception& error) {
    return error.what();
  }
  return fake.misuse();
}

// Two ranks. Rank 1 calls `first` before it gives NCCL its part of a call.
std::string run_with(const std::function<void()>& first, const Program& program) {
  return run_of(2, [&](Rank& rank) {
    const Tensor t = rank.filled(64, 1);
    rank.comm.barrier(kName).wait();
    if (rank.comm.rank() == 1)
      rank.comm.events().listen([&](const Event& event) {
        if (event.kind == EventKind::collective_met) first();
      });
    program(rank, t);
  });
}

// A call that needs the driver alone, until all GPUs are idle.
void allocate_more(Rank& rank) { (void)rank.empty(int64_t(16) << 20); }  // more than a segment

void multiply(Rank& rank) {
  const Tensor a = rank.empty(12).view({3, 4}), b = rank.empty(8).view({2, 4}),
               out = rank.empty(6).view({3, 2});
  kernel::matmul(a, Transpose::no, b, Transpose::yes, out);
}

// Rank 1 comes 100 ms late.
std::string late_rank(const Program& program) {
  return run_with([] { std::this_thread::sleep_for(100ms); }, program);
}

}  // namespace

TEST_CASE("a rank may allocate and launch new kernels while NCCL waits for another rank",
          "[nccl]") {
  require_emulator();
  const int what = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(what);
  CHECK(late_rank([&](Rank& rank, const Tensor& t) {
          Work work = rank.comm.all_gather(t, kName);
          if (what == 0) kernel::gelu(rank.empty(64), rank.empty(64));
          if (what == 1) allocate_more(rank);
          if (what == 2) (void)rank.filled(1000, 2);  // by way of new pinned memory
          if (what == 3) multiply(rank);              // cuBLAS loads a kernel for each shape
          work.wait();
          // The kernels that run behind this one are loaded before it.
          if (what == 4) rank.comm.all_reduce(t, Reduction::mean, kName).wait();
        }) == "");
}

TEST_CASE("a rank may allocate within a group of calls", "[nccl]") {
  require_emulator();
  CHECK(run_of(2, [](Rank& rank) {
          const Tensor t = rank.filled(64, 1);
          rank.comm.barrier(kName).wait();
          rank.comm.begin_group();
          Work work = rank.comm.all_gather(t, kName);
          if (rank.comm.rank() == 1) std::this_thread::sleep_for(50ms);
          if (rank.comm.rank() == 1) allocate_more(rank);
          rank.comm.end_group();
          work.wait();
        }) == "");
}

TEST_CASE("a rank may allocate while NCCL moves the data of a group of others", "[nccl]") {
  require_emulator();
  const auto program = [](Rank& rank) {
    const Tensor t = rank.filled(64, 1);
    const auto group = rank.comm.split({0, 0, 1}, "intra");
    if (rank.comm.rank() == 2) {
      std::this_thread::sleep_for(50ms);
      return allocate_more(rank);
    }
    group->all_gather(t, kName).wait();
  };
  const Fault rank_1_is_slow{"ncclGroupEnd", K::slow, 1, 0, NcclResult::success, "", 4000};
  CHECK(run_of(3, program, {rank_1_is_slow}) == "");
}

namespace {
thread_local bool late = false;
decltype(NcclApi::get_unique_id) id_of_fake;
}  // namespace

TEST_CASE("ranks may join a group while NCCL moves the data of another", "[nccl]") {
  require_emulator();
  id_of_fake = FakeNccl().api().get_unique_id;
  const auto program = [](Rank& rank) {
    const Tensor t = rank.filled(64, 1);
    late = rank.comm.rank() == 2;
    const auto group = rank.comm.split({0, 0, 1, 1}, "intra");
    group->all_gather(t, kName).wait();
  };
  const Fault rank_1_is_slow{"ncclGroupEnd", K::slow, 1, 0, NcclResult::success, "", 8000};
  CHECK(run_of(4, program, {rank_1_is_slow}, [](NcclUniqueId* id) {
          if (late) std::this_thread::sleep_for(100ms);
          return id_of_fake(id);
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
  const auto run = [&](int64_t count_of_rank_1) {
    return fake_outcome(2, {}, [&](Rank& rank) {
      rank.comm.compare_calls_only_on_timeout();
      const int64_t count = rank.comm.rank() == 1 ? count_of_rank_1 : 64;
      rank.comm.all_gather(rank.filled(count, 1), kName).wait();
    });
  };
  CHECK(run(64).thrown == "");
  CHECK_THAT(run(32).thrown, ContainsSubstring("rank 1 calls all_gather") &&
                                 ContainsSubstring("of 32 f32 elements"));
}

TEST_CASE(
    "NCCL is asked to connect its rings when ranks that are threads join, unless the user chose",
    "[nccl]") {
  constexpr const char* kVariable = "NCCL_RUNTIME_CONNECT";
  for (const std::string chosen : {"", "1"}) {
    unsetenv(kVariable);
    if (!chosen.empty()) setenv(kVariable, chosen.c_str(), 1);
    (void)fake_outcome(1, {}, [](Rank&) {});
    CHECK(std::string(std::getenv(kVariable)) == (chosen.empty() ? "0" : chosen));
    unsetenv(kVariable);
  }
}
