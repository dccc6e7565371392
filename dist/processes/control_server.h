// The server in rank 0's process at which the ranks of a run, each a process, compare their calls.
//
// One thread serves all connections. It answers when all ranks have come to the same call, matches
// sends with receives, and fails the run if calls differ, a deadline passes, or a rank dies, stops
// or reports an error. Before it tells all ranks it collects their last calls, for the cause and
// for the report.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/processes/control_messages.h"
#include "dist/processes/socket.h"
#include "dist/trace/mismatch.h"

namespace zl {

class ControlServer {
 public:
  // Connections by rank, also that of rank 0. `timeout` of a call, and of a sign of life; 0: none.
  ControlServer(std::vector<std::unique_ptr<Connection>> connections,
                std::chrono::milliseconds timeout);
  ~ControlServer();  // waits a moment for the others to read why the run failed

  RunFailure failure() const;
  std::string report() const;  // the cause, and the last calls of all ranks; "" without a failure

 private:
  struct Rank {
    std::unique_ptr<Connection> connection;
    FlightRecorder flight;             // as the rank has sent it
    int64_t alive = 0;                 // [ns] when something came from it
    int64_t answered = 0;              // the last request for `flight` that it answered
    bool ended = false, gone = false;  // it makes no more calls; its connection has ended
  };
  struct Entered {  // a rank has come to this call, and others of the call have not
    int rank;
    int64_t record;
    Call call;
    std::string text;  // that it came with
  };
  struct Suspicion {  // a failure whose cause is not known yet
    int rank;         // on which a call failed; -1: calls differ
    std::string why;
    int64_t until;  // [ns]
  };

  void serve();
  void read(int rank);
  void handle(int rank, const Message& message);
  void enter(int rank, int64_t record, const std::string& text);
  // All that take part in this call: both sides of a send and receive, or all ranks of a
  // collective. Empty while one is missing.
  std::vector<Entered*> participants(Entered& came);
  const Entered* in_collective(int rank) const;  // null: it waits in none
  void withdraw(int rank, int64_t record, bool unwinding);
  WaitingRank waiting(int rank) const;
  void check(int64_t now);
  void check_waiting();
  void check_silence(int64_t now, bool others_wait);
  void suspect(int rank, const std::string& why);
  void judge(int64_t now);
  void publish(int64_t now);
  void fail(const RunFailure& failure);
  void fail(const std::string& why) { fail(RunFailure{why, ""}); }
  bool failed() const { return !failure().why.empty(); }
  void ask_for_flights();
  void repeat_question();
  bool all_answered() const;  // or are gone
  bool all_gone() const;
  bool is_among(const RankGroup& group, int rank) const;
  void broadcast(ControlMessage kind, const std::string& body);
  Flights flights() const;
  // Ranks that have not come to the last collective of `rank`; "" if all have.
  std::string missing_text(int rank) const;

  const int64_t timeout_, alive_interval_;  // [ns]
  std::vector<Rank> ranks_;
  EventStream texts_{0, 16};  // keeps the texts of calls
  std::list<Entered> entered_;
  std::optional<Suspicion> suspicion_;
  int64_t asked_ = 0;  // requests for the last calls of all ranks
  int64_t last_loop_ = 0, last_alive_ = 0, last_check_ = 0;  // [ns]
  int64_t resumed_ = 0;     // [ns] when this process went on after it was stopped
  int64_t publish_at_ = 0;  // [ns] the failure; 0: there is none
  bool over_ = false;       // all ranks know how the run ended

  mutable std::mutex mutex_;
  RunFailure failure_;  // these two under mutex_
  std::string report_;
  std::atomic<bool> closing_{false};
  std::jthread thread_;
};

}  // namespace zl
