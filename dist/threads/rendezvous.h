// Where ranks that are threads of one process meet: all of them in a collective, two of them by
// mail.
//
// A collective goes through two gates. At the first, everyone shows its call and buffers. It opens
// for all ranks or fails for all, and if the calls differ all ranks throw before anyone touched a
// buffer. Behind it, ranks read and write each other's buffers and never wait, and whoever fails
// there comes to the second gate all the same, so that it always opens; nobody leaves before it
// does. That is why a rank that fails never frees memory that another still reads: a failure is
// only noticed at a first gate.
//
// On GPUs, what happens between the gates is only told to each rank's communication lane: it
// follows the moments from which all ranks' buffers are ready, and whoever goes on to use its
// buffers follows the moments at which all have moved.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "dist/threads/gate.h"
#include "dist/trace/flight_recorder.h"
#include "tensor/backend.h"

namespace zl {

inline constexpr int kMostRanks = 64;  // one bit each

using Moment = std::shared_ptr<const StreamEvent>;

// What a rank brings to a collective. In place: both addresses are the same.
struct Post {
  Call call;
  char* from = nullptr;
  char* to = nullptr;
  Moment ready;                       // from then on its buffers hold what it brings; null: already
  const std::string* text = nullptr;  // of an exchange
};

// One side of a send and a receive. The side that comes second copies.
struct Parcel {
  enum class State { posted, copying, done };
  Call call;
  int rank = 0;
  Tensor tensor;       // keeps the memory alive while the other side may copy
  int64_t record = 0;  // its number in the flight recorder
  bool carries =
      true;  // false: the two only agree that they mean the same, and the transport moves the data
  Moment ready;  // as in Post
  Moment moved;  // once done: from then on the data is on the other side
  std::atomic<State> state{State::posted};
};

class Meeting {
 public:
  Meeting(int size, std::chrono::milliseconds timeout);

  // Returns when all ranks have come with the same call. Throws CommunicationError.
  void enter(int rank, const Post& post, const EventStream& events);
  const Post& post(int rank) const { return seats_[size_t(rank)].post; }  // between enter and leave
  // When this rank will have read and written what it must; to be said between enter and leave, and
  // asked for between leave and the next enter.
  void set_moved(int rank, Moment moved) { seats_[size_t(rank)].moved = std::move(moved); }
  const Moment& moved(int rank) const { return seats_[size_t(rank)].moved; }
  // Returns when all ranks have come here. Every enter that returned must be followed by it.
  void leave(int rank) noexcept;

  // For transports that move the data themselves: returns when all ranks have come with the same
  // call, and guards no buffers. Returns the call's number in the rank's flight recorder, to be
  // told how far it comes. Throws CommunicationError.
  int64_t agree(int rank, const Call& call, const EventStream& events);
  // The same without meeting anybody, for calls that are trusted.
  int64_t trust(int rank, const Call& call, const EventStream& events);
  void tell(int rank, int64_t record, FlightRecord::State state) {
    seats_[size_t(rank)].flight.change(record, state);
  }

  // What every rank says, in the order of ranks. Throws CommunicationError.
  std::vector<std::string> exchange(int rank, const Call& call, const std::string& text,
                                    const EventStream& events);

  // Meets the other side if it is there, else leaves the parcel for it. Throws CommunicationError.
  void post(Parcel& parcel, const EventStream& events);
  // Returns when the other side has taken it. Throws CommunicationError.
  void await(Parcel& parcel);
  // Before a parcel dies: returns when nobody copies from or to it. A rank that gives up a parcel
  // without an error of its own
  // (`unwinding`) fails.
  void withdraw(Parcel& parcel, bool unwinding = std::uncaught_exceptions() > 0) noexcept;

  // The first failure is the one that all ranks report, in their current or next call. Returns
  // whether this is the first.
  bool fail(const std::string& why);
  // What a rank says in `call` of a failure that it is told.
  std::string told(int rank, const Call& call);
  [[noreturn]] void throw_failure(int rank, const Call& call) {
    throw CommunicationError(told(rank, call));
  }
  bool failed() const { return arrivals_.failed(); }
  bool was_told(int rank) const {
    return seats_[size_t(rank)].told;
  }  // whether this rank threw the failure
  // The rank makes no more calls. Whoever waits for it waits in vain.
  void rank_ended(int rank);
  // Fails if a rank has waited too long. To be called now and then by a thread that is no rank.
  void check_deadlines();
  // This process was stopped until now: waits count from here.
  void resumed() { resumed_at_ = steady_nanoseconds(); }

  const FlightRecorder& flight(int rank) const { return seats_[size_t(rank)].flight; }

  std::string failure() const;
  std::string failure_report() const;  // how things stood at the failure
  std::string report() const;          // how they stand now

 private:
  struct alignas(64) Seat {
    Post post;
    Moment moved;
    int64_t record = 0;
    bool told = false;
    FlightRecorder flight;
    std::atomic<int64_t> blocked_in{-1};  // the round of the first gate for which it sleeps
    const Parcel* awaited = nullptr;      // under mutex_
    std::condition_variable mail;         // with mutex_: a parcel of this rank was taken
  };

  void pass_departures() noexcept;
  Gate::State wait_for_all(Seat& seat, uint32_t round);
  void require_same_calls(int rank);
  void fail_locked(const std::string& why);
  void fail_if_ended_locked(const Parcel& parcel);
  void fail_if_deadlocked_locked();
  bool sleeps_for_all(int rank) const;
  std::string ended_text(int ended, const Call& waiting, int waits) const;
  std::string late_text(const FlightRecord& waiting, int64_t now) const;
  bool has_ended(int rank) const { return ended_.load() >> rank & 1; }
  std::vector<Parcel*>& mailbox(const Parcel& parcel);

  const int size_;
  const std::chrono::milliseconds timeout_;
  const int spins_;
  std::deque<Seat> seats_;
  Gate arrivals_, departures_;
  std::atomic<uint64_t> ended_{0};  // one bit per rank
  std::atomic<int> waiting_for_mail_{0};
  std::atomic<int64_t> resumed_at_{0};  // [ns]

  mutable std::mutex mutex_;  // guards the mail and the failure
  std::map<std::pair<int, int>, std::vector<Parcel*>>
      mail_;  // by sender and receiver: what waits for the other side
  std::string failure_, failure_report_;
};

}  // namespace zl
