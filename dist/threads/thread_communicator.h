// Ranks that are threads of one process, on memory that all of them can read: that of the CPU, of
// one GPU that they share, or of several GPUs.
//
// A rank reads its peers' buffers directly, without a staging copy or a buffer as large as a
// tensor. They meet in a rendezvous: all ranks in a collective, two in a send and receive. The
// buffers of a call stay alive until every rank has left it.
//
// A collective of threads passes two gates. At the first gate every rank publishes its call and
// buffers. The gate opens for all ranks or fails for all, and if the calls differ all ranks throw
// before any of them has accessed a buffer. Behind the first gate ranks read and write each other's
// buffers without waiting. A rank that fails there still comes to the second gate, so that gate
// always opens, and no rank leaves before it does. So a rank that fails never frees memory that
// another rank reads: failures are noticed only at a first gate.
//
// Calls that differ are seen at the gate. That a call will never be complete, because a rank has
// ended, comes too late, or waits for this one elsewhere, no waiting rank can see: another thread
// looks at the flight recorders of all ranks for it, and fails the run (check()).
//
// A group of ranks has a rendezvous with separate gates and queues. It shares the rest with that of
// the run: failure, flight recorders, and which ranks have ended. Ranks are numbered as in the
// group, and in texts as in the run.
//
// On GPUs, what happens between the gates is only enqueued on each rank's communication stream. It
// starts after the events at which all ranks' buffers are ready. Ranks that use their buffers later
// wait for the events at which all ranks have moved their data.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "dist/flight_recorder.h"
#include "tensor/backend.h"
#include "tensor/platform/spin_pause.h"

namespace zl {

// Opens when all ranks have arrived, round after round, unless it failed before.
//
// One 32-bit word holds the round, how many ranks have arrived in it, and whether the gate failed.
// So "the last rank arrived" and "it failed" are ordered: all ranks of a round see it open, or all
// see it fail. After a failure ranks no longer count as arrived, and rounds that had opened stay
// open.
class Gate {
 public:
  explicit Gate(int ranks) : ranks_(uint32_t(ranks)) {}  // 1 to 127

  // Takes part in the current round and returns it. Does not wait.
  uint32_t arrive() {
    uint32_t word = word_.load();
    for (;;) {
      if (word & kFailed) return round_in(word);
      const bool last = (word & kArrived) + 1 == ranks_;
      const uint32_t next = last ? next_round(word) : word + 1;
      if (!word_.compare_exchange_weak(word, next)) continue;
      if (last) word_.notify_all();
      return round_in(word);
    }
  }
  // Returns when the round is open, true, or failed. Looks `spins` times before it sleeps, for
  // ranks that each have a core.
  bool opens(uint32_t round, int spins) const {
    for (;; --spins) {
      const uint32_t word = word_.load();
      if (round_in(word) != round) return true;
      if (word & kFailed) return false;
      spins > 0 ? spin_pause() : word_.wait(word);
    }
  }
  void fail() {
    word_.fetch_or(kFailed);
    word_.notify_all();
  }
  bool failed() const { return word_.load() & kFailed; }

 private:
  static constexpr uint32_t kArrived = 0x7f, kFailed = 0x80000000u, kRound = 0x7fffff80u;
  static uint32_t round_in(uint32_t word) { return (word & kRound) >> 7; }
  // There are 2^24 rounds.
  static uint32_t next_round(uint32_t word) { return ((word & kRound) + kArrived + 1) & kRound; }

  alignas(64) std::atomic<uint32_t> word_{0};
  const uint32_t ranks_;
};

// ---- where ranks meet --------------------------------------------------------------------------

// What ranks throw in a call when the run has failed. run_ranks() tells it from a rank's own error.
struct RunHasFailed : CommunicationError {
  using CommunicationError::CommunicationError;
};

using SharedEvent = std::shared_ptr<const StreamEvent>;

// What a rank publishes in a collective. In place: both addresses are the same.
struct alignas(64) Contribution {
  Call call;
  char* from = nullptr;
  char* to = nullptr;
  SharedEvent ready;                  // its buffers hold the input from then on; null: already
  const std::string* text = nullptr;  // of all_gather_object
  int64_t record = 0;                 // its number in the flight recorder
};

// One side of a send and receive. The side that comes second copies.
struct QueueEntry {
  enum class State { posted, copying, done };
  Call call;
  int rank = 0;
  Tensor tensor;       // keeps the memory alive while the other side may copy
  int64_t record = 0;  // its number in the flight recorder
  SharedEvent ready;   // as in Contribution
  SharedEvent moved;   // once done: the data has arrived from then on
  std::atomic<State> state{State::posted};
};

class Rendezvous {
 public:
  // `threads`: of all ranks, each of which needs a core. With fewer cores ranks sleep at a gate at
  // once.
  Rendezvous(int size, std::chrono::milliseconds timeout, int threads);
  Rendezvous(Rendezvous& run, const RankGroup& group);  // only for group()

  // That of a group of these ranks, or this one for all of them. It lives as long as this one.
  Rendezvous& group(const RankGroup& group);

  // Returns when all ranks have come with the same call: what each contributes, which may be read
  // until leave(). Throws CommunicationError.
  const std::vector<Contribution>& enter(int rank, Contribution contribution,
                                         const EventStream& events);
  // Returns when all ranks have come here: the events at which each has read and written its data,
  // which may be read until the next enter(). `moved`: this rank's. Every enter that returned must
  // be followed by it.
  const std::vector<SharedEvent>& leave(int rank, SharedEvent moved = {}) noexcept;

  // Matches the entry with the other side's if that is there, else leaves it in the queue.
  // Throws CommunicationError.
  void post(QueueEntry& entry, const EventStream& events);
  // Returns when the other side has copied. Throws CommunicationError.
  void wait_for_match(QueueEntry& entry);
  // To be called before an entry is destroyed: returns when no rank copies from or to it. Without
  // a match this fails the run, unless an exception unwinds the stack.
  void withdraw(QueueEntry& entry, bool unwinding = std::uncaught_exceptions() > 0) noexcept;

  // All ranks report the first failure, in their current or next call. Any thread may call it.
  void fail(const std::string& why);
  [[noreturn]] void throw_failure(int rank, const Call& call);
  bool failed() const { return arrivals_.failed(); }

  // The rest is for the rendezvous of all ranks.
  void rank_ended(int rank) { ended_ |= uint64_t(1) << rank; }  // it makes no more calls
  // Fails if a rank waits for one that has ended, for one that waits for it, or for too long. To be
  // called periodically, and when a rank has ended, by a thread that is no rank.
  void check();

  struct Failure {
    std::string why, report;  // and the calls of all ranks at the failure
  };
  Failure failure() const;
  std::string report() const;  // the calls of all ranks now

 private:
  FlightRecorder& flight(int rank) { return run_.flights_[size_t(group_.of_run(rank))]; }
  void require_same_calls(int rank);
  void copy_locked(QueueEntry& entry, QueueEntry& other, std::unique_lock<std::mutex>& lock);
  std::vector<QueueEntry*>& queue(const QueueEntry& entry);

  Rendezvous& run_;  // that of all ranks
  const RankGroup group_;
  const int size_;
  const int spins_;
  std::vector<Contribution> contributions_ = std::vector<Contribution>(size_t(size_));  // by rank
  std::vector<SharedEvent> moved_ = std::vector<SharedEvent>(size_t(size_));
  Gate arrivals_{size_}, departures_{size_};
  // Unmatched, by (sender, receiver); under the run's mutex.
  std::map<std::pair<int, int>, std::vector<QueueEntry*>> queues_;

  // The rest is used in the rendezvous of all ranks only.
  const std::chrono::milliseconds timeout_;
  std::deque<FlightRecorder> flights_;  // by rank
  std::atomic<uint64_t> ended_{0};      // one bit per rank

  mutable std::mutex mutex_;  // guards the queues, the groups and the failure
  std::list<Rendezvous> groups_;
  Failure failure_;
  std::condition_variable entry_changed_;  // of all ranks
};

// ---- the transport -----------------------------------------------------------------------------

// The communicator of one rank, for the rank's thread. `rendezvous` is of all ranks; it and
// `events`, which its flight recorders refer to, must outlive the result.
std::unique_ptr<Communicator> thread_communicator(int rank, int size, Rendezvous& rendezvous,
                                                  EventStream& events);

}  // namespace zl
