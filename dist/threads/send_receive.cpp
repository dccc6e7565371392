// Sends and receives of ranks that are threads: two ranks meet, and the one that comes second
// copies.
#include <algorithm>

#include "dist/threads/thread_communicator.h"
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
