// Ranks that compare calls over control connections, as processes do; here each is a thread.
#pragma once

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dist/processes/bootstrap.h"
#include "dist/processes/control_client.h"
#include "dist/processes/control_server.h"
#include "tensor/error.h"
#include "tests/dist/processes/free_ports.h"

namespace zl::test {

using namespace std::chrono_literals;

inline constexpr int kRanks = 3;

struct ControlRank {
  int rank;
  std::jthread server;  // on rank 0
  std::unique_ptr<ControlClient> client;
  ControlClient* others = nullptr;  // the client
  EventStream events{0};
  int64_t sequence = 0;
  bool dies = false;  // its connection ends without notice, as that of a process that is killed

  void all_reduce(const char* name, int64_t count = 8) {
    const Call call{
        .kind = Collective::all_reduce, .count = count, .sequence = ++sequence, .name = name};
    others->set_state(others->require_same_call(call, events), CallState::done);
  }
  std::vector<std::string> all_gather_object(const std::string& text) {
    return others->all_gather_object({.kind = Collective::barrier,
                                      .sequence = ++sequence,
                                      .name = "texts",
                                      .has_deadline = false},
                                     text, events);
  }
};

struct ControlOutcome {
  std::string error, failure, report;
  std::chrono::milliseconds took{};
};

struct Options {
  std::chrono::milliseconds timeout = 5s;
  int silent = -1;  // a rank that sends nothing, as if its process was stopped
  std::function<void(Connection&)> before_silence = [](Connection&) {};
};

inline RankIdentity identity(int rank, int size) { return {"", rank, size, "", "", "", ""}; }

// The client of a rank, when all have come; on rank 0 also the server.
inline std::unique_ptr<ControlClient> connect(const RankIdentity& self,
                                              const BootstrapOptions& where,
                                              std::chrono::milliseconds timeout,
                                              std::jthread& server) {
  return std::make_unique<ControlClient>(self.rank, connect_ranks(self, where, timeout, server),
                                         timeout);
}

inline void work(ControlRank& rank, const std::function<void(ControlRank&)>& body,
                 ControlOutcome& outcome) {
  const auto began = std::chrono::steady_clock::now();
  rank.others = rank.client.get();
  try {
    body(rank);
  } catch (const std::exception& error) {
    outcome.error = error.what();
    if (rank.client->failure().why.empty()) rank.client->stopped({error.what(), "detail"});
  }
  if (!rank.dies) rank.client->ended();
  while (!rank.dies && !rank.client->over()) std::this_thread::sleep_for(2ms);
  outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  outcome.failure = rank.client->failure().why;
  outcome.report = rank.client->failure().report;
}

// Runs `body` on all ranks, and returns when the run has ended for all.
inline std::vector<ControlOutcome> run_control(const std::function<void(ControlRank&)>& body,
                                               const Options& how = {}) {
  const BootstrapOptions where{
      .address = "127.0.0.1", .port = free_ports(), .timeout = 10s, .interrupted = {}};
  std::vector<ControlOutcome> outcomes(kRanks);
  std::atomic<int> ended{0};
  const auto stay_silent = [&] {
    while (ended < kRanks - 1) std::this_thread::sleep_for(5ms);
  };
  std::vector<std::jthread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      ControlRank rank{.rank = r};
      const RankIdentity self = identity(r, kRanks);
      if (r == how.silent && r == 0) {
        const Connections others = let_ranks_in(self, where);
        return stay_silent();
      }
      if (r == how.silent) {
        const auto connection = find_rank_0(self, where);
        how.before_silence(*connection);
        return stay_silent();
      }
      rank.client = connect(self, where, how.timeout, rank.server);
      work(rank, body, outcomes[size_t(r)]);
      ++ended;
    });
  ranks.clear();
  return outcomes;
}

inline void require_all_fail_with(const std::vector<ControlOutcome>& outcomes,
                                  const std::string& part, int but = -1) {
  for (int r = 0; r < kRanks; ++r)
    if (r != but) CHECK_THAT(outcomes[size_t(r)].failure, Catch::Matchers::ContainsSubstring(part));
}

}  // namespace zl::test
