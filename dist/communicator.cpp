#include "dist/communicator.h"

#include <algorithm>
#include <exception>

#include "tensor/error.h"

namespace zl {

// ---- a call in flight ------------------------------------------------------------------------

Work::Work(std::function<void()> finish, std::function<void()> dropped)
    : finish_(std::move(finish)), dropped_(std::move(dropped)) {}

Work::Work(Work&& other) noexcept
    : finish_(std::exchange(other.finish_, {})), dropped_(std::exchange(other.dropped_, {})) {}

Work& Work::operator=(Work&& other) {
  if (pending()) throw std::logic_error("a pending Work is overwritten; call wait() on it first");
  finish_ = std::exchange(other.finish_, {});
  dropped_ = std::exchange(other.dropped_, {});
  return *this;
}

Work::~Work() {
  if (pending() && dropped_ && std::uncaught_exceptions() == 0) dropped_();
}

void Work::wait() {
  if (const auto finish = std::exchange(finish_, {})) finish();
}

bool Work::pending() const { return bool(finish_); }

Work and_then(Work work, std::function<void()> then) {
  const auto held = std::make_shared<Work>(std::move(work));
  return Work([held, then = std::move(then)] {
    held->wait();
    then();
  });
}

// ---- the calls -------------------------------------------------------------------------------

namespace {

bool has_shards(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::all_gather ||
         kind == Collective::all_to_all;
}

// "all_gather 'h.3 parameter': why".
template <class... Why>
[[noreturn]] void refuse_call(const Call& call, const Why&... why) {
  refuse(name(call.kind), " '", call.name, "': ", why...);
}

void check_disjoint(const Call& call, const Tensor& from, const Tensor& to) {
  if (!to.defined()) refuse_call(call, "the tensor to receive into is undefined");
  if (from.dtype() != to.dtype() || from.numel() != to.numel())
    refuse_call(call, "from is ", from.numel(), " ", name(from.dtype()), " elements and to is ",
                to.numel(), " ", name(to.dtype()), "; they must be alike");
  const auto *a = static_cast<const char*>(from.address()),
             *b = static_cast<const char*>(to.address());
  const std::less<const char*> before;
  if (a && b && before(a, b + to.bytes()) && before(b, a + from.bytes()))
    refuse_call(call, "from and to overlap; they must not share memory");
}

// `other`: what a sum starts with, or what an all_to_all receives into.
void check_arguments(const Call& call, const Tensor& tensor, const Tensor& other, int ranks) {
  if (call.kind == Collective::barrier) return;
  if (!tensor.defined()) refuse_call(call, "the tensor is undefined; was its unit resharded?");
  const int64_t n = tensor.numel(), padded = (n / ranks + 1) * ranks;
  if (has_shards(call.kind) && n % ranks != 0)
    refuse_call(call, n, " elements cannot be divided among ", ranks, " ranks; pad to ", padded);
  if ((call.point_to_point() || call.kind == Collective::broadcast) &&
      (call.peer < 0 || call.peer >= ranks))
    refuse_call(call, "rank ", call.peer, " is out of range: there are ", ranks, " ranks, 0 to ",
                ranks - 1);
  if (call.reduction == Reduction::mean && !is_float(tensor.dtype()))
    refuse_call(call, "the mean of integers is not an integer; use the sum, or a float type");
  if (call.kind == Collective::all_to_all) return check_disjoint(call, tensor, other);
  if (!other.defined()) return;
  if (call.reduction == Reduction::mean)
    refuse_call(
        call,
        "a mean cannot continue from a start; use the sum, and divide when everything is added");
  const int64_t sums = has_shards(call.kind) ? n / ranks : n;
  if (other.dtype() != tensor.dtype() || other.numel() != sums)
    refuse_call(call, "the start is ", other.numel(), " ", name(other.dtype()),
                " elements and the sum ", sums, " ", name(tensor.dtype()), "; they must be alike");
}

}  // namespace

Work Communicator::all_reduce(const Tensor& inout, Reduction reduction, CallName name,
                              const Tensor& start) {
  const Call call =
      begin({.kind = Collective::all_reduce, .reduction = reduction}, inout, name, start);
  return end(call, do_all_reduce(inout, start, call));
}

Work Communicator::reduce_scatter(const Tensor& full, Reduction reduction, CallName name,
                                  const Tensor& start) {
  const Call call =
      begin({.kind = Collective::reduce_scatter, .reduction = reduction}, full, name, start);
  return end(call, do_reduce_scatter(full, start, call));
}

Work Communicator::all_gather(const Tensor& full, CallName name) {
  const Call call = begin({.kind = Collective::all_gather}, full, name);
  return end(call, do_all_gather(full, call));
}

Work Communicator::broadcast(const Tensor& inout, int root, CallName name) {
  const Call call = begin({.kind = Collective::broadcast, .peer = root}, inout, name);
  return end(call, do_broadcast(inout, call));
}

Work Communicator::all_to_all(const Tensor& from, const Tensor& to, CallName name) {
  const Call call = begin({.kind = Collective::all_to_all}, from, name, to);
  return end(call, do_all_to_all(from, to, call));
}

Work Communicator::barrier(CallName name) {
  const Call call = begin({.kind = Collective::barrier}, {}, name);
  return end(call, do_barrier(call));
}

Work Communicator::send(const Tensor& from, int to_rank, CallName name) {
  const Call call = begin({.kind = Collective::send, .peer = to_rank}, from, name);
  return end(call, do_point_to_point(from, call));
}

Work Communicator::receive(const Tensor& to, int from_rank, CallName name) {
  const Call call = begin({.kind = Collective::receive, .peer = from_rank}, to, name);
  return end(call, do_point_to_point(to, call));
}

std::vector<std::string> Communicator::all_gather_object(const std::string& text,
                                                         std::string_view name) {
  require_none_dropped();
  const std::string_view kept{events_.keep(name), name.size()};
  return do_all_gather_object(text, {.kind = Collective::barrier,
                                     .sequence = ++collectives_,
                                     .name = kept,
                                     .has_deadline = false,
                                     .group = group_});
}

Communicator::Communicator(Communicator& all, const Split& split)
    : rank_(int(std::ranges::find(split.members, all.rank_) - split.members.begin())),
      size_(int(split.members.size())),
      group_(split.group),
      events_(all.events_),
      run_(all) {}

std::unique_ptr<Communicator> Communicator::split(const std::vector<int>& color_of_rank,
                                                  std::string_view label) {
  require_none_dropped();
  if (group_.number != 0)
    refuse("split '", label, "': this is the group '", group_.label,
           "', which cannot be split again; split the communicator of all ranks");
  if (label.empty()) refuse("split: a group needs a label, such as intra");
  if (int(color_of_rank.size()) != size_)
    refuse("split '", label, "': ", color_of_rank.size(), " colors for ", size_,
           " ranks; pass one for each rank");
  std::string text = str("split '", label, "' by the colors");
  for (const int color : color_of_rank) text += str(" ", color);
  Split split;
  split.call = {.kind = Collective::barrier,
                .sequence = ++collectives_,
                .name = {events_.keep(text), text.size()}};
  split.group = {.number = ++splits_, .label = {events_.keep(label), label.size()}};
  split.color_of_rank = color_of_rank;
  for (int r = 0; r < size_; ++r) {
    if (color_of_rank[size_t(r)] != color_of_rank[size_t(rank_)]) continue;
    split.members.push_back(r);
    if (r < 64) split.group.ranks |= uint64_t(1) << r;
  }
  return do_split(split);
}

Work Communicator::do_point_to_point(const Tensor&, const Call& call) {
  refuse_call(call, "ranks that are processes have collectives only; use ranks as threads");
}

std::unique_ptr<Communicator> Communicator::do_split(const Split&) {
  throw std::logic_error("this communicator cannot be split into groups");
}

void Communicator::finish() {
  for (const auto& operation : in_flight_) operation->dropped = operation->returned;
  require_none_dropped();
}

Call Communicator::begin(Call call, const Tensor& tensor, CallName name, const Tensor& other) {
  call.name = {events_.keep(name.text), name.text.size()};
  check_arguments(call, tensor, other, size_);
  require_none_dropped();
  Memory* memory = nullptr;
  if (tensor.defined()) {
    call.dtype = tensor.dtype();
    call.count = tensor.numel();
    // A lane's inner communicator has other events than the memory, which the rank's thread uses.
    if (&tensor.memory().events() == &events_) memory = &tensor.memory();
  }
  const int64_t bytes = call.count * size_of(call.dtype);
  call.group = group_;
  call.sequence =
      ++(call.point_to_point() ? point_to_point_[{call.kind, call.peer}] : collectives_);
  log().add(call.kind, name.purpose, call.count, bytes, size_, group_.label);
  const int64_t now = append(EventKind::collective_begin, call, bytes);
  run_.in_flight_.push_back(std::make_shared<Operation>(
      Operation{.call = call, .began = now, .all_came = now, .memory = memory}));
  return call;
}

int64_t Communicator::append(EventKind kind, const Call& call, int64_t bytes, int64_t at) {
  events_.set_group(group_.label.data());
  const int64_t now =
      events_.append(kind, name(call.kind), bytes, call.count, call.name.data(), at);
  events_.set_group("");
  return now;
}

std::shared_ptr<Communicator::Operation> Communicator::find(const Call& call) {
  const auto found = std::ranges::find_if(
      run_.in_flight_, [&](const auto& operation) { return operation->call == call; });
  return found == run_.in_flight_.end() ? nullptr : *found;
}

void Communicator::all_ranks_came(const Call& call, int64_t at) {
  const int64_t now = append(EventKind::collective_met, call, 0, at);
  if (const auto operation = find(call)) operation->all_came = now;
}

void Communicator::has_moved(const Call& call) {
  if (const auto operation = find(call)) end_event(*operation);
}

void Communicator::carried_out(const Call& call, int64_t began, int64_t moved) {
  const auto operation = find(call);
  if (!operation) return;
  operation->began = began;
  operation->moved = append(EventKind::collective_moved, call, 0, moved);
}

void Communicator::end_event(Operation& operation) {
  if (std::exchange(operation.ended, true)) return;
  const Call& call = operation.call;
  const int64_t sent =
      sent_bytes_times_n(call.kind, call.count * size_of(call.dtype), size_) / size_;
  const int64_t now = append(EventKind::collective_end, call, sent);
  // Hidden: until the data has moved or the rank begins to wait, whichever comes first.
  const int64_t began = operation.began, moved = operation.moved ? operation.moved : now,
                wait_began = operation.wait_began ? operation.wait_began : began,
                hidden = std::max<int64_t>(0, std::min(moved, wait_began) - began),
                exposed = now - wait_began;
  const int64_t waited =
      call.point_to_point() ? 0 : std::max<int64_t>(0, operation.all_came - began);
  log().add_time(
      call.kind,
      {.calls = 1, .nanoseconds = hidden + exposed, .waited = waited, .exposed = exposed});
}

// The transport's Work. The memory of its tensors keeps it, so that it ends before them although
// the rank's Work may live longer. Without such a memory the rank's Work keeps it.
struct Communicator::TransportWork {
  TransportWork(Memory* memory, Work work)
      : memory(memory), own(std::make_shared<Work>(std::move(work))), kept(own) {
    if (memory) memory->keep(std::exchange(own, {}));
  }
  TransportWork(const TransportWork&) = delete;
  ~TransportWork() {
    if (const auto work = kept.lock(); work && memory) memory->let_go(work.get());
  }
  Memory* const memory;
  std::shared_ptr<Work> own;
  const std::weak_ptr<Work> kept;
};

// A transport that has moved the data already ends the call here; its Work must be waited for all
// the same, so that programs behave alike on every transport. The run owns the operation.
Work Communicator::end(const Call& call, Work work) {
  const auto operation = find(call);
  operation->returned = true;
  const bool complete = !work.pending();
  if (complete) end_event(*operation);
  const auto transfer =
      complete ? nullptr : std::make_shared<TransportWork>(operation->memory, std::move(work));
  const std::weak_ptr<Operation> in_flight = operation;
  const auto wait = [this, in_flight, transfer] {
    const auto operation = in_flight.lock();
    const auto work = transfer ? transfer->kept.lock() : nullptr;
    if (!operation || (transfer && !work))
      throw CommunicationError(
          "wait() on a Work whose run, or the memory of its tensors, has ended; call it before");
    const std::shared_ptr<void> erases(  // at the end
        nullptr, [&](void*) { std::erase(run_.in_flight_, operation); });
    if (!work) return;
    if (!operation->ended)
      operation->wait_began = append(EventKind::collective_wait, operation->call);
    work->wait();
    end_event(*operation);
  };
  return Work(wait, [in_flight] {
    if (const auto operation = in_flight.lock()) operation->dropped = true;
  });
}

void Communicator::require_none_dropped() const {
  for (const auto& operation : run_.in_flight_)
    if (operation->dropped)
      throw CommunicationError(str("rank ", run_.rank_, " dropped the Work of ",
                                   describe(operation->call), "; call wait() on it"));
}

}  // namespace zl
