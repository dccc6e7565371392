#include "tests/nccl/fake/fake_nccl.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>

#include "tensor/error.h"

namespace zl {

bool NcclComm::move() {
  bool any = false;
  for (bool moved = bool(wire); moved; any |= moved) {
    moved = wire->move();
    if (open) moved |= open->connect(*wire);
    if (leaving) moved |= leaving->move_on(*wire);
    if (batches.empty() || !batches.front()->active) continue;
    moved |= batches.front()->move_on(*wire);
    if (!batches.front()->done()) continue;
    batches.pop_front();
    moved = true;
  }
  return any;
}

void NcclComm::close() {
  wire.reset();
  for (const Batch& batch : std::exchange(batches, {})) batch->give_up();
}

}  // namespace zl

namespace zl::test {
namespace {

std::atomic<FakeNccl*> current{nullptr};

// The group that a thread has open.
struct Group {
  int depth = 0;
  NcclComm* comm = nullptr;
  std::vector<AskedOfNccl> calls;
};
thread_local Group group;

}  // namespace

struct FakeNccl::Functions {
  static NcclResult get_version(int* version) {
    return *version = current.load()->where_.version, NcclResult::success;
  }
  static const char* get_error_string(NcclResult result) {
    return result == NcclResult::remote_error ? "remote process exited or there was a network error"
           : result == NcclResult::system_error ? "unhandled system error"
                                                : "error";
  }
  static const char* get_last_error(NcclComm*) {
    FakeNccl& fake = *current;
    const Lock lock(fake.mutex_);
    return fake.script_.last_said();
  }

  static NcclResult get_unique_id(NcclUniqueId* id) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (const NcclResult result = fake.enter("ncclGetUniqueId", nullptr, lock);
        result != NcclResult::success)
      return result;
    std::random_device random;
    *id = {};
    std::snprintf(id->bytes, sizeof id->bytes, "%08x%08x%08x", unsigned(getpid()), random(),
                  random());
    return NcclResult::success;
  }

  static NcclResult comm_init_rank(NcclComm** comm, int ranks, NcclUniqueId id, int rank) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    const std::string name(id.bytes, strnlen(id.bytes, sizeof id.bytes));
    if (name.size() != 24 || ranks < 1 || rank < 0 || rank >= ranks)
      return NcclResult::invalid_argument;
    if (fake.one_gpu && ranks > 1 && !std::getenv("NCCL_HOSTID")) return NcclResult::invalid_usage;
    NcclComm& joining = fake.comms_.emplace_back(rank, ranks);
    *comm = &joining;
    if (const NcclResult result = fake.enter("ncclCommInitRankConfig", &joining, lock);
        result != NcclResult::success)
      return result;
    if (fake.where_.processes)
      joining.wire = std::make_unique<SocketWire>(name, rank, ranks);
    else
      joining.wire = std::make_unique<MemoryWire>(fake.hubs_[{name, ranks}], rank, ranks);
    if (joining.wire->taken()) return fake.note(str("two ranks ", rank)), NcclResult::invalid_usage;
    return NcclResult::in_progress;
  }

  static NcclResult comm_get_async_error(NcclComm* comm, NcclResult* state) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (comm->ended()) return fake.note("a poll after the end"), NcclResult::invalid_argument;
    if (comm->in_group && comm->thread != std::this_thread::get_id())
      fake.note("a poll on another thread within a group");
    const bool own = comm->thread == std::this_thread::get_id();
    if (comm->open && own && fake.may_take(*comm)) fake.take(*comm, lock);
    *state = fake.in_progress(*comm) ? NcclResult::in_progress : comm->trouble.error;
    comm->trouble.poll();
    return NcclResult::success;
  }

  static NcclResult comm_finalize(NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (const NcclResult result = fake.enter("ncclCommFinalize", comm, lock);
        result != NcclResult::success)
      return result;
    comm->finalizing = true;
    comm->leaving = std::make_shared<FakeBatch>(nullptr, false, std::vector<ConnectedSide>());
    const AskedOfNccl end{Collective::barrier, {nullptr, nullptr, 0, NcclType::int32}, -1};
    comm->leaving->add(std::make_unique<FakeCall>(end, comm->rank, comm->size, comm->so_far));
    return NcclResult::in_progress;
  }

  static NcclResult comm_destroy(NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    const NcclResult result = fake.enter("ncclCommDestroy", comm, lock);
    if (!comm->finalizing) fake.note("destroyed before it was finalised");
    comm->destroyed = true;
    comm->close();
    return result;
  }

  static NcclResult comm_abort(NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (comm->ended()) fake.note("aborted after its end");
    const NcclResult result = fake.enter("ncclCommAbort", comm, lock);
    comm->aborted = true;
    comm->close();
    const auto open = std::exchange(comm->open, nullptr);
    lock.unlock();
    if (open && open->stream) fake.streams_.reserve(open->stream, false);
    return result;
  }

  static NcclResult group_start() { return ++group.depth, NcclResult::success; }
  static NcclResult group_end() {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (group.depth == 0)
      return fake.note("a group ends that has not begun"), NcclResult::invalid_usage;
    if (--group.depth > 0) return NcclResult::success;
    const Group ended = std::exchange(group, {});
    if (ended.calls.empty()) return NcclResult::success;
    ended.comm->in_group = false;
    const NcclResult result = fake.enter("ncclGroupEnd", ended.comm, lock);
    return result == NcclResult::success ? fake.post(*ended.comm, ended.calls, lock) : result;
  }

  static const char* name_of(Collective kind) {
    return kind == Collective::all_reduce       ? "ncclAllReduce"
           : kind == Collective::reduce_scatter ? "ncclReduceScatter"
           : kind == Collective::all_gather     ? "ncclAllGather"
           : kind == Collective::send           ? "ncclSend"
                                                : "ncclRecv";
  }
  static NcclResult ask(AskedOfNccl call, NcclComm& comm) {
    const char* const function = name_of(call.kind);
    FakeNccl& fake = *current;
    const FakeStreams& streams = fake.streams_;
    if (streams.on_host) call.data.from = streams.on_host(call.data.from);
    if (streams.on_host) call.data.to = streams.on_host(call.data.to);
    if (streams.finish) call.stream = nullptr;
    Lock lock(fake.mutex_);
    if (const NcclResult result = fake.enter(function, &comm, lock); result != NcclResult::success)
      return result;
    if (between_two(call.kind) && (call.peer < 0 || call.peer >= comm.size))
      return NcclResult::invalid_argument;
    if (comm.ended()) return NcclResult::invalid_argument;
    if (call.stream && !streams.enqueue_until)
      return fake.note(str(function, " in a stream")), NcclResult::invalid_argument;
    if (group.depth == 0) return fake.post(comm, {call}, lock);
    if (group.comm && group.comm != &comm) fake.note("one group for two communicators");
    group.comm = &comm;
    comm.in_group = true;
    group.calls.push_back(call);
    return NcclResult::success;
  }
  // `rest`: the operator, if there is one, then comm and stream.
  template <Collective kind, class... Rest>
  static NcclResult of_all(const void* from, void* to, size_t count, NcclType type, Rest... rest) {
    const std::tuple given(rest...);
    return ask({kind, {from, to, count, type}, -1, std::get<void*>(given)},
               *std::get<NcclComm*>(given));
  }
  static NcclResult send(const void* from, size_t count, NcclType type, int peer, NcclComm* comm,
                         void* stream) {
    return ask({Collective::send, {from, nullptr, count, type}, peer, stream}, *comm);
  }
  static NcclResult receive(void* to, size_t count, NcclType type, int peer, NcclComm* comm,
                            void* stream) {
    return ask({Collective::receive, {nullptr, to, count, type}, peer, stream}, *comm);
  }
};

FakeNccl::FakeNccl(Where where, std::vector<Fault> faults, const FakeStreams& streams)
    : where_(where), streams_(streams), script_(std::move(faults)) {
  FakeNccl* none = nullptr;
  require(current.compare_exchange_strong(none, this), "there is another fake NCCL");
}

FakeNccl::~FakeNccl() { current = nullptr; }

NcclApi FakeNccl::api() const {
  using F = Functions;
  return {.compiled_for = 22809,
          .needs_gpu = false,
          .get_version = F::get_version,
          .get_error_string = F::get_error_string,
          .get_last_error = F::get_last_error,
          .get_unique_id = F::get_unique_id,
          .comm_init_rank = F::comm_init_rank,
          .comm_get_async_error = F::comm_get_async_error,
          .comm_finalize = F::comm_finalize,
          .comm_destroy = F::comm_destroy,
          .comm_abort = F::comm_abort,
          .group_start = F::group_start,
          .group_end = F::group_end,
          .all_reduce = F::of_all<Collective::all_reduce>,
          .reduce_scatter = F::of_all<Collective::reduce_scatter>,
          .all_gather = F::of_all<Collective::all_gather>,
          .send = F::send,
          .receive = F::receive};
}

// What every function does first: notes misuse, and does what the script says of this call.
NcclResult FakeNccl::enter(const char* function, NcclComm* comm, Lock& lock) {
  const std::string_view name = function;
  const bool aborts = name == "ncclCommAbort", joins = name == "ncclCommInitRankConfig",
             destroys = name == "ncclCommDestroy";
  if (comm && comm->thread != std::this_thread::get_id() && (!aborts || comm->in_group))
    note(str(function, " on another thread than the communicator's"));
  if (comm && comm->ended() && !aborts) note(str(function, " after the end"));
  if (comm && comm->finalizing && !comm->ended() && !aborts && !destroys)
    note(str(function, " after ncclCommFinalize"));
  if (comm && !joins && !aborts && !comm->ended() && group.depth == 0 && in_progress(*comm))
    note(str(function, " while another call is in progress"));
  for (const Fault& fault : script_.call(function, comm ? comm->rank : 0)) {
    if (fault.kind == Fault::Kind::hangs) never_.wait(lock, [] { return false; });
    Trouble none;
    if (const NcclResult result = (comm ? comm->trouble : none).take(fault);
        result != NcclResult::success)
      return result;
  }
  return NcclResult::success;
}

NcclResult FakeNccl::post(NcclComm& comm, const std::vector<AskedOfNccl>& calls, Lock& lock) {
  std::vector<ConnectedSide> first;
  for (const AskedOfNccl& call : calls) {
    if (call.stream != calls[0].stream) note("one group in two streams");
    if (between_two(call.kind) && call.peer != comm.rank &&
        comm.seen.insert({call.kind, call.peer}).second)
      first.emplace_back(call.kind, call.peer);
  }
  comm.open = std::make_shared<FakeBatch>(
      calls[0].stream, std::exchange(comm.trouble.stalls, false), std::move(first));
  for (const AskedOfNccl& call : calls) {
    comm.open->add(std::make_unique<FakeCall>(call, comm.rank, comm.size, comm.so_far));
    count_bytes(comm, call);
  }
  if (streams_.finish) finish(comm);
  void* const stream = calls[0].stream;
  lock.unlock();  // streams take their lock first, then this one
  if (stream) streams_.reserve(stream, true);
  return NcclResult::in_progress;
}

// Moves the data of the open group, after all that the GPUs were given before.
void FakeNccl::finish(NcclComm& comm) {
  streams_.finish();
  for (; !comm.open->connected() && !comm.wire->lost(); std::this_thread::yield()) comm.move();
  comm.batches.push_back(std::exchange(comm.open, nullptr));
  comm.batches.back()->active = true;
  for (; !comm.batches.empty() && !comm.wire->lost(); std::this_thread::yield()) comm.move();
}

bool FakeNccl::may_take(NcclComm& comm) {
  if (comm.open->polls > 0) return --comm.open->polls, false;
  move();
  return comm.trouble.slow == 0 && !comm.trouble.never && comm.open->connected();
}

// An operation on a stream begins when the stream comes to it; without a stream the call is in
// progress until it is done.
void FakeNccl::take(NcclComm& comm, Lock& lock) {
  const auto batch = std::exchange(comm.open, nullptr);
  comm.batches.push_back(batch);
  const auto begin = [this, batch] {
    batch->active = true;
    move();
    return batch->done();
  };
  if (!batch->stream) return void(begin());
  lock.unlock();
  streams_.reserve(batch->stream, false);
  streams_.enqueue_until(batch->stream, [this, begin] {
    const std::lock_guard again(mutex_);
    return begin();
  });
  lock.lock();
}

void FakeNccl::move() {
  for (bool moved = true; moved;) {
    moved = false;
    for (NcclComm& comm : comms_) moved |= comm.move();
  }
}

bool FakeNccl::in_progress(NcclComm& comm) {
  move();
  if (comm.trouble.never || comm.trouble.slow > 0) return true;
  if (comm.wire && comm.wire->lost() && where_.deaths == Deaths::noticed &&
      comm.trouble.error == NcclResult::success)
    comm.trouble.error = NcclResult::remote_error;
  if (comm.trouble.error != NcclResult::success) return false;
  if (comm.open || (comm.leaving && !comm.leaving->done())) return true;
  return comm.wire &&
         (!comm.wire->joined() || (!comm.batches.empty() && !comm.batches.front()->stream));
}

// Each rank counts what it sends: its part of the ring, or to its peer.
void FakeNccl::count_bytes(const NcclComm& comm, const AskedOfNccl& call) {
  const int to = call.kind == Collective::send ? call.peer : (comm.rank + 1) % comm.size;
  if (machines_.empty() || machines_[size_t(comm.rank)] == machines_[size_t(to)]) return;
  const size_t bytes = call.data.count * size_of_type(call.data.type),
               others = size_t(comm.size - 1);
  if (call.kind == Collective::send) bytes_between_machines_ += int64_t(bytes);
  if (call.kind == Collective::all_reduce)
    bytes_between_machines_ += int64_t(2 * bytes / size_t(comm.size) * others);
  if (call.kind == Collective::reduce_scatter || call.kind == Collective::all_gather)
    bytes_between_machines_ += int64_t(bytes * others);
}

void FakeNccl::set_machines(std::vector<int> of_rank) {
  const std::lock_guard lock(mutex_);
  machines_ = std::move(of_rank);
  bytes_between_machines_ = 0;
}

int64_t FakeNccl::bytes_between_machines() const {
  const std::lock_guard lock(mutex_);
  return bytes_between_machines_;
}

std::string FakeNccl::misuse() const {
  const std::lock_guard lock(mutex_);
  std::string text = misuse_;
  for (const NcclComm& comm : comms_)
    if (comm.aborted + comm.destroyed != 1)
      text += str("rank ", comm.rank, " was ended ", comm.aborted + comm.destroyed, " times; ");
  if (group.depth != 0) text += "a group is open; ";
  return text;
}

int FakeNccl::calls(const std::string& function) const {
  const std::lock_guard lock(mutex_);
  return script_.calls(function);
}

size_t FakeNccl::in_flight(int rank) const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const NcclComm& comm : comms_)
    if (comm.rank == rank) count += comm.batches.size();
  return count;
}

}  // namespace zl::test
