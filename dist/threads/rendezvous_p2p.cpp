// Sends and receives: the part of a Rendezvous in which two ranks meet.
#include <exception>

#include "dist/threads/rendezvous.h"
#include "tensor/error.h"

namespace zl {
namespace {

// From the side that sends to the side that receives, in the communication stream of `mine`.
void copy(QueueEntry& mine, QueueEntry& other) {
  if (!mine.has_data || mine.call.count == 0) return;
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
  std::unique_lock lock(mutex_);
  if (!failed()) {
    entry.record = slots_[size_t(entry.rank)].flight.begin(entry.call, events, CallState::posted);
    std::vector<QueueEntry*>& waiting = queue(entry);
    if (waiting.empty() || waiting.front()->call.kind == entry.call.kind) {
      waiting.push_back(&entry);
      return;
    }
    QueueEntry& other = *waiting.front();
    waiting.erase(waiting.begin());
    const std::string mismatch = mismatch_text(entry.rank, entry.call, other.rank, other.call);
    if (mismatch.empty()) return copy_locked(entry, other, lock);
    fail_locked(mismatch);
  }
  lock.unlock();
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::copy_locked(QueueEntry& entry, QueueEntry& other,
                             std::unique_lock<std::mutex>& lock) {
  Slot& their_slot = slots_[size_t(other.rank)];
  entry.state = other.state = QueueEntry::State::copying;
  lock.unlock();
  try {
    copy(entry, other);
  } catch (const std::exception& error) {  // a GPU failed; the other side must not wait forever
    lock.lock();
    entry.state = other.state = QueueEntry::State::posted;
    fail_locked(str("rank ", entry.rank, " in ", describe(entry.call), ": ", error.what()));
    their_slot.entry_changed.notify_all();  // also if something else had failed before
    throw;
  }
  lock.lock();
  slots_[size_t(entry.rank)].flight.change(entry.record, CallState::done);
  their_slot.flight.change(other.record, CallState::done);
  entry.state = other.state = QueueEntry::State::done;
  their_slot.entry_changed.notify_all();
}

void Rendezvous::wait_for_match(QueueEntry& entry) {
  for (int i = 0; i < spins_ && entry.state != QueueEntry::State::done; ++i) spin_pause();
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[size_t(entry.rank)];
  if (entry.state == QueueEntry::State::posted && !failed()) {
    slot.awaited = &entry;
    ++waiting_for_match_;
    slot.flight.change(entry.record, CallState::waiting);
    fail_if_ended_locked(entry);
    fail_if_deadlocked_locked();
    slot.entry_changed.wait(lock, [&] {
      return entry.state == QueueEntry::State::done ||
             (failed() && entry.state == QueueEntry::State::posted);
    });
    --waiting_for_match_;
    slot.awaited = nullptr;
  }
  slot.entry_changed.wait(lock, [&] { return entry.state != QueueEntry::State::copying; });
  if (entry.state == QueueEntry::State::done) return;
  lock.unlock();
  throw_failure(entry.rank, entry.call);
}

void Rendezvous::withdraw(QueueEntry& entry, bool unwinding) noexcept {
  std::unique_lock lock(mutex_);
  slots_[size_t(entry.rank)].entry_changed.wait(
      lock, [&] { return entry.state != QueueEntry::State::copying; });
  if (entry.state == QueueEntry::State::done) return;
  std::erase(queue(entry), &entry);
  if (!unwinding)
    fail_locked(str("rank ", entry.rank, " dropped the Work of ", describe(entry.call),
                    " before the other side came; call wait() on it"));
}

void Rendezvous::fail_if_ended_locked(const QueueEntry& entry) {
  if (entry.state == QueueEntry::State::posted && has_ended(entry.call.peer))
    fail_locked(ended_text(entry.call.peer, flights(), entry.rank, entry.call));
}

void Rendezvous::fail_if_deadlocked_locked() {
  const auto point_to_point = [this](int rank) -> const Call* {
    const QueueEntry* entry = slots_[size_t(rank)].awaited;
    return entry && entry->state == QueueEntry::State::posted ? &entry->call : nullptr;
  };
  const auto collective = [this](int rank) -> const Call* {
    const bool asleep = slots_[size_t(rank)].asleep_in == int64_t(arrivals_.round());
    return asleep ? &contribution(rank).call : nullptr;
  };
  const std::string why = deadlock_text(size_, point_to_point, collective);
  if (!why.empty()) fail_locked(why);
}

}  // namespace zl
