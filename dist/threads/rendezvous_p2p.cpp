// Sends and receives: the part of Meeting where two ranks meet.
#include <algorithm>
#include <exception>

#include "dist/threads/rendezvous.h"
#include "tensor/error.h"

namespace zl {
namespace {

// Whether a send and a receive that met mean the same.
bool fit(const Call& a, const Call& b) {
  return a.dtype == b.dtype && a.count == b.count && a.sequence == b.sequence && a.name == b.name;
}

std::string mismatch_text(const Parcel& a, const Parcel& b) {
  return str("rank ", a.rank, " calls ", describe(a.call), " while rank ", b.rank, " calls ",
             describe(b.call),
             "; between two ranks the first send meets the first receive, with the same name, type "
             "and count");
}

// From the side that sends to the side that receives, in the communication lane of `mine`.
void copy(Parcel& mine, Parcel& other) {
  if (!mine.carries || mine.call.count == 0) return;
  const bool sends = mine.call.kind == Collective::send;
  const Tensor &from = (sends ? mine : other).tensor, &to = (sends ? other : mine).tensor;
  Backend& backend = mine.tensor.backend();
  for (const Parcel* side : {&mine, &other})
    backend.wait_event(Stream::communication, side->ready.get());
  backend.move_bytes(from.address(), to.address(), from.bytes());
  mine.moved = other.moved =
      backend.record_event(Stream::communication);  // null on the CPU, which has moved already
}

}  // namespace

std::vector<Parcel*>& Meeting::mailbox(const Parcel& parcel) {
  const bool sends = parcel.call.kind == Collective::send;
  return mail_[sends ? std::pair(parcel.rank, parcel.call.peer)
                     : std::pair(parcel.call.peer, parcel.rank)];
}

void Meeting::post(Parcel& parcel, const EventStream& events) {
  std::unique_lock lock(mutex_);
  Seat& seat = seats_[size_t(parcel.rank)];
  if (!failed()) {
    parcel.record = seat.flight.begin(parcel.call, events, FlightRecord::State::posted);
    std::vector<Parcel*>& waiting = mailbox(parcel);
    if (waiting.empty() || waiting.front()->call.kind == parcel.call.kind) {
      waiting.push_back(&parcel);
      return;
    }
    Parcel& other = *waiting.front();
    waiting.erase(waiting.begin());
    if (fit(parcel.call, other.call)) {
      parcel.state = other.state = Parcel::State::copying;
      lock.unlock();
      try {
        copy(parcel, other);
      } catch (const std::exception& error) {  // of a GPU; the other side must not wait for ever
        lock.lock();
        parcel.state = other.state = Parcel::State::posted;
        fail_locked(str("rank ", parcel.rank, " in ", describe(parcel.call), ": ", error.what()));
        seats_[size_t(other.rank)].mail.notify_all();  // also if something else had failed before
        throw;
      }
      lock.lock();
      seat.flight.change(parcel.record, FlightRecord::State::done);
      seats_[size_t(other.rank)].flight.change(other.record, FlightRecord::State::done);
      parcel.state = other.state = Parcel::State::done;
      seats_[size_t(other.rank)].mail.notify_all();
      return;
    }
    fail_locked(mismatch_text(parcel, other));
  }
  lock.unlock();
  throw_failure(parcel.rank, parcel.call);
}

void Meeting::await(Parcel& parcel) {
  for (int i = 0; i < spins_ && parcel.state != Parcel::State::done; ++i) Gate::relax();
  std::unique_lock lock(mutex_);
  Seat& seat = seats_[size_t(parcel.rank)];
  if (parcel.state == Parcel::State::posted && !failed()) {
    seat.awaited = &parcel;
    ++waiting_for_mail_;
    seat.flight.change(parcel.record, FlightRecord::State::waiting);
    fail_if_ended_locked(parcel);
    fail_if_deadlocked_locked();
    seat.mail.wait(lock, [&] {
      return parcel.state == Parcel::State::done ||
             (failed() && parcel.state == Parcel::State::posted);
    });
    --waiting_for_mail_;
    seat.awaited = nullptr;
  }
  seat.mail.wait(lock, [&] { return parcel.state != Parcel::State::copying; });
  if (parcel.state == Parcel::State::done) return;
  lock.unlock();
  throw_failure(parcel.rank, parcel.call);
}

void Meeting::withdraw(Parcel& parcel, bool unwinding) noexcept {
  std::unique_lock lock(mutex_);
  seats_[size_t(parcel.rank)].mail.wait(lock,
                                        [&] { return parcel.state != Parcel::State::copying; });
  if (parcel.state == Parcel::State::done) return;
  std::erase(mailbox(parcel), &parcel);
  if (!unwinding)
    fail_locked(str("rank ", parcel.rank, " dropped the Work of ", describe(parcel.call),
                    " before the other side came; wait for it"));
}

void Meeting::fail_if_ended_locked(const Parcel& parcel) {
  if (parcel.state == Parcel::State::posted && has_ended(parcel.call.peer))
    fail_locked(ended_text(parcel.call.peer, parcel.call, parcel.rank));
}

bool Meeting::sleeps_for_all(int rank) const {
  return seats_[size_t(rank)].blocked_in == int64_t(arrivals_.round());
}

// Whoever waits for mail waits for one other rank, and cannot come to a collective. So it waits in
// vain if the chain of ranks that begins with it ends in one that waits for all, or bites its own
// tail.
void Meeting::fail_if_deadlocked_locked() {
  const auto awaits = [&](int r) {
    const Parcel* parcel = seats_[size_t(r)].awaited;
    return parcel && parcel->state == Parcel::State::posted ? parcel : nullptr;
  };
  for (int first = 0; first < size_; ++first) {
    const Parcel* parcel = awaits(first);
    for (int steps = 0; parcel; ++steps) {
      const int next = parcel->call.peer;
      if (const Parcel* after = awaits(next); after && steps < size_) {
        parcel = after;
      } else if (after) {
        return fail_locked(
            str("rank ", parcel->rank, " waits in ", describe(parcel->call), " while rank ", next,
                " waits in ", describe(after->call),
                ", and so on in a circle; let one of them send what the other receives"));
      } else if (sleeps_for_all(next)) {
        return fail_locked(str("rank ", parcel->rank, " waits in ", describe(parcel->call),
                               " while rank ", next, " waits in ", describe(post(next).call),
                               "; neither can go on"));
      } else {
        break;
      }
    }
  }
}

}  // namespace zl
