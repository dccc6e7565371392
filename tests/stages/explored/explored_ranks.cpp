#include "tests/stages/explored/explored_ranks.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "tensor/error.h"
#include "tests/stages/explored/checked_backend.h"

namespace zl::test {
namespace {

char* address(const Tensor& tensor) { return static_cast<char*>(tensor.address()); }

int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Held by a Work: when that is gone, so is the call.
struct InFlight {
  InFlight(ExploredRanks& ranks, int rank, int number) : ranks(ranks), rank(rank), number(number) {}
  InFlight(const InFlight&) = delete;
  ~InFlight() { ranks.drop(rank, number); }
  ExploredRanks& ranks;
  int rank, number;
};

// The communicator of one rank: its calls are issued, and wait to be waited for.
class ExploredCommunicator final : public Communicator {
 public:
  ExploredCommunicator(int rank, int size, EventStream& events, ExploredRanks& ranks)
      : Communicator(rank, size, events), ranks_(ranks) {}

  void begin_group() override { in_group_ = true, ++group_; }
  void end_group() override { in_group_ = false; }

 private:
  Work issue(const Tensor& inout, const Tensor& start, const Call& call) {
    if (!in_group_) ++group_;
    const int64_t began = now();
    const int number = ranks_.issue(
        rank(), call, {.inout = address(inout), .start = address(start), .group = group_});
    const auto in_flight = std::make_shared<InFlight>(ranks_, rank(), number);
    return Work([this, in_flight, call, began] {
      ranks_.wait(rank(), in_flight->number);
      all_ranks_came(call);
      carried_out(call, began, now());
    });
  }
  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return issue(inout, start, call);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return issue(full, start, call);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override {
    return issue(full, {}, call);
  }
  Work do_barrier(const Call& call) override { return issue({}, {}, call); }
  Work do_broadcast(const Tensor&, const Call& call) override { return refuse(call); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call& call) override {
    return refuse(call);
  }
  Work do_point_to_point(const Tensor&, const Call& call) override { return refuse(call); }
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    const InFlight in_flight(ranks_, rank(), ranks_.issue(rank(), call, {.text = &text}));
    ranks_.wait(rank(), in_flight.number);
    return ranks_.texts(in_flight.number);
  }
  // No explored stage calls it. A send would be at the head of two lanes only.
  [[noreturn]] Work refuse(const Call& call) const {
    throw std::logic_error(str("explored ranks do not ", name(call.kind)));
  }

  ExploredRanks& ranks_;
  bool in_group_ = false;
  int group_ = 0;
};

}  // namespace

ExploredRanks::ExploredRanks(int ranks, Schedule& schedule, ExploredOptions options)
    : size_(ranks),
      schedule_(schedule),
      options_(std::move(options)),
      races_(ranks, options_.check_races),
      ranks_(size_t(ranks)),
      outcomes_(size_t(ranks)),
      issued_(size_t(ranks)) {}

ExploredRanks::~ExploredRanks() = default;

// ---- the baton -------------------------------------------------------------------------------

void ExploredRanks::run(const std::function<void(Communicator&)>& body) {
  std::deque<EventStream> events;  // outlives all labels
  for (int r = 0; r < size_; ++r) events.emplace_back(r);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size_; ++r)
      threads.emplace_back([&, r] { run_rank(r, events[size_t(r)], body); });
    ranks_[size_t(choose(0, false))].baton.release();
    ended_.acquire();
  }
  if (!races_.first().empty()) throw RaceFound(races_.first());
  if (first_error_) std::rethrow_exception(first_error_);
  if (!failure_.empty()) throw CommunicationError(failure_);
}

void ExploredRanks::run_rank(int rank, EventStream& events,
                             const std::function<void(Communicator&)>& body) {
  Rank& me = ranks_[size_t(rank)];
  me.baton.acquire();
  events.listen([this, rank](const Event& event) { stop_at(rank, event); });
  try {
    ExploredCommunicator communicator(rank, size_, events, *this);
    body(communicator);
    communicator.finish();
  } catch (const std::exception& error) {
    outcomes_[size_t(rank)].error = std::current_exception();
    if (failure_.empty()) first_error_ = std::current_exception();
    fail(str("rank ", rank, " stopped: ", error.what()));
  }
  me.ended = true;
  const int next = choose(rank, true);
  (next < 0 ? ended_ : ranks_[size_t(next)].baton).release();
}

void ExploredRanks::stop_at(int rank, const Event& event) {
  Rank& me = ranks_[size_t(rank)];
  if (event.kind == EventKind::kernel && std::exchange(me.unchecked, true))
    fail(str("CheckedBackend does not know the kernel ", me.event.what));
  me.event = event;
  int64_t& live = outcomes_[size_t(rank)].live_bytes;
  if (event.kind == EventKind::allocate) live += event.bytes;
  if (event.kind == EventKind::release) live -= event.bytes;
  yield(rank, event.kind == EventKind::unit);
  if (options_.on_event) options_.on_event(rank, event);
}

void ExploredRanks::yield(int rank, bool communicates) {
  const int next = choose(rank, communicates);
  if (next == rank) return;
  ranks_[size_t(next)].baton.release();
  ranks_[size_t(rank)].baton.acquire();
}

// Lets the network go on as often as the schedule says so, and returns the rank that goes on next.
int ExploredRanks::choose(int current, bool communicates) {
  std::vector<int> enabled;
  for (;;) {
    enabled.clear();
    for (int r = 0; r < size_; ++r)
      if (can_go_on(ranks_[size_t(r)])) enabled.push_back(r);
    if (network_can_go_on()) enabled.push_back(size_);
    if (enabled.empty()) {
      if (std::ranges::all_of(ranks_, &Rank::ended)) return -1;
      stuck_ = true;
      fail(str("no rank can go on: ", what_ranks_wait_for()));
      continue;
    }
    ++steps_;
    const int next = schedule_.next({enabled, current, size_, communicates, int(head_)});
    if (next != size_) return next;
    carry_out(int(head_++));
  }
}

bool ExploredRanks::can_go_on(const Rank& rank) const {
  if (rank.ended) return false;
  if (!rank.waits_for || operations_[size_t(*rank.waits_for)].done) return true;
  return !failure_.empty() && !will_happen(*rank.waits_for);  // it goes on with an error
}

bool ExploredRanks::network_can_go_on() const {
  return head_ < operations_.size() && will_happen(int(head_));
}

// After a failure the network still carries out what all ranks have issued, as a GPU may.
bool ExploredRanks::will_happen(int number) const {
  if (!races_.first().empty()) return false;
  for (size_t i = head_; i <= size_t(number); ++i)
    if (operations_[i].issued < size_ || operations_[i].dropped) return false;
  return true;
}

void ExploredRanks::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

std::string ExploredRanks::what_ranks_wait_for() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    const Rank& rank = ranks_[size_t(r)];
    text += str(text.empty() ? "" : "; ", "rank ", r, " ",
                rank.ended ? "has ended"
                           : "waits for " + describe(operations_[size_t(*rank.waits_for)].call));
  }
  return text;
}

// ---- calls -----------------------------------------------------------------------------------

int ExploredRanks::issue(int rank, const Call& call, Side side) {
  if (!failure_.empty()) throw CommunicationError(failure_);
  const int number = issued_[size_t(rank)]++;
  if (size_t(number) == operations_.size()) {
    operations_.emplace_back();
    operations_.back().call = call;
    operations_.back().sides.resize(size_t(size_));
    operations_.back().texts.resize(size_t(size_));
  }
  Operation& operation = operations_[size_t(number)];
  if (!(operation.call == call)) {
    fail(str("rank ", rank, " calls ", describe(call, true), ", another rank ",
             describe(operation.call, true)));
    throw CommunicationError(failure_);
  }
  side.issued = true;
  if (side.text) operation.texts[size_t(rank)] = *side.text;
  operation.sides[size_t(rank)] = side;
  ++operation.issued;
  races_.issued(number, rank);
  count_in_flight(rank);
  yield(rank, head_ < size_t(number));
  return number;
}

void ExploredRanks::wait(int rank, int number) {
  Rank& me = ranks_[size_t(rank)];
  me.waits_for = number;
  yield(rank, true);
  me.waits_for.reset();
  Operation& operation = operations_[size_t(number)];
  if (!operation.done) throw CommunicationError(failure_);
  operation.sides[size_t(rank)].waited = true;
  races_.waited(number, rank);
}

void ExploredRanks::drop(int rank, int number) noexcept {
  Operation& operation = operations_[size_t(number)];
  if (operation.sides[size_t(rank)].waited) return;
  operation.dropped = true;
  if (operation.done) races_.waited(number, rank);
}

const std::vector<std::string>& ExploredRanks::texts(int number) const {
  return operations_[size_t(number)].texts;
}

bool ExploredRanks::in_flight(int rank) const {
  return std::ranges::any_of(operations_, [rank](const Operation& operation) {
    const Side& side = operation.sides[size_t(rank)];
    return side.issued && !side.waited;
  });
}

void ExploredRanks::count_in_flight(int rank) {
  std::map<int, bool> groups;
  int gathers = 0;
  for (size_t i = 0; i < operations_.size(); ++i) {
    const Side& side = operations_[i].sides[size_t(rank)];
    if (!side.issued || side.waited) continue;
    if (operations_[i].call.reduces()) groups[side.group] = true;
    gathers += operations_[i].call.kind == Collective::all_gather &&
               operations_[i].call.name.ends_with(" parameter");
  }
  RankOutcome& outcome = outcomes_[size_t(rank)];
  outcome.most_buckets = std::max(outcome.most_buckets, int(groups.size()));
  outcome.most_gathers = std::max(outcome.most_gathers, gathers);
}

Accessor ExploredRanks::accessor(int rank, const char* what) const {
  const Event& event = ranks_[size_t(rank)].event;
  return {.rank = rank, .what = what, .unit = event.unit, .phase = event.phase};
}

// ---- the network -----------------------------------------------------------------------------

void ExploredRanks::carry_out(int number) {
  Operation& operation = operations_[size_t(number)];
  operation.done = true;
  if (check_accesses(number)) move(operation);
}

bool ExploredRanks::check_accesses(int number) {
  const Operation& operation = operations_[size_t(number)];
  const Call& call = operation.call;
  const int64_t bytes = call.count * size_of(call.dtype), shard = bytes / size_;
  bool fine = true;
  for (int r = 0; r < size_; ++r) {
    const Side& side = operation.sides[size_t(r)];
    const Accessor by{
        .rank = r, .call = number, .what = name(call.kind), .detail = call.name.data()};
    const auto access = [&](const void* from, int64_t length, bool writes) {
      if (from) fine = races_.access(by, from, length, writes) && fine;
    };
    const auto at = [](const char* from, int64_t byte) { return from ? from + byte : nullptr; };
    const bool gathers = call.kind == Collective::all_gather;
    access(side.start, call.kind == Collective::all_reduce ? bytes : shard, false);
    access(side.inout, gathers ? r * shard : bytes, true);
    if (!gathers) continue;
    access(at(side.inout, r * shard), shard, false);
    access(at(side.inout, (r + 1) * shard), bytes - (r + 1) * shard, true);
  }
  if (!fine) fail(races_.first());
  return fine;
}

void ExploredRanks::move(Operation& operation) {
  const Call& call = operation.call;
  Backend& backend = cpu_backend();
  const int64_t shard = call.count / size_, bytes = shard * size_of(call.dtype);
  std::vector<char*> to;
  for (const Side& side : operation.sides) to.push_back(side.inout);
  const auto sum = [&](int64_t begin, int64_t end, std::span<char* const> results, char* start) {
    std::vector<char*> all = to;
    if (start) all.insert(all.begin(), start);
    backend.ordered_sum({all, results, begin, end, call.dtype, call.reduction == Reduction::mean});
  };
  const auto start_of = [&](int r) { return const_cast<char*>(operation.sides[size_t(r)].start); };
  if (call.kind == Collective::all_reduce) sum(0, call.count, to, start_of(0));
  for (int r = 0; r < size_; ++r) {
    char* const mine = to[size_t(r)];
    if (call.kind == Collective::reduce_scatter)
      sum(r * shard, (r + 1) * shard, {&mine, 1}, start_of(r) ? start_of(r) - r * bytes : nullptr);
    for (int s = 0; call.kind == Collective::all_gather && s < size_; ++s)
      if (s != r) backend.move_bytes(to[size_t(s)] + s * bytes, mine + s * bytes, bytes);
  }
  if (call.kind != Collective::reduce_scatter) return;
  for (int r = 0; r < size_; ++r) {  // the contract says: the rest is unspecified
    backend.poison(to[size_t(r)], r * bytes);
    backend.poison(to[size_t(r)] + (r + 1) * bytes, (size_ - 1 - r) * bytes);
  }
}

// ---- for a Trainer ---------------------------------------------------------------------------

RunRanks ExploredRanks::runner() {
  return [this](int size, const std::function<void(Communicator&)>& body, RankOptions) {
    require(size == size_, "this run has ", size_, " ranks, not ", size);
    run(body);
  };
}

std::function<RankBackends(int)> ExploredRanks::checked_backends() {
  return [this](int rank) {
    return RankBackends{std::make_unique<CheckedBackend>(*this, rank),
                        std::make_unique<CheckedBackend>(*this, rank)};
  };
}

}  // namespace zl::test
