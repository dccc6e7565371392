// Sends and receives: the part of a Rendezvous in which two ranks meet.
#include <exception>

#include "dist/threads/rendezvous.h"
#include "tensor/error.h"

namespace zl {
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
  mine.moved = other.moved =
      backend.record_event(Stream::communication);  // null on the CPU, which has moved already
}

}  // namespace

std::vector<QueueEntry*>& Rendezvous::queue(const QueueEntry& entry) {
  const bool sends = entry.call.kind == Collective::send;
  return queues_[sends ? std::pair(entry.rank, entry.call.peer)
                       : std::pair(entry.call.peer, entry.rank)];
}

void Rendezvous::post(QueueEntry& entry, const EventStream& events) {
  std::unique_lock lock(run_.mutex_);
  if (!failed()) {
    entry.record = of_run(entry.rank).flight.begin(entry.call, events, CallState::posted);
    std::vector<QueueEntry*>& waiting = queue(entry);
    if (waiting.empty() || waiting.front()->call.kind == entry.call.kind) {
      waiting.push_back(&entry);
      return;
    }
    QueueEntry& other = *waiting.front();
    waiting.erase(waiting.begin());
    const std::string mismatch =
        mismatch_text(group_.of_run(entry.rank), entry.call, group_.of_run(other.rank), other.call);
    if (mismatch.empty()) return copy_locked(entry, other, lock);
    run_.fail_locked(mismatch);
  }
  lock.unlock();
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::copy_locked(QueueEntry& entry, QueueEntry& other,
                             std::unique_lock<std::mutex>& lock) {
  RankOfRun& them = of_run(other.rank);
  entry.state = other.state = QueueEntry::State::copying;
  lock.unlock();
  try {
    copy(entry, other);
  } catch (const std::exception& error) {  // a GPU failed; the other side must not wait forever
    lock.lock();
    entry.state = other.state = QueueEntry::State::posted;
    run_.fail_locked(
        str("rank ", group_.of_run(entry.rank), " in ", describe(entry.call), ": ", error.what()));
    them.entry_changed.notify_all();  // also if something else had failed before
    throw;
  }
  lock.lock();
  of_run(entry.rank).flight.change(entry.record, CallState::done);
  them.flight.change(other.record, CallState::done);
  entry.state = other.state = QueueEntry::State::done;
  them.entry_changed.notify_all();
}

void Rendezvous::wait_for_match(QueueEntry& entry) {
  for (int i = 0; i < spins_ && entry.state != QueueEntry::State::done; ++i) spin_pause();
  std::unique_lock lock(run_.mutex_);
  RankOfRun& self = of_run(entry.rank);
  if (entry.state == QueueEntry::State::posted && !failed()) {
    self.awaited = &entry;
    ++run_.may_deadlock_;
    self.flight.change(entry.record, CallState::waiting);
    run_.fail_if_ended_locked(entry);
    run_.fail_if_deadlocked_locked();
    self.entry_changed.wait(lock, [&] {
      return entry.state == QueueEntry::State::done ||
             (failed() && entry.state == QueueEntry::State::posted);
    });
    --run_.may_deadlock_;
    self.awaited = nullptr;
  }
  self.entry_changed.wait(lock, [&] { return entry.state != QueueEntry::State::copying; });
  if (entry.state == QueueEntry::State::done) return;
  lock.unlock();
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::withdraw(QueueEntry& entry, bool unwinding) noexcept {
  std::unique_lock lock(run_.mutex_);
  of_run(entry.rank).entry_changed.wait(lock, [&] {
    return entry.state != QueueEntry::State::copying;
  });
  if (entry.state == QueueEntry::State::done) return;
  std::erase(queue(entry), &entry);
  if (!unwinding)
    run_.fail_locked(str("rank ", group_.of_run(entry.rank), " dropped the Work of ",
                         describe(entry.call), " before the other side came; call wait() on it"));
}

void Rendezvous::fail_if_ended_locked(const QueueEntry& entry) {
  const RankGroup& group = entry.call.group;
  const int peer = entry.call.peer_of_run();
  if (entry.state == QueueEntry::State::posted && has_ended(peer))
    fail_locked(ended_text(peer, flights(), group.of_run(entry.rank), entry.call));
}

WaitingRank Rendezvous::waiting_locked(int rank) const {
  if (const QueueEntry* entry = ranks_[size_t(rank)].awaited) {
    if (entry->state != QueueEntry::State::posted) return {};
    return {.call = &entry->call, .peer = entry->call.peer_of_run(), .round = entry->record};
  }
  const auto asleep_at = [rank](const Rendezvous& at) -> WaitingRank {
    if (!at.group_.has(rank)) return {};
    const auto r = size_t(at.group_.in_group(rank));
    const int64_t round = at.arrivals_.round();
    if (at.slots_[r].asleep_in != round) return {};
    return {.call = &at.contribution(int(r)).call, .group = at.group_, .round = round};
  };
  WaitingRank waiting = asleep_at(*this);
  for (auto at = groups_.begin(); !waiting.call && at != groups_.end(); ++at)
    waiting = asleep_at(*at);
  return waiting;
}

std::vector<WaitingRank> Rendezvous::waiting_locked() const {
  std::vector<WaitingRank> all;
  for (int r = 0; r < size_; ++r) all.push_back(waiting_locked(r));
  return all;
}

// Ranks go to sleep and wake up meanwhile. Those that are found in a circle, and then wait in the
// same calls as before, waited for each other.
void Rendezvous::fail_if_deadlocked_locked() {
  for (;;) {
    const std::vector<WaitingRank> before = waiting_locked(), now = waiting_locked();
    const uint64_t stuck = deadlocked(before);
    if (!stuck) return;
    bool still = true;
    for (size_t r = 0; r < now.size(); ++r) still &= !(stuck >> r & 1) || now[r] == before[r];
    if (still) return fail_locked(deadlock_text(before));
  }
}

}  // namespace zl
