// Ranks that are processes: the bits of threads, the errors of threads, and nothing left behind.
#include "tests/nccl/processes/process_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

// Each rank's process also makes the run among threads, and says what differs.
std::vector<ProcessEnd> compare_with_threads(const ProcessRanks& run, StageRunSpec spec) {
  return run_processes(
      run.size,
      [=](int child, const Processes::Say& say) {
        FakeNccl fake(run.faults, run.deaths);
        const NcclApi api = fake.api();
        StageRunSpec processes = spec;
        processes.run = [&](int, const std::function<void(Communicator&)>& body,
                            RankOptions options) { start_rank(run, child, api, body, options); };
        const StageRun here = run_stage(processes), threads = run_stage(spec);
        if (child == 0) {  // rank 0 has the reports of all ranks
          if (!here.same_bits(threads)) say("other bits; ");
          for (size_t r = 0; r < size_t(run.size); ++r) {
            if (here.logs.at(r).rows() != threads.logs.at(r).rows()) say("another traffic; ");
            if (here.ledgers.at(r).peak(MemoryUse::gradient) !=
                threads.ledgers.at(r).peak(MemoryUse::gradient))
              say("other bytes; ");
          }
        }
        if (here.live_at_end.at(size_t(child)) != 0) say("bytes are left; ");
        say(fake.misuse());
        return 0;
      },
      60s);
}

std::string said(const std::vector<ProcessEnd>& ends) {
  std::string text;
  for (const ProcessEnd& end : ends)
    text += end.said + (end.code == 0 ? "" : str(" [", describe(end), "]"));
  return text;
}

}  // namespace

TEST_CASE("the four stages on processes have the bits and the traffic of threads", "[nccl]") {
  require_forks();
  const int ranks = GENERATE(1, 2, 3);
  for (const StageKind stage : kStages) {
    CAPTURE(ranks, name(stage));
    StageRunSpec spec{.stage = stage,
                      .ranks = ranks,
                      .micro_batches = 2,
                      .model = {.block_twice = true, .unused_parameter = true}};
    spec.options.precision = ranks == 3 ? Dtype::bf16 : Dtype::f32;
    const ProcessRanks run{.size = ranks};
    CHECK(said(compare_with_threads(run, spec)) == "");
    spec.after_step = [](Stage&, OddModel&, Communicator& comm, Memory&) {
      comm.compare_calls_only_on_timeout();
    };
    CHECK(said(compare_with_threads(run, spec)) == "");
    CHECK(left_no_port(run));
  }
  const ProcessRanks unordered{.size = 3, .ordered = false};
  CHECK_THAT(said(compare_with_threads(unordered, {.stage = StageKind::zero2, .ranks = 3})),
             ContainsSubstring("other bits"));
}

TEST_CASE("processes on two machines have the bits and the traffic of threads", "[nccl]") {
  require_forks();
  for (const StageKind stage : {StageKind::ddp, StageKind::zero3}) {
    CAPTURE(name(stage));
    const ProcessRanks run{.size = 6, .per_machine = 3};
    StageRunSpec spec{.stage = stage, .ranks = 6, .steps = 2};
    spec.options.precision = Dtype::bf16;
    CHECK(said(compare_with_threads(run, spec)) == "");
  }
}

TEST_CASE("what one process runs out of, all say, and end as one that did", "[nccl]") {
  require_forks();
  for (const int poor : {0, 2}) {
    const auto ends = run_as_processes({.size = 3}, [&](Communicator& comm, const Processes::Say&) {
      Rank rank(comm);
      const Tensor t = rank.filled(30, 1);
      comm.all_gather(t, {"first", Purpose::parameter}).wait();
      if (comm.rank() == poor) rank.memory.fail_at(1);
      const Tensor more = rank.filled(30, 1);
      comm.all_gather(more, {"second", Purpose::parameter}).wait();
    });
    for (const ProcessEnd& end : ends) {
      CHECK(end.code == kOutOfMemory);
      CHECK_THAT(end.said, ContainsSubstring(str("rank ", poor)));
    }
  }
}

TEST_CASE("a process that ends its work early is found by those that go on, at once", "[nccl]") {
  require_forks();
  const bool only_on_timeout = GENERATE(false, true);
  const auto ends =
      run_as_processes({.size = 3, .timeout = 20s}, [&](Communicator& comm, const Processes::Say&) {
        Rank rank(comm);
        const Tensor t = rank.filled(30, 1);
        if (only_on_timeout) comm.compare_calls_only_on_timeout();
        for (int i = 0; i < (comm.rank() == 2 ? 3 : 5); ++i)
          comm.all_gather(t, {"weights", Purpose::parameter}).wait();
      });
  for (const ProcessEnd& end : ends) {
    CAPTURE(only_on_timeout, describe(end));
    CHECK(end.code == kCommunication);
    CHECK(end.after < 15s);
    CHECK_THAT(end.said, ContainsSubstring("rank 2 calls barrier 'leaving NCCL' (call 4)"));
  }
}

namespace {

// What the only rank of a run says at its end; its parent is a launcher that may end before it.
std::string end_of_rank(bool launcher_ends) {
  int ends[2];
  require(pipe(ends) == 0, "no pipe");
  const pid_t launcher = fork();
  if (launcher == 0) {
    const pid_t child = fork();
    if (child != 0) {
      if (launcher_ends) std::this_thread::sleep_for(300ms);
      if (!launcher_ends) (void)waitpid(child, nullptr, 0);
      _exit(0);
    }
    FakeNccl fake({}, Deaths::noticed);
    const NcclApi api = fake.api();
    std::string text = "all steps done";
    const auto steps = [](Communicator& comm) {
      for (int i = 0; i < 100; ++i) {
        comm.barrier({"step", Purpose::check}).wait();
        std::this_thread::sleep_for(10ms);
      }
    };
    try {
      const LaunchedRank alone{.port = free_ports(), .run = "test", .launcher = "mpirun"};
      run_process_rank(alone, steps, {}, nccl_transport(alone, {}, {.api = &api}), {});
    } catch (const CommunicationError& error) {
      text = error.what();
    }
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  close(ends[1]);
  std::string text(4096, ' ');
  text.resize(size_t(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0)));
  close(ends[0]);
  (void)waitpid(launcher, nullptr, 0);
  return text;
}

}  // namespace

TEST_CASE("a rank ends when its launcher has ended without ending it", "[nccl]") {
  require_forks();
  CHECK_THAT(end_of_rank(true), ContainsSubstring("the launcher of rank 0 (mpirun) has ended"));
  CHECK(end_of_rank(false) == "all steps done");
}
