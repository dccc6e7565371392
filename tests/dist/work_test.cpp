// Every Work must be waited for, several may be in flight, and a Work that is lost is an error.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <stdexcept>

#include "dist/ordered/meta_communicator.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a Work that is dropped makes the next call throw", "[dist]") {
  const bool lane = GENERATE(false, true);
  const auto body = [](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1);
    if (comm.rank() == 0) {
      { const Work dropped = comm.all_reduce(t, Reduction::sum, {"lost", Purpose::norm}); }
    } else {
      comm.all_reduce(t, Reduction::sum, {"lost", Purpose::norm}).wait();
    }
    comm.barrier(kName).wait();
  };
  const auto result = outcome(2, body, lane ? lanes() : within(20s));
  CHECK(result.thrown ==
        "rank 0 dropped the Work of all_reduce 'lost' of 8 f32 elements (call 1); call wait() on "
        "it");
  CHECK_THAT(result.errors[1], ContainsSubstring("rank 0 stopped: rank 0 dropped the Work"));
}

TEST_CASE("a Work that is dropped in the last call makes the run throw", "[dist]") {
  const bool lane = GENERATE(false, true), kept = GENERATE(false, true);  // beyond the body
  std::vector<Work> works(3);
  const auto body = [&](Communicator& comm) {
    Rank rank(comm);
    Work work = comm.broadcast(rank.filled(8, 1), 0, {"last", Purpose::check});
    if (comm.rank() != 1)
      work.wait();
    else if (kept)
      works[1] = std::move(work);
  };
  const auto result = outcome(3, body, lane ? lanes() : within(20s));
  CHECK_THAT(result.thrown, ContainsSubstring("rank 1 dropped the Work of broadcast 'last'"));
}

// The Work is complete or posted, or a lane has it; tests/cuda/ranks_test.cpp: or a stream.
TEST_CASE("a Work that outlives its run holds no tensor of it, and refuses to be waited for",
          "[dist]") {
  const bool sends = GENERATE(false, true), lane = GENERATE(false, true);
  CAPTURE(sends, lane);
  const OutlivingWork left = outliving_work(sends, lane ? lanes() : within(20s));
  CHECK_THAT(left.thrown, ContainsSubstring("rank 0 dropped the Work of"));
  CHECK(left.live == 0);
  CHECK_THAT(left.refusal, ContainsSubstring("whose run"));
}

TEST_CASE("a Work cannot be waited for after the memory of its tensors", "[dist]") {
  const bool lane = GENERATE(false, true);
  CAPTURE(lane);
  const auto result = outcome(
      2,
      [](Communicator& comm) {
        if (comm.rank() != 0) return;
        Work work;
        {
          Rank rank(comm);
          work = comm.send(rank.filled(8, 1), 1, kName);
        }
        work.wait();
      },
      lane ? lanes() : within(20s));
  CHECK_THAT(result.errors[0], ContainsSubstring("memory of its tensors"));
}

TEST_CASE("a Work that is waited for is no error, moved or not", "[dist]") {  // the twin of these
  const auto result = outcome(2, [](Communicator& comm) {
    Rank rank(comm);
    Work work = comm.all_reduce(rank.filled(8, 1), Reduction::sum, kName);
    Work moved = std::move(work);
    work = Work();
    moved.wait();
    moved.wait();
    moved = comm.barrier(kName);
    moved.wait();
  });
  CHECK(result.thrown == "");
}

TEST_CASE("a Work may be dropped while an exception unwinds the stack", "[dist]") {
  const auto result = outcome(2, [](Communicator& comm) {
    Rank rank(comm);
    const Work work = comm.all_reduce(rank.filled(8, 1), Reduction::sum, kName);
    throw std::out_of_range("it broke");
  });
  CHECK(result.thrown == "it broke");
}

TEST_CASE("overwriting a pending Work throws", "[dist]") {
  const auto result = outcome(2, [](Communicator& comm) {
    Rank rank(comm);
    const Tensor t = rank.filled(8, 1);
    Work work = comm.all_gather(t, kName);
    work = comm.all_gather(t, kName);
  });
  CHECK_THAT(result.thrown, ContainsSubstring("a pending Work is overwritten"));
}

TEST_CASE("a dropped Work is an error in a dry run too", "[dist]") {
  EventStream events;
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  const bool scratch = GENERATE(false, true);
  const auto comm = meta_communicator(0, 2, events, scratch);
  const Tensor t = Tensor::empty(memory, MemoryUse::gradient, {8}, Dtype::f32);
  { const Work dropped = comm->all_reduce(t, Reduction::sum, kName); }
  CHECK(memory.ledger().live(MemoryUse::communication) == 0);
  CHECK_THROWS_AS(comm->barrier(kName), CommunicationError);
}

TEST_CASE("several reductions may be in flight, and each has its own times", "[dist]") {
  const bool reversed = GENERATE(false, true);
  EventStream events;
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  const auto comm = meta_communicator(1, 3, events, true);
  const Tensor a = Tensor::empty(memory, MemoryUse::gradient, {30}, Dtype::f32),
               b = Tensor::empty(memory, MemoryUse::gradient, {60}, Dtype::f32);
  std::vector<Event> seen;
  events.listen([&](const Event& event) {
    if (event.kind >= EventKind::collective_begin) seen.push_back(event);
  });
  Work first = comm->all_reduce(a, Reduction::sum, {"a", Purpose::gradient}),
       second = comm->reduce_scatter(b, Reduction::sum, {"b", Purpose::gradient});
  CHECK(memory.ledger().live(MemoryUse::communication) ==
        comm->reduction_scratch_bytes(30, Dtype::f32) +
            comm->reduction_scratch_bytes(60, Dtype::f32));
  (reversed ? second : first).wait();
  (reversed ? first : second).wait();
  CHECK(memory.ledger().live(MemoryUse::communication) == 0);
  comm->finish();
  const auto time_of = [&](EventKind kind, const std::string& name) {
    for (const Event& event : seen)
      if (event.kind == kind && event.detail == name) return event.nanoseconds;
    return int64_t(-1);
  };
  for (const auto& [kind, name] :
       {std::pair(Collective::all_reduce, "a"), std::pair(Collective::reduce_scatter, "b")}) {
    const TimeSpent time = comm->log().times().at(kind);
    const int64_t began = time_of(EventKind::collective_begin, name);
    CHECK(time.calls == 1);
    CHECK(time.nanoseconds == time_of(EventKind::collective_end, name) - began);
    CHECK(time.waited == time_of(EventKind::collective_met, name) - began);
  }
  CHECK(std::string(seen.back().detail) == (reversed ? "a" : "b"));
}

namespace {

// For the process that the next case forks: it has memory for a few threads' stacks.
int run_with_few_threads(bool lane) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = rlim_t(pages * sysconf(_SC_PAGESIZE) + (int64_t(40) << 20));
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  try {
    run_ranks(
        64, [](Communicator& comm) { comm.barrier(kName).wait(); },
        lane ? lanes() : within(std::chrono::seconds(20)));
  } catch (const CommunicationError& error) {
    const std::string_view text = error.what();
    return text.find("could not start") != text.npos && text.find("fewer ranks") != text.npos ? 0
                                                                                              : 2;
  } catch (...) {
    return 3;
  }
  return 4;
}

}  // namespace

TEST_CASE("ranks that get no thread are a CommunicationError that says what to do", "[dist]") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  SKIP("a sanitizer needs its address space");
#endif
  const bool lane = GENERATE(false, true);
  const pid_t child = fork();
  if (child == 0) _exit(run_with_few_threads(lane));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
