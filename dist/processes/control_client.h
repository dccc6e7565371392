// How a rank that is a process checks, before its data moves, that all ranks make the same call.
//
// NCCL and MPI move data themselves and never notice that ranks make different calls. So ranks that
// are processes compare their collectives over a connection to the control server in rank 0's
// process. Functions that wait throw CommunicationError if the run has failed.
//
// A separate thread reads what the server sends, and answers when it asks whether this process is
// alive. It also notices that rank 0 has died or is silent.
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
#include "dist/processes/bootstrap.h"
#include "dist/processes/control_messages.h"

namespace zl {

class ControlClient {
 public:
  // Finds rank 0; on rank 0 starts the control server, which ends with this. `timeout` of a call,
  // and of a sign of life; 0: none.
  ControlClient(const RankIdentity& self, const BootstrapOptions& options,
                std::chrono::milliseconds timeout);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;

  // Returns when all ranks have come. If ranks were started differently (settings, number of
  // ranks, two of one number, two on one GPU), all that have come throw the same InputError; if one
  // has not come in time, has died or is interrupted, the same CommunicationError.
  void wait_for_all();

  // For the rank's thread.

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

  // The run fails for this reason. Returns when all ranks know it, or the server does not answer.
  // `find_cause`: the server looks for what may have caused it.
  void stopped(const RunFailure& failure, bool find_cause = false);
  void ended() { send(ControlMessage::ended, "", true); }  // no more calls; to be called last
  // Whether all ranks have ended well, or this one knows that the run failed.
  bool over() const { return over_ || failed_; }
  RunFailure failure() const;

 private:
  int64_t begin(const Call& call, const EventStream& events, CallState state);
  // Returns the texts of all ranks when they have come to this rank's last call.
  std::string meet(const Call& call, const std::string& text);
  void serve();
  void handle(const Message& message);
  void send(ControlMessage kind, const std::string& body, bool all_records = false);
  void run_failed(const RunFailure& failure);
  void server_lost(const std::string& why);

  const int rank_;
  const int64_t timeout_;  // [ns]
  const std::function<bool()> interrupted_;
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
  std::optional<std::string> texts_;  // of all ranks, when they have come to this rank's last call
  RunFailure failure_;

  std::jthread thread_;
};

}  // namespace zl
