// The line of a rank whose meeting takes place in the process of rank 0.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "dist/processes/control_connection.h"
#include "dist/processes/socket.h"
#include "dist/trace/mismatch.h"

namespace zl {

class WireWriter;

class RemoteLine final : public RankLine {
 public:
  // `connection` to rank 0. `timeout` of a sign of life; 0: none.
  RemoteLine(int rank, Connection connection, std::chrono::milliseconds timeout);
  ~RemoteLine() override;

  std::unique_ptr<Agreement> agreement() override;
  void stopped(const LineFailure& failure) override;
  void ended() override;
  bool watch() override;
  LineFailure failure() const override;
  std::string report() const override;

 private:
  class RemoteAgreement;

  void listen();
  void hear(const Message& message);
  void fail(const LineFailure& failure);
  void lose(const std::string& why);  // rank 0 cannot be reached
  void send(LineMessage kind, std::string_view body);
  // The answer of rank 0; none if there was a failure.
  std::optional<std::string> ask(LineMessage kind, std::string_view body);
  // Tells rank 0 of a failure, and waits for what it finds out; if that takes too long, `why` is
  // all.
  void report_failure(LineMessage kind, std::string_view body, const std::string& why);

  const int rank_;
  const std::chrono::milliseconds timeout_, sign_interval_, patience_;
  Socket connection_;
  MessageReader reader_;
  std::mutex sending_;
  FlightRecorder flight_;
  WaitingCalls waiting_;
  EventStream heard_{0, 16};                // keeps texts for the ear
  std::atomic<int64_t> alive_;              // [ns] when rank 0 last gave a sign of life
  int64_t last_sign_ = 0, last_watch_ = 0;  // of watch() alone
  std::atomic<bool> failed_{false}, closing_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<std::string> answer_;
  LineFailure failure_;
  bool over_ = false,
       lost_ = false;  // rank 0 said that all have ended; it could not be reached before that

  std::jthread ear_;
};

}  // namespace zl
