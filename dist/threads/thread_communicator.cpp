#include "dist/threads/thread_communicator.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>

#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

// The first element, in memory that all ranks can reach; null if the call brings nothing.
char* address_of(const Tensor& tensor, const Call& call) {
  if (!tensor.defined()) return nullptr;
  const Backend& backend = tensor.backend();
  require(backend.holds_data(), name(call.kind), " '", call.name,
          "': ranks that are threads exchange values, but a tensor on ", backend.name(),
          " has none");
  return static_cast<char*>(tensor.address());
}

// In destructors, where a GPU that no longer answers must not end the process: the next call to it
// will say so.
void follow_or_give_up(Backend& backend, const Moment& moment) noexcept {
  try {
    backend.wait_event(Stream::compute, moment.get());
  } catch (const std::exception&) {
  }
}

// Lets the compute lane follow all ranks' moves, when the Work is waited for or dropped; keeps the
// buffers alive until then.
class Arrival {
 public:
  Arrival(const Tensor& from, const Tensor& to) : from_(from), to_(to) {}
  Arrival(const Arrival&) = delete;
  ~Arrival() {
    for (const Moment& moved : moments_) follow_or_give_up(to_.backend(), moved);
  }
  void add(Moment moved) { moments_.push_back(std::move(moved)); }
  void wait() {
    for (const Moment& moved : moments_) to_.backend().wait_event(Stream::compute, moved.get());
    moments_.clear();
  }

 private:
  Tensor from_, to_;
  std::vector<Moment> moments_;
};

// What this rank posted, until the other side has taken it or this rank gives up.
struct Ticket {
  Ticket(Meeting& meeting, int rank, const Tensor& tensor, const Call& call)
      : meeting(meeting), parcel{.call = call, .rank = rank, .tensor = tensor} {
    parcel.ready = tensor.backend().record_event(Stream::compute);
  }
  Ticket(const Ticket&) = delete;
  ~Ticket() {
    meeting.withdraw(parcel);
    follow_or_give_up(parcel.tensor.backend(), parcel.moved);
  }
  Meeting& meeting;
  Parcel parcel;
};

}  // namespace

// Everyone shows what it brings, then `move(posts)` may read and write every rank's buffers, then
// all leave together. So it is also if a listener of the event stream throws, or a GPU does: this
// rank then leaves with that error, but first follows what the others' lanes were told to do with
// its buffers, and lets them follow what its own was.
template <class Move>
Work ThreadCommunicator::meet(const Tensor& from, const Tensor& to, const Call& call, Move move) {
  Backend& backend = to.defined() ? to.backend() : cpu_backend();
  meeting_.enter(
      rank(),
      {call, address_of(from, call), address_of(to, call), backend.record_event(Stream::compute)},
      events());
  std::exception_ptr error;
  Moment moved;
  const auto attempt = [&error](const auto& what) {
    try {
      what();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  attempt([&] {
    met(call);
    for (int r = 0; r < size(); ++r)
      backend.wait_event(Stream::communication, meeting_.post(r).ready.get());
    move([this](int r) -> const Post& { return meeting_.post(r); });
  });
  attempt([&] { moved = backend.record_event(Stream::communication); });
  if (error) attempt([&] { backend.synchronize(); });  // whatever was told is over, marked or not
  meeting_.set_moved(rank(), std::move(moved));
  meeting_.leave(rank());
  std::shared_ptr<Arrival> arrival;
  for (int r = 0; r < size(); ++r) {
    if (!meeting_.moved(r)) continue;  // a rank on the CPU, which has moved already
    if (!arrival) arrival = std::make_shared<Arrival>(from, to);
    arrival->add(meeting_.moved(r));
  }
  if (error) std::rethrow_exception(error);
  if (!arrival) return {};
  return Work([arrival] { arrival->wait(); });
}

// Rank r adds chunk r of all buffers and writes the sum into all of them: one pass, and nobody else
// reads chunk r.
Work ThreadCommunicator::do_all_reduce(const Tensor& inout, const Call& call) {
  return meet(inout, inout, call, [&](auto post) {
    std::array<char*, kMostRanks> buffers;
    for (int r = 0; r < size(); ++r) buffers[size_t(r)] = post(r).to;
    const int64_t line = 64;  // [n] chunks begin in cache lines of their own
    const int64_t chunk = ((call.count + size() - 1) / size() + line - 1) / line * line;
    const int64_t begin = std::min(rank() * chunk, call.count),
                  end = std::min(begin + chunk, call.count);
    const std::span all(buffers.data(), size_t(size()));
    inout.backend().ordered_sum(
        {all, all, begin, end, call.dtype, call.reduction == Reduction::mean});
  });
}

Work ThreadCommunicator::do_reduce_scatter(const Tensor& whole, const Call& call) {
  return meet(whole, whole, call, [&](auto post) {
    std::array<char*, kMostRanks> buffers;
    for (int r = 0; r < size(); ++r) buffers[size_t(r)] = post(r).from;
    const int64_t shard = call.count / size();
    const std::span all(buffers.data(), size_t(size()));
    whole.backend().ordered_sum({all, all.subspan(size_t(rank()), 1), rank() * shard,
                                 (rank() + 1) * shard, call.dtype,
                                 call.reduction == Reduction::mean});
  });
}

Work ThreadCommunicator::do_all_gather(const Tensor& whole, const Call& call) {
  return meet(whole, whole, call, [&](auto post) {
    const int64_t shard = whole.bytes() / size();
    for (int i = 1; i < size();
         ++i) {  // beginning with the neighbour, so that not all read the same rank
      const int r = (rank() + i) % size();
      whole.backend().move_bytes(post(r).from + r * shard, post(rank()).to + r * shard, shard);
    }
  });
}

Work ThreadCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  return meet(inout, inout, call, [&](auto post) {
    if (rank() != call.peer)
      inout.backend().move_bytes(post(call.peer).from, post(rank()).to, inout.bytes());
  });
}

Work ThreadCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  return meet(from, to, call, [&](auto post) {
    const int64_t shard = from.bytes() / size();
    for (int i = 0; i < size(); ++i) {
      const int r = (rank() + i) % size();
      from.backend().move_bytes(post(r).from + rank() * shard, post(rank()).to + r * shard, shard);
    }
  });
}

Work ThreadCommunicator::do_barrier(const Call& call) {
  return meet({}, {}, call, [](auto) {});
}

Work ThreadCommunicator::mail(const Tensor& tensor, const Call& call) {
  (void)address_of(tensor, call);
  const auto ticket = std::make_shared<Ticket>(meeting_, rank(), tensor, call);
  meeting_.post(ticket->parcel, events());
  const auto arrived = [this, ticket, call] {
    ticket->parcel.tensor.backend().wait_event(Stream::compute, ticket->parcel.moved.get());
    met(call);
  };
  if (ticket->parcel.state == Parcel::State::done) {
    arrived();
    return {};
  }
  return Work([this, ticket, arrived] {
    meeting_.await(ticket->parcel);
    arrived();
  });
}

}  // namespace zl
