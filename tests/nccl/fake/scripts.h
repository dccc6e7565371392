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

struct Ended : FakeOutcome {
  Kind kind = Kind::other;
  std::vector<int64_t> live = std::vector<int64_t>(kRanks);  // [B] by rank, when it had ended
};

inline Kind kind_of(const std::exception_ptr& cause) {
  try {
    if (cause) std::rethrow_exception(cause);
  } catch (const CommunicationError&) {
    return Kind::communication;
  } catch (const InputError&) {
    return Kind::input;
  } catch (...) {
  }
  return Kind::other;
}

inline Ended run(const Script& script, FakeOptions how = {.timeout = kTimeout}) {
  how.faults = script.faults;
  how.lagging = script.lagging, how.ordered = script.ordered;
  std::vector<int64_t> live(kRanks);
  const FakeOutcome ended = fake_outcome(kRanks, how, [&](Rank& rank) {
    try {
      program(rank, script.before);
    } catch (...) {
      live[size_t(rank.comm.rank())] = rank.memory.ledger().live_total();
      throw;
    }
  });
  return {ended, kind_of(ended.cause), live};
}

}  // namespace zl::test
