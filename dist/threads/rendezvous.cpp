#include "dist/threads/rendezvous.h"

#include <algorithm>
#include <bit>

#include "dist/trace/mismatch.h"
#include "tensor/error.h"

namespace zl {
namespace {

// [ns] A transport that waits for its data itself says more than a late call that is found from
// outside.
constexpr int64_t kSlack = 500'000'000;

// How often a rank with a core of its own looks before it sleeps: longer than a sleeper takes to
// wake, or those that slept once would come so late that the others sleep in turn.
constexpr int kSpins = 4000;

}  // namespace

Meeting::Meeting(int size, std::chrono::milliseconds timeout)
    : size_(size),
      timeout_(timeout),
      spins_(size <= int(std::thread::hardware_concurrency()) ? kSpins : 0),
      seats_(size_t(size)),
      arrivals_(size),
      departures_(size) {}

void Meeting::enter(int rank, const Post& post, const EventStream& events) {
  Seat& seat = seats_[size_t(rank)];
  if (failed()) throw_failure(rank, post.call);  // others may still read this rank's last post
  seat.post = post;
  seat.record = seat.flight.begin(post.call, events, FlightRecord::State::waiting);
  const uint32_t round = arrivals_.arrive();
  // A rank sets its bit after its last call, so if one is set while the round is closed, that rank
  // will not come.
  if (const uint64_t ended = ended_.load(); ended && arrivals_.look(round) == Gate::State::closed)
    fail(ended_text(std::countr_zero(ended), post.call, rank));
  if (wait_for_all(seat, round) == Gate::State::failed) throw_failure(rank, post.call);
  require_same_calls(rank);
  seat.flight.change(seat.record, FlightRecord::State::moving);
}

int64_t Meeting::agree(int rank, const Call& call, const EventStream& events) {
  enter(rank, {.call = call}, events);
  pass_departures();  // until then others read this rank's post
  return seats_[size_t(rank)].record;
}

std::vector<std::string> Meeting::exchange(int rank, const Call& call, const std::string& text,
                                           const EventStream& events) {
  enter(rank, {.call = call, .text = &text}, events);
  struct Leave {
    Meeting& meeting;
    int rank;
    ~Leave() { meeting.leave(rank); }
  } leaves{*this, rank};
  std::vector<std::string> all;
  for (const Seat& seat : seats_) all.push_back(*seat.post.text);
  return all;
}

void Meeting::pass_departures() noexcept {
  const uint32_t round = departures_.arrive();
  if (departures_.spin(round, spins_) == Gate::State::closed) departures_.wait(round);
}

void Meeting::leave(int rank) noexcept {
  pass_departures();
  Seat& seat = seats_[size_t(rank)];
  seat.flight.change(seat.record, FlightRecord::State::done);
}

Gate::State Meeting::wait_for_all(Seat& seat, uint32_t round) {
  if (const Gate::State state = arrivals_.spin(round, spins_); state != Gate::State::closed)
    return state;
  // Either this rank sees that someone waits for mail, or that one sees that this rank sleeps.
  seat.blocked_in = round;
  if (waiting_for_mail_ > 0) {
    std::lock_guard lock(mutex_);
    fail_if_deadlocked_locked();
  }
  const Gate::State state = arrivals_.wait(round);
  seat.blocked_in = -1;
  return state;
}

void Meeting::require_same_calls(int rank) {
  const Call& first = post(0).call;
  int other = 1;
  while (other < size_ && post(other).call == first) ++other;
  if (other >= size_) return;
  std::vector<const Call*> calls;
  for (int r = 0; r < size_; ++r) calls.push_back(&post(r).call);
  fail(mismatch_text(calls));
  throw_failure(rank, post(rank).call);
}

int64_t Meeting::trust(int rank, const Call& call, const EventStream& events) {
  if (failed()) throw_failure(rank, call);
  return seats_[size_t(rank)].flight.begin(call, events, FlightRecord::State::posted);
}

std::string Meeting::told(int rank, const Call& call) {
  seats_[size_t(rank)].told = true;
  seats_[size_t(rank)].flight.fail();
  return str("rank ", rank, " in ", describe(call), ": ", failure());
}

bool Meeting::fail(const std::string& why) {
  std::lock_guard lock(mutex_);
  const bool first = !failed();
  fail_locked(why);
  return first;
}

void Meeting::fail_locked(const std::string& why) {
  if (failed()) return;
  failure_ = why;
  failure_report_ = str("communication failed: ", why, "\n", report());
  arrivals_.fail();
  for (Seat& seat : seats_) seat.mail.notify_all();
}

std::string Meeting::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string Meeting::failure_report() const {
  std::lock_guard lock(mutex_);
  return failure_report_;
}

std::string Meeting::report() const {
  std::string text;
  const int64_t now = steady_nanoseconds();
  for (int r = 0; r < size_; ++r)
    text += flight_report(r, seats_[size_t(r)].flight, has_ended(r), now);
  return text;
}

void Meeting::rank_ended(int rank) {
  ended_.fetch_or(uint64_t(1) << rank);
  std::lock_guard lock(mutex_);
  for (int r = 0; r < size_ && !failed(); ++r) {
    if (r == rank) continue;
    const auto call = seats_[size_t(r)].flight.under_way();
    if (const Parcel* parcel = seats_[size_t(r)].awaited)
      fail_if_ended_locked(*parcel);
    else if (call && call->state == FlightRecord::State::waiting && arrivals_.arrived() > 0)
      fail_locked(ended_text(rank, call->call, r));
  }
}

std::string Meeting::ended_text(int ended, const Call& waiting, int waits) const {
  return str("rank ", ended, " has ended and ",
             last_seen(ended, seats_[size_t(ended)].flight, steady_nanoseconds()), ", while rank ",
             waits, " waits in ", describe(waiting), "; ", kSameOrder);
}

void Meeting::check_deadlines() {
  if (timeout_.count() <= 0 || failed()) return;
  const int64_t now = steady_nanoseconds();
  const int64_t limit = std::chrono::nanoseconds(timeout_).count();
  for (const Seat& seat : seats_)
    if (const auto record = seat.flight.under_way();
        record && !record->call.patient &&
        now - std::max(record->changed, resumed_at_.load()) >
            limit + (record->state == FlightRecord::State::moving ? kSlack : 0)) {
      fail(late_text(*record, now));
      return;
    }
}

std::string Meeting::late_text(const FlightRecord& waiting, int64_t now) const {
  const std::string limit = human_time(std::chrono::nanoseconds(timeout_).count());
  uint64_t missing = 0;
  if (waiting.call.between_two()) {
    missing = uint64_t(1) << waiting.call.peer;
  } else {
    for (int r = 0; r < size_; ++r) {
      const auto record = seats_[size_t(r)].flight.under_way();
      if (!record || record->call.between_two() || record->call.sequence != waiting.call.sequence)
        missing |= uint64_t(1) << r;
    }
  }
  if (missing == 0)
    return str("the data of ", describe(waiting.call), " did not move within ", limit);
  std::string text = waiting.call.between_two()
                         ? str("nobody met ", describe(waiting.call))
                         : str("only ", size_ - std::popcount(missing), " of ", size_,
                               " ranks came to ", describe(waiting.call));
  text += str(" within ", limit);
  for (uint64_t left = missing; left; left &= left - 1)
    text += "; " +
            last_seen(std::countr_zero(left), seats_[size_t(std::countr_zero(left))].flight, now);
  return text + str(". If ", ranks_text(missing), std::popcount(missing) == 1 ? " is" : " are",
                    " only slow, raise --timeout (0 waits for ever)");
}

}  // namespace zl
