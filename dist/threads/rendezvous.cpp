#include "dist/threads/rendezvous.h"

#include <algorithm>
#include <bit>

#include "tensor/error.h"

namespace zl {
namespace {

// How often a rank with its own core looks at a gate before it sleeps. Shorter than the time to
// wake up, and ranks that slept once would come so late that the others sleep in turn.
constexpr int kSpins = 4000;

Waits waits_of(const Flights& flights) {
  Waits waits(flights.size());
  for (size_t r = 0; r < flights.size(); ++r)
    if (const auto record = flights[r]->in_flight(); record && record->state == CallState::waiting)
      waits[r] = record->call;
  return waits;
}

}  // namespace

Rendezvous::Rendezvous(int size, std::chrono::milliseconds timeout, int threads)
    : run_(*this),
      size_(size),
      spins_(threads <= int(std::thread::hardware_concurrency()) ? kSpins : 0),
      timeout_(timeout),
      flights_(size_t(size)) {}

Rendezvous::Rendezvous(Rendezvous& run, const RankGroup& group)
    : run_(run),
      group_(group),
      size_(std::popcount(group.ranks)),
      spins_(run.spins_),
      timeout_(run.timeout_) {}

Rendezvous& Rendezvous::group(const RankGroup& group) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(groups_, group, &Rendezvous::group_);
  if (found != groups_.end()) return *found;
  Rendezvous& added = groups_.emplace_back(*this, group);
  if (failed()) added.arrivals_.fail();
  return added;
}

void Rendezvous::enter(int rank, const Contribution& contribution, const EventStream& events) {
  Slot& slot = slots_[size_t(rank)];
  const Call& call = contribution.call;
  if (failed()) throw_failure(rank, call);  // others may still read this rank's last contribution
  slot.contribution = contribution;
  slot.record = flight(rank).begin(call, events, CallState::waiting);
  if (arrivals_.wait(arrivals_.arrive(), spins_) == Gate::State::failed) throw_failure(rank, call);
  require_same_calls(rank);
  flight(rank).change(slot.record, CallState::moving);
}

std::vector<std::string> Rendezvous::all_gather_object(int rank, const Call& call,
                                                       const std::string& text,
                                                       const EventStream& events) {
  enter(rank, {.call = call, .text = &text}, events);
  const std::shared_ptr<void> leaves(nullptr, [&](void*) { leave(rank); });  // at the end
  std::vector<std::string> all;
  for (const Slot& slot : slots_) all.push_back(*slot.contribution.text);
  return all;
}

void Rendezvous::leave(int rank) noexcept {
  departures_.wait(departures_.arrive(), spins_);
  flight(rank).change(slots_[size_t(rank)].record, CallState::done);
}

void Rendezvous::require_same_calls(int rank) {
  const Call& first = contribution(0).call;
  const auto same = [&](const Slot& slot) { return slot.contribution.call == first; };
  if (std::ranges::all_of(slots_, same)) return;
  std::vector<const Call*> calls(size_t(run_.size_));
  for (int r = 0; r < size_; ++r) calls[size_t(group_.of_run(r))] = &contribution(r).call;
  fail(mismatch_text(calls));
  throw_failure(rank, contribution(rank).call);
}

void Rendezvous::throw_failure(int rank, const Call& call) {
  flight(rank).fail();
  throw RunHasFailed(
      str("rank ", group_.of_run(rank), " in ", describe(call), ": ", run_.failure().why));
}

void Rendezvous::fail(const std::string& why) {
  std::lock_guard lock(run_.mutex_);
  if (failed()) return;
  run_.failure_ = {why, str("communication failed: ", why, "\n", run_.report())};
  run_.arrivals_.fail();
  for (Rendezvous& group : run_.groups_) group.arrivals_.fail();
  run_.entry_changed_.notify_all();
}

Rendezvous::Failure Rendezvous::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string Rendezvous::report() const {
  std::string text;
  for (int r = 0; r < size_; ++r)
    text += flight_report(r, flights_[size_t(r)], ended_ >> r & 1, steady_nanoseconds());
  return text;
}

// Ranks go on meanwhile. Those that are seen in the same call in both looks all waited between the
// looks. A rank that has ended never comes to the call of one that waits: no rank leaves
// a collective before all have stopped waiting in it.
void Rendezvous::check() {
  if (failed()) return;
  Flights flights;
  for (const FlightRecorder& flight : flights_) flights.push_back(&flight);
  const uint64_t ended = ended_;
  Waits before = waits_of(flights), now = waits_of(flights);
  for (size_t r = 0; r < now.size(); ++r)
    if (now[r] != before[r]) now[r].reset();
  std::string why = stuck_text(now, ended, flights);
  if (why.empty()) why = overdue_text(flights, std::chrono::nanoseconds(timeout_).count(), 0);
  if (!why.empty()) fail(why);
}

// ---- sends and receives, in which two ranks meet ---------------------------------------------

namespace {

// From the side that sends to the side that receives, in the communication stream of `mine`.
void copy(QueueEntry& mine, QueueEntry& other) {
  if (mine.call.count == 0) return;
  const bool sends = mine.call.kind == Collective::send;
  const Tensor &from = (sends ? mine : other).tensor, &to = (sends ? other : mine).tensor;
  Backend& backend = mine.tensor.backend();
  for (const QueueEntry* side : {&mine, &other})
    backend.wait_event(Stream::communication, side->ready.get());
  backend.move_bytes(from.address(), to.address(), from.bytes());
  // Null on the CPU, which has moved already.
  mine.moved = other.moved = backend.record_event(Stream::communication);
}

}  // namespace

std::vector<QueueEntry*>& Rendezvous::queue(const QueueEntry& entry) {
  const bool sends = entry.call.kind == Collective::send;
  return queues_[sends ? std::pair(entry.rank, entry.call.peer)
                       : std::pair(entry.call.peer, entry.rank)];
}

void Rendezvous::post(QueueEntry& entry, const EventStream& events) {
  std::unique_lock lock(run_.mutex_);
  std::string mismatch;
  if (!failed()) {
    entry.record = flight(entry.rank).begin(entry.call, events, CallState::posted);
    std::vector<QueueEntry*>& waiting = queue(entry);
    if (waiting.empty() || waiting.front()->call.kind == entry.call.kind) {
      waiting.push_back(&entry);
      return;
    }
    QueueEntry& other = *waiting.front();
    waiting.erase(waiting.begin());
    mismatch =
        mismatch_text(group_.of_run(entry.rank), entry.call, group_.of_run(other.rank), other.call);
    if (mismatch.empty()) return copy_locked(entry, other, lock);
  }
  lock.unlock();
  if (!mismatch.empty()) fail(mismatch);
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::copy_locked(QueueEntry& entry, QueueEntry& other,
                             std::unique_lock<std::mutex>& lock) {
  entry.state = other.state = QueueEntry::State::copying;
  lock.unlock();
  try {
    copy(entry, other);
  } catch (const std::exception& error) {  // a GPU failed; the other side must not wait forever
    fail(str("rank ", group_.of_run(entry.rank), " in ", describe(entry.call), ": ", error.what()));
    lock.lock();
    entry.state = other.state = QueueEntry::State::posted;
    run_.entry_changed_.notify_all();  // also if something else had failed before
    throw;
  }
  lock.lock();
  flight(entry.rank).change(entry.record, CallState::done);
  flight(other.rank).change(other.record, CallState::done);
  entry.state = other.state = QueueEntry::State::done;
  run_.entry_changed_.notify_all();
}

void Rendezvous::wait_for_match(QueueEntry& entry) {
  for (int i = 0; i < spins_ && entry.state != QueueEntry::State::done; ++i) spin_pause();
  std::unique_lock lock(run_.mutex_);
  if (entry.state == QueueEntry::State::posted && !failed())
    flight(entry.rank).change(entry.record, CallState::waiting);
  run_.entry_changed_.wait(lock, [&] {
    return entry.state == QueueEntry::State::done ||
           (failed() && entry.state == QueueEntry::State::posted);
  });
  if (entry.state == QueueEntry::State::done) return;
  lock.unlock();
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::withdraw(QueueEntry& entry, bool unwinding) noexcept {
  std::unique_lock lock(run_.mutex_);
  run_.entry_changed_.wait(lock, [&] { return entry.state != QueueEntry::State::copying; });
  if (entry.state == QueueEntry::State::done) return;
  std::erase(queue(entry), &entry);
  lock.unlock();
  if (!unwinding)
    fail(str("rank ", group_.of_run(entry.rank), " dropped the Work of ", describe(entry.call),
             " before the other side came; call wait() on it"));
}

}  // namespace zl
