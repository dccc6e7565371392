#include "dist/threads/thread_communicator.h"

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

const std::vector<Contribution>& Rendezvous::enter(int rank, Contribution contribution,
                                                   const EventStream& events) {
  Contribution& mine = contributions_[size_t(rank)];
  // Others may still read this rank's last one.
  if (failed()) throw_failure(rank, contribution.call);
  mine = std::move(contribution);
  mine.record = flight(rank).begin(mine.call, events, CallState::waiting);
  if (!arrivals_.opens(arrivals_.arrive(), spins_)) throw_failure(rank, mine.call);
  require_same_calls(rank);
  flight(rank).change(mine.record, CallState::moving);
  return contributions_;
}

const std::vector<SharedEvent>& Rendezvous::leave(int rank, SharedEvent moved) noexcept {
  moved_[size_t(rank)] = std::move(moved);
  departures_.opens(departures_.arrive(), spins_);
  flight(rank).change(contributions_[size_t(rank)].record, CallState::done);
  return moved_;
}

void Rendezvous::require_same_calls(int rank) {
  const Call& first = contributions_[0].call;
  const auto same = [&](const Contribution& of_rank) { return of_rank.call == first; };
  if (std::ranges::all_of(contributions_, same)) return;
  std::vector<const Call*> calls(size_t(run_.size_));
  for (int r = 0; r < size_; ++r) calls[size_t(group_.of_run(r))] = &contributions_[size_t(r)].call;
  fail(mismatch_text(calls));
  throw_failure(rank, contributions_[size_t(rank)].call);
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

// ---- the communicator of one rank ------------------------------------------------------------

namespace {

// The first element, in memory that all ranks can reach; null if the call brings nothing.
char* address_of(const Tensor& tensor, const Call& call) {
  if (!tensor.defined()) return nullptr;
  const Backend& backend = tensor.backend();
  if (!backend.holds_data())
    refuse(name(call.kind), " '", call.name,
           "': ranks that are threads communicate values, but a tensor on ", backend.name(),
           " has none");
  return static_cast<char*>(tensor.address());
}

// For destructors, where a GPU that no longer answers must not end the process: the next call to
// the GPU reports it.
void wait_event_or_give_up(Backend& backend, const SharedEvent& event) noexcept {
  try {
    backend.wait_event(Stream::compute, event.get());
  } catch (const std::exception&) {
  }
}

// What a collective keeps until its Work is waited for or dropped: its buffers, and the events that
// the compute stream then waits for.
struct MovesOfAllRanks {
  ~MovesOfAllRanks() {
    for (const SharedEvent& moved : events) wait_event_or_give_up(to.backend(), moved);
  }
  void wait() {
    for (const SharedEvent& moved : events) to.backend().wait_event(Stream::compute, moved.get());
    events.clear();
  }
  Tensor from, to;
  std::vector<SharedEvent> events;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, Rendezvous& rendezvous, EventStream& events)
      : Communicator(rank, size, events), rendezvous_(rendezvous) {}
  ThreadCommunicator(ThreadCommunicator& all, const Split& split)
      : Communicator(all, split), rendezvous_(all.rendezvous_.group(split.group)) {}

 private:
  // Every rank publishes its buffers, `move(contributions)` reads and writes those of all ranks,
  // then all leave together. This holds also if a listener of the event stream or a GPU throws:
  // then this rank leaves with that error, after its streams have waited for what other ranks do
  // with its buffers, and has published the event of what it did with theirs.
  template <class Move>
  Work collective(const Tensor& from, const Tensor& to, const Call& call, Move move) {
    Backend& backend = to.backend();
    const std::vector<Contribution>& of_ranks = rendezvous_.enter(
        rank(),
        {call, address_of(from, call), address_of(to, call), backend.record_event(Stream::compute)},
        events());
    std::exception_ptr error;
    SharedEvent moved;
    const auto attempt = [&error](const auto& action) {
      try {
        action();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    };
    attempt([&] {
      all_ranks_came(call);
      for (const Contribution& of_rank : of_ranks)
        backend.wait_event(Stream::communication, of_rank.ready.get());
      move([&](int r) -> const Contribution& { return of_ranks[size_t(r)]; });
    });
    attempt([&] { moved = backend.record_event(Stream::communication); });
    if (error) attempt([&] { backend.synchronize(); });  // also if no event was recorded
    std::shared_ptr<MovesOfAllRanks> moves;
    for (const SharedEvent& of_rank : rendezvous_.leave(rank(), std::move(moved))) {
      if (!of_rank) continue;  // a rank on the CPU, which has moved already
      if (!moves) moves.reset(new MovesOfAllRanks{from, to, {}});
      moves->events.push_back(of_rank);
    }
    if (error) std::rethrow_exception(error);
    if (!moves) return {};
    return Work([moves] { moves->wait(); });
  }

  // Rank r adds chunk r of all buffers and writes the sum into all of them: one pass, and no other
  // rank reads chunk r.
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return collective(inout, inout, call, [&](auto of_rank) {
      std::vector<char*> addends, sums;
      for (int r = 0; r < size(); ++r) sums.push_back(of_rank(r).to);
      if (start.defined()) addends.push_back(static_cast<char*>(start.address()));
      addends.insert(addends.end(), sums.begin(), sums.end());
      const int64_t line = 64;  // [n] no two chunks share a cache line
      const int64_t chunk = ((call.count + size() - 1) / size() + line - 1) / line * line;
      const int64_t begin = std::min(rank() * chunk, call.count),
                    end = std::min(begin + chunk, call.count);
      inout.backend().ordered_sum(
          {addends, sums, begin, end, call.dtype, call.reduction == Reduction::mean});
    });
  }

  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return collective(full, full, call, [&](auto of_rank) {
      const int64_t shard = call.count / size(), begin = rank() * shard;
      std::vector<char*> addends;
      if (start.defined())  // its first element is the shard's
        addends.push_back(static_cast<char*>(start.address()) - begin * size_of(call.dtype));
      for (int r = 0; r < size(); ++r) addends.push_back(of_rank(r).from);
      char* const result = of_rank(rank()).from;
      full.backend().ordered_sum({addends,
                                  {&result, 1},
                                  begin,
                                  begin + shard,
                                  call.dtype,
                                  call.reduction == Reduction::mean});
    });
  }

  Work do_all_gather(const Tensor& full, const Call& call) override {
    return collective(full, full, call, [&](auto of_rank) {
      const int64_t shard = full.bytes() / size();
      for (int i = 1; i < size(); ++i) {  // from the next rank on: not all read the same one
        const int r = (rank() + i) % size();
        full.backend().move_bytes(of_rank(r).from + r * shard, of_rank(rank()).to + r * shard,
                                  shard);
      }
    });
  }

  Work do_broadcast(const Tensor& inout, const Call& call) override {
    return collective(inout, inout, call, [&](auto of_rank) {
      if (rank() != call.peer)
        inout.backend().move_bytes(of_rank(call.peer).from, of_rank(rank()).to, inout.bytes());
    });
  }

  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return collective(from, to, call, [&](auto of_rank) {
      const int64_t shard = from.bytes() / size();
      for (int i = 0; i < size(); ++i) {
        const int r = (rank() + i) % size();
        from.backend().move_bytes(of_rank(r).from + rank() * shard, of_rank(rank()).to + r * shard,
                                  shard);
      }
    });
  }

  Work do_barrier(const Call& call) override {
    (void)do_all_gather_object("", call);
    all_ranks_came(call);
    return {};
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    return std::make_unique<ThreadCommunicator>(*this, split);
  }

  Work do_point_to_point(const Tensor& tensor, const Call& call) override {
    (void)address_of(tensor, call);
    const auto give_up = [&rendezvous = rendezvous_](QueueEntry* entry) {
      rendezvous.withdraw(*entry);
      wait_event_or_give_up(entry->tensor.backend(), entry->moved);
      delete entry;
    };
    const std::shared_ptr<QueueEntry> entry(
        new QueueEntry{.call = call,
                       .rank = rank(),
                       .tensor = tensor,
                       .ready = tensor.backend().record_event(Stream::compute)},
        give_up);
    rendezvous_.post(*entry, events());
    const auto arrived = [this, entry, call] {
      entry->tensor.backend().wait_event(Stream::compute, entry->moved.get());
      all_ranks_came(call);
    };
    if (entry->state == QueueEntry::State::done) {
      arrived();
      return {};
    }
    return Work([this, entry, arrived] {
      rendezvous_.wait_for_match(*entry);
      arrived();
    });
  }

  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    const auto& of_ranks = rendezvous_.enter(rank(), {.call = call, .text = &text}, events());
    // At the end, also if there is no memory for the texts.
    const std::shared_ptr<void> leaves(nullptr, [&](void*) { rendezvous_.leave(rank()); });
    std::vector<std::string> all;
    for (const Contribution& of_rank : of_ranks) all.push_back(*of_rank.text);
    return all;
  }

  Rendezvous& rendezvous_;  // of these ranks
};

}  // namespace

std::unique_ptr<Communicator> thread_communicator(int rank, int size, Rendezvous& rendezvous,
                                                  EventStream& events) {
  return std::make_unique<ThreadCommunicator>(rank, size, rendezvous, events);
}

}  // namespace zl
