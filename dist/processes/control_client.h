// How a rank that is a process checks, before its data moves, that all ranks make the same call.
//
// NCCL and MPI move data themselves and never notice that ranks make different calls. So ranks that
// are processes compare their collectives over a connection to the control server in rank 0's
// process. Functions that wait throw CommunicationError if the run has failed.
//
// Two threads share a client. The rank's thread makes the calls, and waits in them. The client's
// thread reads what the server sends, and answers when it asks whether this process is alive, also
// while the rank computes or is blocked in a library. It also notices that rank 0 has died or is
// silent. So a rank that waits always comes to know how the run has ended: all ranks have ended
// well, or it has failed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/communicator.h"
#include "dist/processes/control_messages.h"

namespace zl {

class ControlClient {
 public:
  // Finds rank 0; on rank 0 starts the control server, which ends with this. `timeout` of a call,
  // and of a sign of life; 0: none. The client's thread calls `watch` every 20 ms at least.
  ControlClient(
      const RankStart& self, std::chrono::milliseconds timeout,
      std::function<void(ControlClient&)> watch = [](ControlClient&) {});
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;

  // Returns when all ranks have come. If ranks were started differently (settings, number of
  // ranks, two of one number, two on one GPU), all that have come throw the same InputError; if one
  // has not come in time, has died or is interrupted, the same CommunicationError.
  void wait_for_all();

  // For the rank's thread.

  // Called every millisecond while the rank waits for others here: a library that moves data only
  // while a rank is inside it may have to answer them. Must not throw.
  std::function<void()> while_waiting = {};
  // Returns when all ranks have come to the same collective. After compare_calls_only_on_timeout()
  // it returns at once, unless the call is a barrier. Returns the call's number in the rank's
  // flight recorder.
  int64_t require_same_call(const Call& call, const EventStream& events);
  std::vector<std::string> all_gather_object(const Call& call, const std::string& text,
                                             const EventStream& events);
  // As Communicator::compare_calls_only_on_timeout().
  void compare_calls_only_on_timeout() { only_on_timeout_ = true; }

  // For other threads too, such as a watchdog.

  void set_state(int64_t record, CallState state) { flight_.change(record, state); }
  // `call` failed on this rank. The server finds the cause, and all ranks report it, in their
  // current or next call. Returns when this rank knows it.
  void fail(const Call& call, const std::string& why);
  bool failed() const { return failed_; }
  void require_running() const;  // throws CommunicationError if the run has failed
  // Does what belongs to `call`. If that throws, or the run has failed, fails the run, calls
  // `then_leave`, which others may notice, and throws the run's failure.
  void carry_out(const Call& call, const std::function<void()>& action,
                 const std::function<void()>& then_leave = {});
  // Throws the run's failure for this rank, which is in `call`.
  [[noreturn]] void throw_failure(const Call& call);

  // For the owner of the process.

  // The run fails for this reason, unless it has. `find_cause`: the server looks for what may have
  // caused it. Does not wait: ended() does.
  void stop(const RunFailure& failure, bool find_cause = false);
  // To be called last: no more calls. Returns when all ranks have ended, or the run has failed.
  void ended();
  RunFailure failure() const;

 private:
  // Returns the texts of all when all have come to the call.
  std::vector<std::string> meet(const Call& call, const std::string& text,
                                const EventStream& events);
  void serve();
  std::string listen();  // to the server for 20 ms; returns why it is lost, or ""
  void handle(const Message& message);
  void send(ControlMessage kind, const std::string& body = "");
  void wait_for_end();  // until all ranks have ended well, or the run has failed
  void run_failed(const RunFailure& failure);

  const int rank_;
  const int64_t timeout_;  // [ns]
  const std::function<bool()> interrupted_;
  const std::function<void(ControlClient&)> watch_;
  std::jthread server_;  // on rank 0
  const std::unique_ptr<Connection> connection_;
  FlightRecorder flight_;
  bool only_on_timeout_ = false;  // of the rank's thread
  std::mutex sending_;
  int64_t sent_calls_ = 0;  // under sending_: what the server has seen of flight_
  // All ranks have come; have ended well; the run has failed; this ends.
  std::atomic<bool> started_{false}, over_{false}, failed_{false}, closing_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<std::vector<std::string>> texts_;  // when all have come to this rank's last call
  RunFailure failure_;
  std::string said_;     // why the run fails, as this rank has told rank 0; "": it has not
  int64_t said_at_ = 0;  // [ns] of running_nanoseconds()

  std::jthread thread_;
};

}  // namespace zl
