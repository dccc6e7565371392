// The rendezvous of ranks that are threads: of all ranks in a collective, of two in a send and
// receive.
//
// A collective of threads passes two gates. At the first gate every rank publishes its call and
// buffers. The gate opens for all ranks or fails for all, and if the calls differ all ranks throw
// before any of them has accessed a buffer. Behind the first gate ranks read and write each other's
// buffers without waiting. A rank that fails there still comes to the second gate, so that gate
// always opens, and no rank leaves before it does. So a rank that fails never frees memory that
// another rank reads: failures are noticed only at a first gate.
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
#include "dist/run_ranks.h"
#include "dist/threads/gate.h"
#include "dist/trace/mismatch.h"
#include "tensor/backend.h"

namespace zl {

using SharedEvent = std::shared_ptr<const StreamEvent>;

// What a rank publishes in a collective. In place: both addresses are the same.
struct Contribution {
  Call call;
  char* from = nullptr;
  char* to = nullptr;
  SharedEvent ready;                  // its buffers hold the input from then on; null: already
  const std::string* text = nullptr;  // of all_gather_object
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

  // Returns when all ranks have come with the same call. Throws CommunicationError.
  void enter(int rank, const Contribution& contribution, const EventStream& events);
  // Between enter and leave.
  const Contribution& contribution(int rank) const { return slots_[size_t(rank)].contribution; }
  // The event at which this rank has read and written its data: to be set between enter and leave,
  // and read between leave and the next enter.
  void set_moved(int rank, SharedEvent moved) { slots_[size_t(rank)].moved = std::move(moved); }
  const SharedEvent& moved(int rank) const { return slots_[size_t(rank)].moved; }
  // Returns when all ranks have come here. Every enter that returned must be followed by it.
  void leave(int rank) noexcept;

  std::vector<std::string> all_gather_object(int rank, const Call& call, const std::string& text,
                                             const EventStream& events);

  // Matches the entry with the other side's if that is there, else leaves it in the queue.
  // Throws CommunicationError.
  void post(QueueEntry& entry, const EventStream& events);
  // Returns when the other side has copied. Throws CommunicationError.
  void wait_for_match(QueueEntry& entry);
  // To be called before an entry is destroyed: returns when no rank copies from or to it. Without
  // a match this fails the run, unless an exception unwinds the stack.
  void withdraw(QueueEntry& entry, bool unwinding = std::uncaught_exceptions() > 0) noexcept;

  // All ranks report the first failure, in their current or next call. Returns whether this is the
  // first.
  bool fail(const std::string& why);
  // The text of the failure for this rank, which is in `call`.
  std::string failure_in(int rank, const Call& call);
  [[noreturn]] void throw_failure(int rank, const Call& call) {
    throw CommunicationError(failure_in(rank, call));
  }
  bool failed() const { return arrivals_.failed(); }

  // The rest is for the rendezvous of all ranks.
  bool has_reported(int rank) const { return ranks_[size_t(rank)].reported; }  // the failure
  // The rank makes no more calls. Ranks that wait for it fail.
  void rank_ended(int rank);
  // Fails if a rank has waited too long. To be called periodically by a thread that is no rank.
  void check_deadlines();

  std::string failure() const;
  std::string failure_report() const;  // the calls of all ranks at the failure
  std::string report() const;          // and now

 private:
  struct alignas(64) RankOfRun {
    bool reported = false;
    FlightRecorder flight;
    const QueueEntry* awaited = nullptr;    // under mutex_
    std::condition_variable entry_changed;  // with mutex_
  };
  struct alignas(64) Slot {  // one per rank
    Contribution contribution;
    SharedEvent moved;
    int64_t record = 0;
    std::atomic<int64_t> asleep_in{-1};  // the round of the first gate in which it sleeps
  };

  RankOfRun& of_run(int rank) { return run_.ranks_[size_t(group_.of_run(rank))]; }
  Gate::State wait_for_all(Slot& slot, uint32_t round);
  void fail_if_a_rank_ended(uint32_t round, int rank, const Call& call);
  void require_same_calls(int rank);
  Rendezvous& group_locked(const RankGroup& group);
  void fail_locked(const std::string& why);
  void copy_locked(QueueEntry& entry, QueueEntry& other, std::unique_lock<std::mutex>& lock);
  void fail_if_ended_locked(const QueueEntry& entry);
  void fail_if_deadlocked_locked();
  WaitingRank waiting_locked(int rank) const;
  std::vector<WaitingRank> waiting_locked() const;
  Flights flights() const;
  bool has_ended(int rank) const { return ended_.load() >> rank & 1; }
  std::vector<QueueEntry*>& queue(const QueueEntry& entry);

  Rendezvous& run_;  // that of all ranks
  const RankGroup group_;
  const int size_;
  const int spins_;
  std::deque<Slot> slots_;
  Gate arrivals_, departures_;
  std::map<std::pair<int, int>, std::vector<QueueEntry*>>
      queues_;  // unmatched, by (sender, receiver); under the run's mutex

  // The rest is used in the rendezvous of all ranks only.
  const std::chrono::milliseconds timeout_;
  std::deque<RankOfRun> ranks_;
  std::atomic<uint64_t> ended_{0};    // one bit per rank
  std::atomic<int> may_deadlock_{0};  // groups, and ranks that wait for a match

  mutable std::mutex mutex_;  // guards the queues, the groups and the failure
  std::list<Rendezvous> groups_;
  std::string failure_, failure_report_;
};

}  // namespace zl
