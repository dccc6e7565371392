// What the watchdog finds while the rank goes on: the rank's next call says it, and a rank that is
// blocked by its GPU is freed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/nccl/fake/scripts.h"

using namespace zl;
using namespace zl::test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;
using R = NcclResult;

namespace {

// What each rank does after it has waited for an all_gather that never ends.
enum class Then { next_call, wait_for_another, finish, read, read_and_ask };

struct Broken {
  std::string thrown, misuse;
  std::vector<int> waited = std::vector<int>(2), read = std::vector<int>(2);  // by rank: returned
  std::vector<std::string> errors = std::vector<std::string>(2);  // by rank: thrown in its body
  int aborted = 0;
};

Broken after_broken_call(const Fault& fault, Then then, std::chrono::milliseconds timeout) {
  FakeNccl fake({fault}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  Broken broken;
  const auto body = [&](Communicator& comm) {
    const auto r = size_t(comm.rank());
    Rank rank(comm, {}, fake_backends(Place::emulated));
    const Tensor t = rank.filled(64, 1), other = rank.filled(64, 1);
    try {
      Work first = comm.all_gather(t, {"broken", Purpose::check}),
           second = comm.broadcast(other, 0, {"behind it", Purpose::check});
      first.wait();
      broken.waited[r] = 1;
      if (then == Then::wait_for_another || then == Then::next_call) {
        std::this_thread::sleep_for(700ms);  // the rank computes
      } else if (then == Then::read || then == Then::read_and_ask) {
        (void)contents<float>(t);
        broken.read[r] = 1;
      }
      if (then == Then::read_and_ask) comm.require_running();
      second.wait();
      if (then == Then::next_call || then == Then::read) comm.barrier(kName).wait();
    } catch (const CommunicationError& error) {
      broken.errors[r] = error.what();
      throw;
    }
  };
  try {
    run_nccl_ranks(2, body, within(timeout), {.api = &api});
  } catch (const CommunicationError& error) {
    broken.thrown = error.what();
  }
  broken.misuse = fake.misuse();
  broken.aborted = fake.calls("ncclCommAbort");
  return broken;
}

}  // namespace

TEST_CASE(
    "a transfer that never ends is found while the rank goes on, and its next call, wait or finish "
    "says so",
    "[nccl]") {
  require_emulator();
  const Then then = GENERATE(Then::next_call, Then::wait_for_another, Then::finish, Then::read,
                             Then::read_and_ask);
  const Broken broken = after_broken_call({"ncclGroupEnd", K::stalls, 1, 2}, then, 300ms);
  CAPTURE(int(then));
  CHECK(broken.waited == std::vector<int>{1, 1});
  CHECK(broken.read == std::vector<int>(2, then == Then::read || then == Then::read_and_ask));
  CHECK_THAT(
      broken.thrown,
      ContainsSubstring("in all_gather 'broken' of 64 f32 elements (call 1): the transfer was "
                        "not done within 300 ms") &&
          ContainsSubstring("raise --timeout"));
  for (const std::string& error : broken.errors)
    if (then == Then::finish)
      CHECK(error == "");  // the body had ended
    else
      CHECK_THAT(error, ContainsSubstring("all_gather 'broken'"));
  // Only here the rank was first, or was told so where it was.
  if (then == Then::read_and_ask)
    CHECK(std::ranges::any_of(broken.errors, [](const std::string& error) {
      return error.find("reading results") != std::string::npos;
    }));
  CHECK(broken.aborted == 2);
  CHECK(broken.misuse == "");
}

TEST_CASE("an error that NCCL reports later frees ranks that are blocked, long before the deadline",
          "[nccl]") {
  require_emulator();
  const Fault fault{"ncclGroupEnd",
                    K::breaks,
                    1,
                    2,
                    R::system_error,
                    "connection reset by peer",
                    10};                        // polls: more than the rank's own
  for (const auto timeout : {20'000ms, 0ms}) {  // 0: no deadline
    const auto start = std::chrono::steady_clock::now();
    const Broken broken = after_broken_call(fault, Then::read, timeout);
    CHECK(std::chrono::steady_clock::now() - start < 15s);
    CHECK(broken.read == std::vector<int>{1, 1});
    CHECK_THAT(broken.thrown, ContainsSubstring("rank 1 in all_gather 'broken'") &&
                                  ContainsSubstring("the transfer gave ncclSystemError") &&
                                  ContainsSubstring("connection reset by peer"));
    for (const std::string& error : broken.errors)
      CHECK_THAT(error, ContainsSubstring("ncclSystemError"));
    CHECK(broken.misuse == "");
  }
}

TEST_CASE("a rank that is blocked by its GPU is freed when another rank fails", "[nccl]") {
  require_emulator();
  FakeNccl fake({{"ncclGroupEnd", K::stalls, 1, 2}}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  std::atomic<bool> freed{false};
  const auto body = [&](Communicator& comm) {
    Rank rank(comm, {}, fake_backends(Place::emulated));
    const Tensor t = rank.filled(64, 1);
    comm.all_gather(t, kName).wait();
    if (comm.rank() == 1) throw std::runtime_error("rank 1 has had enough");
    (void)contents<float>(t);
    freed = true;
    comm.barrier(kName).wait();
  };
  // Rank 1 leaves its GPU only when its watchdog has given up, which takes the timeout.
  CHECK_THROWS_AS(run_nccl_ranks(2, body, within(300ms), {.api = &api}), std::runtime_error);
  CHECK(freed);
  CHECK(fake.misuse() == "");
}

TEST_CASE("an operation that has been waited for is moving, then done, in the report", "[nccl]") {
  require_emulator();
  FakeNccl fake({{"ncclGroupEnd", K::stalls, 1, 3}}, 22809, kEmulatedStreams);
  const NcclApi api = fake.api();
  const auto body = [&](Communicator& comm) {
    Rank rank(comm, {}, fake_backends(Place::emulated));
    const Tensor a = rank.filled(64, 1), b = rank.filled(64, 1), c = rank.filled(64, 1);
    comm.all_gather(a, {"first", Purpose::check}).wait();
    (void)contents<float>(a);
    std::this_thread::sleep_for(150ms);  // several looks of the watchdog
    Work later = comm.all_gather(c, {"third", Purpose::check});
    comm.all_gather(b, {"second", Purpose::check}).wait();
    std::this_thread::sleep_for(700ms);
    later.wait();
  };
  CHECK_THROWS_AS(run_nccl_ranks(2, body, within(300ms), {.api = &api}), CommunicationError);
  const std::string report = last_failure_report();
  CAPTURE(report);
  CHECK_THAT(report, ContainsSubstring("'first' of 64 f32 elements (call 1): done in"));
  CHECK_THAT(report, ContainsSubstring("'third' of 64 f32 elements (call 2): posted"));
  CHECK_THAT(report, ContainsSubstring("'second' of 64 f32 elements (call 3): moving data for"));
}
