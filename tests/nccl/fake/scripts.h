// Scripts of faults in NCCL, a program of ranks that runs under each, and its result.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/nccl/fake/fake_ranks.h"

namespace zl::test {

inline constexpr int kRanks = 3;
inline constexpr std::chrono::milliseconds kTimeout{300};

// What kind of error ends a run.
enum class Kind { communication, input, other };

struct Script {
  const char* title;
  std::vector<Fault> faults = {};
  std::vector<std::string> says = {};  // parts of what the run throws; none: it must end well
  bool lagging = false, ordered = true;
  std::function<void(Rank& rank, int call)> before =
      {};  // each call of the program: a fault of the program's own
  Kind kind = Kind::communication;
};

// All that there are.
const std::vector<Script>& scripts_of_joining();
const std::vector<Script>& scripts_of_calls();
const std::vector<Script>& scripts_of_ranks();  // that go wrong themselves

// What the ranks do: 6 calls, of which a script may stop any.
inline void program(Rank& rank, const std::function<void(Rank&, int)>& before) {
  const Tensor t = rank.filled(3 * 40, float(rank.comm.rank()));
  auto next = [&, call = 0]() mutable {
    if (before) before(rank, call);
    ++call;
  };
  for (int round = 0; round < 2; ++round) {
    next();
    rank.comm.reduce_scatter(t, Reduction::mean, {"h.1 gradient", Purpose::gradient}).wait();
    next();
    rank.comm.all_gather(t, {"h.1 parameter", Purpose::parameter}).wait();
    next();
    rank.comm.all_reduce(t.slice(0, {7}), Reduction::mean, {"loss", Purpose::loss}).wait();
  }
}

struct Ended {
  std::string thrown, misuse;  // thrown: "" if nothing
  Kind kind = Kind::other;
  std::chrono::milliseconds took{};
  std::vector<std::string> errors =
      std::vector<std::string>(kRanks);  // by rank: the CommunicationError that it got in a call
  std::vector<int64_t> live = std::vector<int64_t>(kRanks);  // [B] by rank, when it had ended
  int aborted = 0, destroyed = 0;
};

inline Ended run(const Script& script, int version = 22809,
                 std::chrono::milliseconds timeout = kTimeout) {
  FakeNccl fake(script.faults, version);
  const NcclApi api = fake.api();
  Ended ended;
  const auto start = std::chrono::steady_clock::now();
  const auto body = [&](Communicator& comm) {
    const size_t r = size_t(comm.rank());
    RankBackends backends = fake_backends(script.lagging);
    Rank rank(comm, {}, std::move(backends));
    try {
      program(rank, script.before);
    } catch (const CommunicationError& error) {
      ended.errors[r] = error.what();
      ended.live[r] = rank.memory.ledger().live_total();
      throw;
    } catch (...) {
      ended.live[r] = rank.memory.ledger().live_total();
      throw;
    }
    ended.live[r] = rank.memory.ledger().live_total();
  };
  try {
    run_nccl_ranks(kRanks, body, within(timeout), {.api = &api, .ordered = script.ordered});
  } catch (const CommunicationError& error) {
    ended.thrown = error.what(), ended.kind = Kind::communication;
  } catch (const InputError& error) {
    ended.thrown = error.what(), ended.kind = Kind::input;
  } catch (const std::exception& error) {
    ended.thrown = error.what();
  }
  ended.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  ended.misuse = fake.misuse();
  ended.aborted = fake.calls("ncclCommAbort");
  ended.destroyed = fake.calls("ncclCommDestroy");
  return ended;
}

}  // namespace zl::test
