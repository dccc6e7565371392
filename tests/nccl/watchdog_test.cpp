// What the watchdog finds while the rank goes on: the rank's next call says it, and a rank that is
// blocked by its GPU is freed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "tests/nccl/fake/fake_ranks.h"

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
  FakeOutcome ended;
  std::vector<int> read = std::vector<int>(2);  // by rank: returned
};

FakeOutcome on_two_gpus(const Fault& fault, std::chrono::milliseconds timeout,
                        const std::function<void(Rank&)>& body) {
  return fake_outcome(2, {.faults = {fault}, .emulated = true, .timeout = timeout}, body);
}

Broken after_broken_call(const Fault& fault, Then then, std::chrono::milliseconds timeout) {
  std::vector<int> waited(2), read(2);
  const auto body = [&](Rank& rank) {
    const auto r = size_t(rank.comm.rank());
    const Tensor t = rank.filled(64, 1), other = rank.filled(64, 1);
    Work first = rank.comm.all_gather(t, {"broken", Purpose::check}),
         second = rank.comm.broadcast(other, 0, {"behind it", Purpose::check});
    first.wait();
    waited[r] = 1;
    if (then == Then::wait_for_another || then == Then::next_call) {
      std::this_thread::sleep_for(700ms);  // the rank computes
    } else if (then == Then::read || then == Then::read_and_ask) {
      (void)contents<float>(t);
      read[r] = 1;
    }
    if (then == Then::read_and_ask) rank.comm.require_running();
    second.wait();
    if (then == Then::next_call || then == Then::read) rank.comm.barrier(kName).wait();
  };
  const FakeOutcome ended = on_two_gpus(fault, timeout, body);
  CHECK(waited == std::vector<int>{1, 1});
  CHECK(ended.misuse == "");
  return {ended, read};
}

}  // namespace

TEST_CASE(
    "a transfer that never ends is found while the rank goes on, and its next call, wait or finish "
    "says so",
    "[nccl]") {
  require_emulator();
  const Then then = GENERATE(Then::next_call, Then::wait_for_another, Then::finish, Then::read,
                             Then::read_and_ask);
  const auto [ended, read] = after_broken_call({"ncclGroupEnd", K::stalls, 1, 2}, then, 300ms);
  CAPTURE(int(then));
  CHECK(read == std::vector<int>(2, then == Then::read || then == Then::read_and_ask));
  CHECK_THAT(
      ended.thrown,
      ContainsSubstring("in all_gather 'broken' of 64 f32 elements (call 1): the transfer was "
                        "not done within 300 ms") &&
          ContainsSubstring("raise --timeout"));
  if (then == Then::finish)
    CHECK(ended.errors == std::vector<std::string>(2));  // the body had ended
  else
    CHECK(ended.all_say("all_gather 'broken'"));
  // Only here the rank was first, or was told so where it was.
  if (then == Then::read_and_ask)
    CHECK(std::ranges::any_of(ended.errors, [](const std::string& error) {
      return error.find("reading results") != std::string::npos;
    }));
  CHECK(ended.aborted == 2);
}

TEST_CASE("an error that NCCL reports later frees ranks that are blocked, long before the deadline",
          "[nccl]") {
  require_emulator();
  const Fault after_10_polls{
      // more than the rank's own
      "ncclGroupEnd", K::breaks, 1, 2, R::system_error, "connection reset by peer", 10};
  for (const auto timeout : {20'000ms, 0ms}) {  // 0: no deadline
    const auto [ended, read] = after_broken_call(after_10_polls, Then::read, timeout);
    CHECK(ended.took < 15s);
    CHECK(read == std::vector<int>{1, 1});
    CHECK_THAT(ended.thrown, ContainsSubstring("rank 1 in all_gather 'broken'") &&
                                 ContainsSubstring("the transfer gave ncclSystemError") &&
                                 ContainsSubstring("connection reset by peer"));
    CHECK(ended.all_say("ncclSystemError"));
  }
}

TEST_CASE("a rank that is blocked by its GPU is freed when another rank fails", "[nccl]") {
  require_emulator();
  std::atomic<bool> freed{false};
  // Rank 1 leaves its GPU only when its watchdog has given up, which takes the timeout.
  const auto ended = on_two_gpus({"ncclGroupEnd", K::stalls, 1, 2}, 300ms, [&](Rank& rank) {
    const Tensor t = rank.filled(64, 1);
    rank.comm.all_gather(t, kName).wait();
    if (rank.comm.rank() == 1) throw std::runtime_error("rank 1 has had enough");
    (void)contents<float>(t);
    freed = true;
    rank.comm.barrier(kName).wait();
  });
  // Or rank 0's deadline is over before rank 1 has left its GPU.
  CHECK_THAT(ended.thrown, ContainsSubstring("had enough") || ContainsSubstring("within 300 ms"));
  CHECK(freed);
  CHECK(ended.misuse == "");
}

TEST_CASE("an operation that has been waited for is moving, then done, in the report", "[nccl]") {
  require_emulator();
  const auto ended = on_two_gpus({"ncclGroupEnd", K::stalls, 1, 3}, 300ms, [&](Rank& rank) {
    const Tensor a = rank.filled(64, 1), b = rank.filled(64, 1), c = rank.filled(64, 1);
    rank.comm.all_gather(a, {"first", Purpose::check}).wait();
    (void)contents<float>(a);
    std::this_thread::sleep_for(150ms);  // several looks of the watchdog
    Work later = rank.comm.all_gather(c, {"third", Purpose::check});
    rank.comm.all_gather(b, {"second", Purpose::check}).wait();
    std::this_thread::sleep_for(700ms);
    later.wait();
  });
  CHECK(ended.thrown != "");
  const std::string report = last_failure_report();
  CAPTURE(report);
  CHECK_THAT(report, ContainsSubstring("'first' of 64 f32 elements (call 1): done in"));
  CHECK_THAT(report, ContainsSubstring("'third' of 64 f32 elements (call 2): posted"));
  CHECK_THAT(report, ContainsSubstring("'second' of 64 f32 elements (call 3): moving data for"));
}
