#include "dist/threads/rendezvous.h"

#include <algorithm>
#include <bit>

#include "tensor/error.h"

namespace zl {
namespace {

// How often a rank with its own core looks at a gate before it sleeps. Shorter than the time to
// wake up, and ranks that slept once would come so late that the others sleep in turn.
constexpr int kSpins = 4000;

}  // namespace

Rendezvous::Rendezvous(int size, std::chrono::milliseconds timeout, int threads)
    : run_(*this),
      size_(size),
      spins_(threads <= int(std::thread::hardware_concurrency()) ? kSpins : 0),
      slots_(size_t(size)),
      arrivals_(size),
      departures_(size),
      timeout_(timeout),
      ranks_(size_t(size)) {}

Rendezvous::Rendezvous(Rendezvous& run, const RankGroup& group)
    : run_(run),
      group_(group),
      size_(std::popcount(group.ranks)),
      spins_(run.spins_),
      slots_(size_t(size_)),
      arrivals_(size_),
      departures_(size_),
      timeout_(run.timeout_) {}

Rendezvous& Rendezvous::group(const RankGroup& group) {
  if (group.number == 0) return *this;
  std::lock_guard lock(mutex_);
  return group_locked(group);
}

Rendezvous& Rendezvous::group_locked(const RankGroup& group) {
  if (group.number == 0) return *this;
  const auto found = std::ranges::find(groups_, group, &Rendezvous::group_);
  if (found != groups_.end()) return *found;
  ++may_deadlock_;
  Rendezvous& added = groups_.emplace_back(*this, group);
  if (failed()) added.arrivals_.fail();
  return added;
}

void Rendezvous::enter(int rank, const Contribution& contribution, const EventStream& events) {
  Slot& slot = slots_[size_t(rank)];
  const Call& call = contribution.call;
  if (failed()) throw_failure(rank, call);  // others may still read this rank's last contribution
  slot.contribution = contribution;
  slot.record = of_run(rank).flight.begin(call, events, CallState::waiting);
  const uint32_t round = arrivals_.arrive();
  fail_if_a_rank_ended(round, rank, call);
  if (wait_for_all(slot, round) == Gate::State::failed) throw_failure(rank, call);
  require_same_calls(rank);
  of_run(rank).flight.change(slot.record, CallState::moving);
}

std::vector<std::string> Rendezvous::all_gather_object(int rank, const Call& call,
                                                       const std::string& text,
                                                       const EventStream& events) {
  enter(rank, {.call = call, .text = &text}, events);
  struct Leave {
    Rendezvous& rendezvous;
    int rank;
    ~Leave() { rendezvous.leave(rank); }
  } leaves{*this, rank};
  std::vector<std::string> all;
  for (const Slot& slot : slots_) all.push_back(*slot.contribution.text);
  return all;
}

void Rendezvous::leave(int rank) noexcept {
  const uint32_t round = departures_.arrive();
  if (departures_.spin(round, spins_) == Gate::State::closed) departures_.wait(round);
  of_run(rank).flight.change(slots_[size_t(rank)].record, CallState::done);
}

Gate::State Rendezvous::wait_for_all(Slot& slot, uint32_t round) {
  if (const Gate::State state = arrivals_.spin(round, spins_); state != Gate::State::closed)
    return state;
  // Of two ranks that wait for each other one sees the other.
  slot.asleep_in = round;
  if (run_.may_deadlock_ > 0) {
    std::lock_guard lock(run_.mutex_);
    run_.fail_if_deadlocked_locked();
  }
  const Gate::State state = arrivals_.wait(round);
  slot.asleep_in = -1;
  return state;
}

// A rank sets its bit after its last call. So if one is set while the round is closed, that rank
// will not come.
void Rendezvous::fail_if_a_rank_ended(uint32_t round, int rank, const Call& call) {
  const uint64_t ended = run_.ended_.load() & (group_.number ? group_.ranks : ~uint64_t(0));
  if (ended && arrivals_.look(round) == Gate::State::closed)
    fail(ended_text(std::countr_zero(ended), run_.flights(), group_.of_run(rank), call));
}

void Rendezvous::require_same_calls(int rank) {
  const Call& first = contribution(0).call;
  int other = 1;
  while (other < size_ && contribution(other).call == first) ++other;
  if (other >= size_) return;
  std::vector<const Call*> calls(size_t(run_.size_));
  for (int r = 0; r < size_; ++r) calls[size_t(group_.of_run(r))] = &contribution(r).call;
  fail(mismatch_text(calls));
  throw_failure(rank, contribution(rank).call);
}

std::string Rendezvous::failure_in(int rank, const Call& call) {
  of_run(rank).reported = true;
  of_run(rank).flight.fail();
  return str("rank ", group_.of_run(rank), " in ", describe(call), ": ", run_.failure());
}

bool Rendezvous::fail(const std::string& why) {
  std::lock_guard lock(run_.mutex_);
  const bool first = !run_.failed();
  run_.fail_locked(why);
  return first;
}

void Rendezvous::fail_locked(const std::string& why) {
  if (failed()) return;
  failure_ = why;
  failure_report_ = str("communication failed: ", why, "\n", report());
  arrivals_.fail();
  for (Rendezvous& group : groups_) group.arrivals_.fail();
  for (RankOfRun& rank : ranks_) rank.entry_changed.notify_all();
}

std::string Rendezvous::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string Rendezvous::failure_report() const {
  std::lock_guard lock(mutex_);
  return failure_report_;
}

std::string Rendezvous::report() const {
  std::string text;
  const int64_t now = steady_nanoseconds();
  for (int r = 0; r < size_; ++r)
    text += flight_report(r, ranks_[size_t(r)].flight, has_ended(r), now);
  return text;
}

Flights Rendezvous::flights() const {
  Flights all;
  for (const RankOfRun& rank : ranks_) all.push_back(&rank.flight);
  return all;
}

void Rendezvous::rank_ended(int rank) {
  ended_.fetch_or(uint64_t(1) << rank);
  std::lock_guard lock(mutex_);
  for (int r = 0; r < size_ && !failed(); ++r) {
    if (r == rank) continue;
    const auto record = ranks_[size_t(r)].flight.in_flight();
    if (const QueueEntry* entry = ranks_[size_t(r)].awaited) {
      fail_if_ended_locked(*entry);
    } else if (record && record->call.group.has(rank)) {
      const Rendezvous& at = group_locked(record->call.group);
      if (record->state == CallState::waiting && at.arrivals_.arrived() > 0)
        fail_locked(ended_text(rank, flights(), r, record->call));
    }
  }
}

void Rendezvous::check_deadlines() {
  if (failed()) return;
  const int64_t timeout = std::chrono::nanoseconds(timeout_).count();
  if (const std::string why = overdue_text(flights(), timeout, 0); !why.empty()) fail(why);
}

}  // namespace zl
