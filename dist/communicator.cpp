#include "dist/communicator.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "tensor/error.h"

namespace zl {

namespace {

// "all_gather 'h.3 parameter': ", the beginning of errors about arguments.
std::string intro(const Call& call, CallName name) {
  return str(zl::name(call.kind), " '", name.text, "': ");
}

void require_equal_shards(const Call& call, const Tensor& full, int size, CallName name) {
  if (!full.defined() || full.numel() % size == 0) return;
  const int64_t padded = (full.numel() / size + 1) * size;
  require(false, intro(call, name), full.numel(), " elements cannot be divided among ", size,
          " ranks; pad to ", padded);
}

void require_rank(const Call& call, int rank, int size, CallName name) {
  require(rank >= 0 && rank < size, intro(call, name), "rank ", rank,
          " is out of range: there are ", size, " ranks, 0 to ", size - 1);
}

void require_addable(const Call& call, const Tensor& tensor, CallName name) {
  require(!tensor.defined() || call.reduction == Reduction::sum || is_float(tensor.dtype()),
          intro(call, name),
          "the mean of integers is not an integer; use the sum, or a float type");
}

void require_start(const Call& call, const Tensor& tensor, int shards, const Tensor& start,
                   CallName name) {
  if (!start.defined() || !tensor.defined()) return;
  require(call.reduction == Reduction::sum, intro(call, name),
          "a mean cannot continue from a start; "
          "use the sum, and divide when everything is added");
  require(start.dtype() == tensor.dtype() && start.numel() * shards == tensor.numel(),
          intro(call, name), "the start is ", start.numel(), " ", zl::name(start.dtype()),
          " elements and the sum ", tensor.numel() / shards, " ", zl::name(tensor.dtype()),
          "; they must be alike");
}

void require_disjoint(const Call& call, const Tensor& from, const Tensor& to, CallName name) {
  if (!from.defined() || !to.defined()) return;
  require(from.dtype() == to.dtype() && from.numel() == to.numel(), intro(call, name), "from is ",
          from.numel(), " ", zl::name(from.dtype()), " elements and to is ", to.numel(), " ",
          zl::name(to.dtype()), "; they must be alike");
  const auto *a = static_cast<const char*>(from.address()),
             *b = static_cast<const char*>(to.address());
  const std::less<const char*> before;
  require(!a || !b || !before(a, b + to.bytes()) || !before(b, a + from.bytes()), intro(call, name),
          "from and to overlap; they must not share memory");
}

}  // namespace

Work Communicator::all_reduce(const Tensor& inout, Reduction reduction, CallName name,
                              const Tensor& start) {
  Call call{.kind = Collective::all_reduce, .reduction = reduction};
  require_addable(call, inout, name);
  require_start(call, inout, 1, start, name);
  call = begin(call, inout, name);
  return end(call, do_all_reduce(inout, start, call));
}

Work Communicator::reduce_scatter(const Tensor& full, Reduction reduction, CallName name,
                                  const Tensor& start) {
  Call call{.kind = Collective::reduce_scatter, .reduction = reduction};
  require_addable(call, full, name);
  require_equal_shards(call, full, size_, name);
  require_start(call, full, size_, start, name);
  call = begin(call, full, name);
  return end(call, do_reduce_scatter(full, start, call));
}

Work Communicator::all_gather(const Tensor& full, CallName name) {
  Call call{.kind = Collective::all_gather};
  require_equal_shards(call, full, size_, name);
  call = begin(call, full, name);
  return end(call, do_all_gather(full, call));
}

Work Communicator::broadcast(const Tensor& inout, int root, CallName name) {
  Call call{.kind = Collective::broadcast, .peer = root};
  require_rank(call, root, size_, name);
  call = begin(call, inout, name);
  return end(call, do_broadcast(inout, call));
}

Work Communicator::all_to_all(const Tensor& from, const Tensor& to, CallName name) {
  Call call{.kind = Collective::all_to_all};
  require(to.defined(), intro(call, name), "the tensor to receive into is undefined");
  require_equal_shards(call, from, size_, name);
  require_disjoint(call, from, to, name);
  call = begin(call, from, name);
  return end(call, do_all_to_all(from, to, call));
}

Work Communicator::barrier(CallName name) {
  const Call call = begin({.kind = Collective::barrier}, nullptr, 0, name);
  return end(call, do_barrier(call));
}

Work Communicator::send(const Tensor& from, int to_rank, CallName name) {
  Call call{.kind = Collective::send, .peer = to_rank};
  require_rank(call, to_rank, size_, name);
  call = begin(call, from, name);
  return end(call, do_send(from, call));
}

Work Communicator::receive(const Tensor& to, int from_rank, CallName name) {
  Call call{.kind = Collective::receive, .peer = from_rank};
  require_rank(call, from_rank, size_, name);
  call = begin(call, to, name);
  return end(call, do_receive(to, call));
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
  require(group_.number == 0, "split '", label, "': this is the group '", group_.label,
          "', which cannot be split again; split the communicator of all ranks");
  require(!label.empty(), "split: a group needs a label, such as intra");
  require(int(color_of_rank.size()) == size_, "split '", label, "': ", color_of_rank.size(),
          " colors for ", size_, " ranks; pass one for each rank");
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

Work Communicator::do_send(const Tensor&, const Call& call) {
  throw std::invalid_argument(
      str(zl::name(call.kind), " '", call.name,
          "': ranks on NCCL have collectives only; use ranks as threads, or --backend mpi"));
}

Work Communicator::do_receive(const Tensor& to, const Call& call) { return do_send(to, call); }

std::unique_ptr<Communicator> Communicator::do_split(const Split&) {
  throw std::logic_error("this communicator cannot be split into groups");
}

void Communicator::finish() {
  for (const auto& operation : in_flight_) operation->dropped = operation->returned;
  require_none_dropped();
}

Call Communicator::begin(Call call, const Tensor& tensor, CallName name) {
  require(tensor.defined(), intro(call, name), "the tensor is undefined; was its unit resharded?");
  call.dtype = tensor.dtype();
  call.count = tensor.numel();
  // A lane's inner communicator has other events than the memory, which the rank's thread uses.
  Memory& memory = tensor.memory();
  return begin(call, &memory.events() == &events_ ? &memory : nullptr, tensor.bytes(), name);
}

Call Communicator::begin(Call call, Memory* memory, int64_t bytes, CallName name) {
  require_none_dropped();
  const char* kept = events_.keep(name.text);
  call.name = {kept, name.text.size()};
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

Communicator::Operation* Communicator::find(const Call& call) {
  const auto found = std::ranges::find_if(
      run_.in_flight_, [&](const auto& operation) { return operation->call == call; });
  return found == run_.in_flight_.end() ? nullptr : found->get();
}

void Communicator::all_ranks_came(const Call& call, int64_t at) {
  const int64_t now = append(EventKind::collective_met, call, 0, at);
  if (Operation* operation = find(call)) operation->all_came = now;
}

void Communicator::carried_out(const Call& call, int64_t began, int64_t moved) {
  Operation* const operation = find(call);
  if (!operation) return;
  operation->began = began;
  operation->moved = append(EventKind::collective_moved, call, 0, moved);
}

void Communicator::end_event(const Operation& operation) {
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
  const auto operation = *std::ranges::find_if(
      run_.in_flight_, [&](const auto& operation) { return operation->call == call; });
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
    struct Erase {
      Communicator& of;
      const Operation* operation;
      ~Erase() {
        std::erase_if(of.run_.in_flight_,
                      [&](const auto& other) { return other.get() == operation; });
      }
    } erase{*this, operation.get()};
    if (!work) return;
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
