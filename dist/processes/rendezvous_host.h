// The meeting of ranks that are processes, in the process of rank 0.
//
// Each other rank has a connection, and here two threads: an ear, which reads what it sends, and a
// voice, which calls the meeting in its name and waits there in its stead. So the meeting knows no
// difference between a thread and a process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/processes/control_connection.h"
#include "dist/processes/socket.h"
#include "dist/threads/local_fingerprint_check.h"
#include "dist/trace/mismatch.h"

namespace zl {

class MeetingHost final : public RankLine {
 public:
  // `connections` by rank; the socket of rank 0 is not open. `timeout` of each wait, and of a sign
  // of life; 0: none.
  MeetingHost(std::vector<Connection> connections, std::chrono::milliseconds timeout);
  ~MeetingHost() override;  // gives the others a moment to read why

  std::unique_ptr<Agreement> agreement() override;
  void stopped(const LineFailure& failure) override { fail(failure); }
  void ended() override;
  bool watch() override;
  LineFailure failure() const override;
  std::string report() const override { return report_; }

 private:
  class Rank0;
  struct RemoteRank {
    Socket connection;
    MessageReader reader;
    std::mutex sending;
    std::mutex mutex;  // guards the questions
    std::condition_variable asked;
    std::deque<Message> questions;          // that the voice has not answered
    EventStream heard{0, 16}, said{0, 16};  // own the texts of what ear and voice received
    std::atomic<int64_t> alive{0};          // [ns] when it last gave a sign of life
    FlightRecorder own;  // its calls as it records them itself, also those that are trusted
    std::atomic<int64_t> flights{0};  // how often it has sent them
    std::atomic<bool> ended{false},
        gone{false};  // it makes no more calls; its connection is at its end
    std::jthread ear, voice;
  };

  void end_threads();
  void listen(int rank);
  void hear(int rank, const Message& message);
  void speak(int rank);
  std::string answer(Agreement& agreement, EventStream& events, const Message& question, int rank);
  void send(int rank, LineMessage kind, std::string_view body);
  // The same, unless something else is under way to that rank, which then does not read. Returns
  // whether it was sent.
  bool send_if_free(int rank, LineMessage kind, std::string_view body);
  void broadcast(LineMessage kind, std::string_view body, int but = -1);
  void waits_in(int rank, const Call& call);
  void fail(const LineFailure& failure);
  // Finds out why a call of `rank` failed, and fails with that.
  void judge(int rank, const std::string& why);
  // Asks all ranks but one for their last calls, and waits until they came, `done` holds, or
  // `patience` is over. An ear may wait here.
  void collect(int but, std::chrono::milliseconds patience, const std::function<bool()>& done);
  // Who called something else than the others, or has not come to the last call of `rank`; "" if
  // nobody.
  std::string explain(int rank) const;
  const FlightRecorder& flight(int rank) const;
  std::string flights() const;
  void check_signs_of_life();

  const int size_;
  const std::chrono::milliseconds timeout_, sign_interval_;
  Meeting meeting_;
  std::deque<RemoteRank> remotes_;  // by rank
  WaitingCalls waiting_;
  std::atomic<bool> trusted_{false}, over_{false}, rank0_ended_{false};
  mutable std::mutex mutex_;
  std::string detail_;  // under mutex_
  // Of watch() alone.
  bool failure_sent_ = false, said_over_ = false;
  std::string report_;
  int64_t last_sign_ = 0, last_watch_ = 0;
  const std::chrono::milliseconds patience_;  // with a rank that does not read
};

}  // namespace zl
