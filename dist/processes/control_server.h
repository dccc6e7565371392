// The server in rank 0's process at which the ranks of a run, each a process, compare their calls.
//
// One thread serves all connections. First it lets the ranks in. Then it answers when all ranks
// have come to the same collective, and fails the run if calls differ, a deadline passes, or a rank
// dies, stops or reports an error. Before it tells all ranks it collects their last calls, for the
// cause and for the report.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/mismatch.h"
#include "dist/processes/bootstrap.h"
#include "dist/processes/control_messages.h"
#include "dist/processes/socket.h"

namespace zl {

class ControlServer {
 public:
  // `own`: the connection of rank 0 itself. `timeout` of a call, and of a sign of life; 0: none.
  // Throws CommunicationError if no port is free.
  ControlServer(const RankIdentity& self, const BootstrapOptions& options,
                std::unique_ptr<Connection> own, std::chrono::milliseconds timeout);
  ~ControlServer();  // waits a moment for the others to read why the run failed

  std::string report() const;  // the cause, and the last calls of all ranks; "" without a failure

 private:
  struct Entered {  // a rank has come to this collective, and others have not
    Call call;
    std::string text;  // that it came with
  };
  struct Rank {
    std::unique_ptr<Connection> connection;
    FlightRecorder flight;  // as the rank has sent it
    std::optional<Entered> entered;
    int64_t alive = 0;                // [ns] when something came from it
    int64_t answered = 0;             // the last request for `flight` that it answered
    bool ended = false, gone = true;  // it makes no more calls; it has no connection
  };
  struct Failing {  // the ranks are asked for their last calls, and then hear of it
    RunFailure failure;
    enum class Cause { known, missing_rank, mismatch } cause;  // else still to be found
    int rank;                                                  // on which a call failed
    int64_t until;                                             // [ns]
  };

  // The thread. It ends when all ranks know how the run ended and have had time to read it.
  void serve();
  // Admits ranks, and tells them to start when none is missing.
  void let_in();
  void add(int rank, std::unique_ptr<Connection> connection);
  // All messages that have come from the rank. A connection that ends before the rank has is its
  // death.
  void read(int rank);
  void handle(int rank, const Message& message);
  // The rank has come to a collective. Answers all of its group when the last one has.
  void enter(int rank, const std::string& text);
  // Fails the run if a rank waits forever or too long, is silent, or made another call.
  void check(int64_t now);
  void check_waiting();
  void check_silence(int64_t now, bool others_wait);
  void fail(const RunFailure& failure, Failing::Cause cause = Failing::Cause::known, int rank = -1);
  void fail(const std::string& why) { fail(RunFailure{why, ""}); }
  bool failed() const { return failing_ && failing_->cause == Failing::Cause::known; }
  // Tells all ranks how the run ended; if it failed, once they have answered or had time to.
  void publish(int64_t now);
  std::string found_cause() const;
  bool all_answered() const;  // or are gone
  // No connection is left.
  bool all_gone() const;
  void broadcast(ControlMessage kind, const std::string& body);
  // What the ranks have sent of their calls.
  Flights flights() const;
  // Ranks that have not come to the last collective of `rank`; "" if all have.
  std::string missing_text(int rank) const;

  const int64_t timeout_, alive_interval_;  // [ns]
  std::optional<Lobby> lobby_;              // until all have come
  std::vector<Rank> ranks_;
  EventStream texts_{0, 16};  // keeps the texts of calls
  std::optional<Failing> failing_;
  int64_t asked_ = 0;  // requests for the last calls of all ranks
  int64_t last_loop_ = 0, last_alive_ = 0, last_check_ = 0;  // [ns]
  int64_t resumed_ = 0;  // [ns] when this process went on after it was stopped
  bool over_ = false;    // all ranks know how the run ended

  mutable std::mutex mutex_;
  std::string report_;  // under mutex_
  std::atomic<bool> closing_{false};
  std::jthread thread_;
};

}  // namespace zl
