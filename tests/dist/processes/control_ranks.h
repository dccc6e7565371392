// Ranks that compare calls over control connections, as processes do; here each is a thread.
#pragma once

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dist/processes/control_client.h"
#include "tensor/error.h"
#include "tests/dist/processes/free_ports.h"

namespace zl::test {

using namespace std::chrono_literals;

inline constexpr int kRanks = 3;

struct ControlRank {
  int rank;
  std::unique_ptr<ControlClient> client = nullptr;
  EventStream events{0};
  int64_t sequence = 0;
  bool dies = false;  // its connection ends without notice, as that of a process that is killed

  void all_reduce(const char* name, int64_t count = 8) {
    const Call call{
        .kind = Collective::all_reduce, .count = count, .sequence = ++sequence, .name = name};
    client->set_state(client->require_same_call(call, events), CallState::done);
  }
  // A call of this rank has failed.
  void fails(const std::string& why) {
    client->stop({why}, true);
    while (!client->failed()) std::this_thread::sleep_for(1ms);
  }
  std::vector<std::string> all_gather_object(const std::string& text) {
    return client->all_gather_object({.kind = Collective::barrier,
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

inline RankStart start_at(int port, std::chrono::milliseconds timeout = 10s, int rank = 0,
                          int size = 1) {
  return {.place = {.rank = rank, .size = size, .port = port}, .timeout = timeout};
}

// Connects to rank 0 as a rank would.
inline std::unique_ptr<Connection> let_in(const RankStart& self) {
  std::string why;
  for (;;) {
    Socket socket = connect_to(self.place.address, self.place.port, deadline_in(1s), why);
    if (!socket.open()) continue;
    auto connection = std::make_unique<Connection>(std::move(socket));
    connection->send(ControlMessage::hello, encode(self));
    if (connection->receive(deadline_in(10s))) return connection;
  }
}

inline void work(ControlRank& rank, const std::function<void(ControlRank&)>& body,
                 ControlOutcome& outcome) {
  const auto began = std::chrono::steady_clock::now();
  try {
    body(rank);
  } catch (const std::exception& error) {
    outcome.error = error.what();
    rank.client->stop({error.what(), "detail"});
  }
  if (!rank.dies) rank.client->ended();
  outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  outcome.failure = rank.client->failure().why;
  outcome.report = rank.client->failure().report;
}

// Runs `body` on all ranks, and returns when the run has ended for all.
inline std::vector<ControlOutcome> run_control(const std::function<void(ControlRank&)>& body,
                                               const Options& how = {}) {
  const int port = free_ports();
  std::vector<ControlOutcome> outcomes(kRanks);
  std::atomic<int> ended{0};
  const auto stay_silent = [&] {
    while (ended < kRanks - 1) std::this_thread::sleep_for(5ms);
  };
  std::vector<std::jthread> ranks;
  for (int r = 0; r < kRanks; ++r)
    ranks.emplace_back([&, r] {
      ControlRank rank{.rank = r};
      const RankStart self = start_at(port, 10s, r, kRanks);
      if (r == how.silent && r == 0) {
        std::vector<std::unique_ptr<Connection>> others;
        for (const Socket listener = listen_on(port); others.size() < kRanks - 1;)
          if (Socket socket = accept_from(listener); socket.open()) {
            others.push_back(std::make_unique<Connection>(std::move(socket)));
            others.back()->send(ControlMessage::alive, to_bytes(int64_t(0)));
          }
        for (const auto& other : others) other->send(ControlMessage::started);
        return stay_silent();
      }
      if (r == how.silent) {
        const auto connection = let_in(self);
        how.before_silence(*connection);
        return stay_silent();
      }
      rank.client = std::make_unique<ControlClient>(self, how.timeout);
      rank.client->wait_for_all();
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
