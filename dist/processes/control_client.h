// One rank's end of the control connection, at which it compares its calls with those of other
// processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dist/processes/control_messages.h"
#include "dist/processes/fingerprint_check.h"
#include "dist/processes/socket.h"

namespace zl {

class ControlClient final : public FingerprintCheck {
 public:
  // `timeout` of a sign of life of the server; 0: none.
  ControlClient(int rank, std::unique_ptr<Connection> connection,
                std::chrono::milliseconds timeout);
  ~ControlClient() override;

  // The FingerprintCheck of the rank, for the rank's thread.
  int64_t require_same_call(const Call& call, const EventStream& events) override;
  void set_state(int64_t record, CallState state) override { flight_.change(record, state); }
  std::vector<std::string> all_gather_object(const Call& call, const std::string& text,
                                             const EventStream& events) override;
  void compare_calls_only_on_timeout() override { only_on_timeout_ = true; }
  void while_waiting(std::function<void()> action) override { action_ = std::move(action); }
  int64_t post(const Call& call, const EventStream& events) override;
  void wait_for_match(int64_t record) override;
  void withdraw(int64_t record, bool unwinding) noexcept override;
  void fail(const std::string& why) override;  // the server finds the cause
  bool failed() const override { return failed_; }

  // The rank failed on its own. Returns when all ranks know it, or the server does not answer.
  void stopped(const RunFailure& failure);
  void ended();  // the rank makes no more calls; to be called last

  // Whether all ranks have ended well, or this one knows that the run failed.
  bool over() const;
  RunFailure failure() const;
  // This rank's last calls, if the server can no longer report those of all ranks; else "".
  std::string report() const;

 private:
  struct Entered {
    Call call;
    std::optional<std::string> texts;  // of all its ranks, when they have come
  };

  std::string failure_in(const Call& call) override;
  int64_t begin(const Call& call, const EventStream& events, CallState state);
  void enter(int64_t record, const Call& call, const std::string& text = "");
  // Returns the texts of all ranks when they have entered the call.
  std::string wait_for_all(int64_t record);
  void serve();
  void handle(const Message& message);
  void send(ControlMessage kind, const std::string& body, bool all_records = false);
  // Returns when `done`, which is asked under `lock`.
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  void wait_for_failure(const std::string& why);
  void run_failed(const RunFailure& failure);
  void lose_server(const std::string& why);

  const int rank_;
  const int64_t timeout_, alive_interval_;  // [ns]
  const std::unique_ptr<Connection> connection_;
  FlightRecorder flight_;
  bool only_on_timeout_ = false;  // these two of the rank's thread
  std::function<void()> action_;  // while it waits
  std::mutex sending_;
  int64_t sent_calls_ = 0;  // under sending_: what the server has seen of flight_
  std::atomic<bool> failed_{false}, closing_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int64_t, Entered> entered_;  // by record, until the rank goes on or withdraws
  RunFailure failure_;
  bool over_ = false, lost_ = false;  // lost: the connection ended before the run

  std::jthread thread_;
};

}  // namespace zl
