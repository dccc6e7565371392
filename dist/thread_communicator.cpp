#include "dist/thread_communicator.h"

#include <algorithm>
#include <array>
#include <memory>

#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

// The first element, in memory that all ranks can reach.
char* address_of(const Tensor& tensor, const Call& call) {
  const Backend& backend = tensor.backend();
  require(backend.holds_data(), name(call.kind), " '", call.name, "': ranks that are threads exchange values, but a tensor on ",
          backend.name(), " has none");
  return static_cast<char*>(tensor.address());
}

Post in_place(const Tensor& tensor, const Call& call) {
  char* address = address_of(tensor, call);
  return {call, address, address};
}

// What the compute lane must follow before it may touch the buffers of a call, or before they may be given back: it does so
// when the Work is waited for, or dropped.
class Arrival {
 public:
  explicit Arrival(Backend& backend) : backend_(backend) {}
  Arrival(const Arrival&) = delete;
  ~Arrival() { wait(); }
  void add(Moment moved) { moments_.push_back(std::move(moved)); }
  void wait() {
    for (const Moment& moved : std::exchange(moments_, {})) backend_.follow(Lane::compute, moved.get());
  }

 private:
  Backend& backend_;
  std::vector<Moment> moments_;
};

}  // namespace

// Everyone shows what it brings, then `move(posts)` may read and write every rank's buffers, then
// all leave together, also if a listener of the event stream throws.
template <class Move>
Work ThreadCommunicator::meet(Backend& backend, Post post, Move move) {
  struct Leave {
    Meeting& meeting;
    int rank;
    ~Leave() { meeting.leave(rank); }
  };
  post.ready = backend.mark(Lane::compute);
  meeting_.enter(rank(), post, events());
  {
    const Leave leave{meeting_, rank()};
    met(post.call);
    for (int r = 0; r < size(); ++r) backend.follow(Lane::communication, meeting_.post(r).ready.get());
    move([this](int r) -> const Post& { return meeting_.post(r); });
    meeting_.set_moved(rank(), backend.mark(Lane::communication));
  }
  if (!meeting_.moved(rank())) return {};
  const auto arrival = std::make_shared<Arrival>(backend);
  for (int r = 0; r < size(); ++r) arrival->add(meeting_.moved(r));
  return Work([arrival] { arrival->wait(); });
}

// Rank r adds chunk r of all buffers and writes the sum into all of them: one pass, and nobody else
// reads chunk r.
Work ThreadCommunicator::do_all_reduce(const Tensor& inout, const Call& call) {
  return meet(inout.backend(), in_place(inout, call), [&](auto post) {
    std::array<char*, kMostRanks> buffers;
    for (int r = 0; r < size(); ++r) buffers[size_t(r)] = post(r).to;
    const int64_t line = 64;  // [n] chunks begin in cache lines of their own
    const int64_t chunk = ((call.count + size() - 1) / size() + line - 1) / line * line;
    const int64_t begin = std::min(rank() * chunk, call.count),
                  end = std::min(begin + chunk, call.count);
    const std::span all(buffers.data(), size_t(size()));
    inout.backend().ordered_sum({all, all, begin, end, call.dtype, call.reduction == Reduction::mean});
  });
}

Work ThreadCommunicator::do_reduce_scatter(const Tensor& whole, const Call& call) {
  return meet(whole.backend(), in_place(whole, call), [&](auto post) {
    std::array<char*, kMostRanks> buffers;
    for (int r = 0; r < size(); ++r) buffers[size_t(r)] = post(r).from;
    const int64_t shard = call.count / size();
    const std::span all(buffers.data(), size_t(size()));
    whole.backend().ordered_sum({all, all.subspan(size_t(rank()), 1), rank() * shard, (rank() + 1) * shard, call.dtype,
                                 call.reduction == Reduction::mean});
  });
}

Work ThreadCommunicator::do_all_gather(const Tensor& whole, const Call& call) {
  return meet(whole.backend(), in_place(whole, call), [&](auto post) {
    const int64_t shard = whole.bytes() / size();
    for (int i = 1; i < size();
         ++i) {  // beginning with the neighbour, so that not all read the same rank
      const int r = (rank() + i) % size();
      whole.backend().move_bytes(post(r).from + r * shard, post(rank()).to + r * shard, shard);
    }
  });
}

Work ThreadCommunicator::do_broadcast(const Tensor& inout, const Call& call) {
  return meet(inout.backend(), in_place(inout, call), [&](auto post) {
    if (rank() != call.peer) inout.backend().move_bytes(post(call.peer).from, post(rank()).to, inout.bytes());
  });
}

Work ThreadCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) {
  return meet(from.backend(), {call, address_of(from, call), address_of(to, call)}, [&](auto post) {
    const int64_t shard = from.bytes() / size();
    for (int i = 0; i < size(); ++i) {
      const int r = (rank() + i) % size();
      from.backend().move_bytes(post(r).from + rank() * shard, post(rank()).to + r * shard, shard);
    }
  });
}

Work ThreadCommunicator::do_barrier(const Call& call) {
  return meet(cpu_backend(), {.call = call}, [](auto) {});
}

Work ThreadCommunicator::mail(const Tensor& tensor, const Call& call) {
  (void)address_of(tensor, call);
  const auto ticket = std::make_shared<Ticket>(meeting_, rank(), tensor, call);
  ticket->parcel.ready = tensor.backend().mark(Lane::compute);
  meeting_.post(ticket->parcel, events());
  const auto arrived = [this, ticket, call] {
    ticket->parcel.tensor.backend().follow(Lane::compute, ticket->parcel.moved.get());
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
