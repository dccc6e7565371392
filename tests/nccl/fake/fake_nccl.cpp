#include "tests/nccl/fake/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tensor/error.h"
#include "tests/nccl/fake/fake_matching.h"

struct CUstream_st;
namespace zl::cuda_on_cpu {
void enqueue_until(CUstream_st* stream, std::function<bool()> what);
void reserve(CUstream_st* stream, bool reserved);
void* on_host(const void* address);
void allocate_for_nccl();
}  // namespace zl::cuda_on_cpu

namespace zl::test {
namespace {

std::atomic<FakeNccl*> current{nullptr};

// The group that a thread has open.
struct Group {
  int depth = 0;
  NcclComm* comm = nullptr;
  std::vector<FakeNccl::Operation> operations;
};
thread_local Group group;

}  // namespace

struct FakeNccl::Functions {
  using Lock = std::unique_lock<std::mutex>;

  static NcclResult get_version(int* version) {
    return *version = current.load()->version_, NcclResult::success;
  }
  static const char* get_error_string(NcclResult result) {
    return result == NcclResult::system_error ? "unhandled system error" : "error";
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
    *id = {};
    id->bytes[0] = char(fake.worlds_.size() + 1);
    fake.worlds_.push_back({*id, {}});
    return NcclResult::success;
  }

  static NcclResult comm_init_rank(NcclComm** comm, int ranks, const NcclUniqueId& id, int rank) {
    FakeNccl& fake = *current;
    if (fake.streams_ == Streams::emulated) cuda_on_cpu::allocate_for_nccl();  // its buffers
    Lock lock(fake.mutex_);
    const auto world = std::ranges::find_if(fake.worlds_, [&](const World& w) {
      return std::memcmp(w.id.bytes, id.bytes, sizeof id.bytes) == 0;
    });
    if (world == fake.worlds_.end()) return NcclResult::invalid_argument;
    world->comms.resize(size_t(ranks));
    fake.comms_.emplace_back();
    *comm = &fake.comms_.back();
    (*comm)->rank = rank;
    (*comm)->size = ranks;
    (*comm)->world = int(world - fake.worlds_.begin());
    (*comm)->thread = std::this_thread::get_id();
    const NcclResult result = fake.enter("ncclCommInitRankConfig", *comm, lock);
    if (result == NcclResult::success) world->comms[size_t(rank)] = *comm;
    return result == NcclResult::success ? NcclResult::in_progress : result;
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
    return NcclResult::in_progress;
  }

  static NcclResult comm_destroy(NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    const NcclResult result = fake.enter("ncclCommDestroy", comm, lock);
    if (!comm->finalizing) fake.note("destroyed before it was finalised");
    comm->destroyed = true;
    return result;
  }

  static NcclResult comm_abort(NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (comm->ended()) fake.note("aborted after its end");
    const NcclResult result = fake.enter("ncclCommAbort", comm, lock);
    comm->aborted = true;
    for (const auto& batch : std::exchange(comm->batches, {})) batch->done = true;  // streams go on
    if (const auto open = std::exchange(comm->open, nullptr)) {
      lock.unlock();
      fake.reserve(*open, false);
    }
    return result;
  }

  static NcclResult group_start() { return ++group.depth, NcclResult::success; }
  static NcclResult group_end() {
    FakeNccl& fake = *current;
    if (--group.depth > 0) return NcclResult::success;
    const Group ended = std::exchange(group, {});
    if (ended.operations.empty()) return NcclResult::success;
    Lock lock(fake.mutex_);
    ended.comm->in_group = false;
    const NcclResult result = fake.enter("ncclGroupEnd", ended.comm, lock);
    return result == NcclResult::success ? fake.post(ended.comm, ended.operations, lock) : result;
  }

  static NcclResult ask(const char* function, Operation operation, NcclComm* comm) {
    FakeNccl& fake = *current;
    Lock lock(fake.mutex_);
    if (const NcclResult result = fake.enter(function, comm, lock); result != NcclResult::success)
      return result;
    if (operation.peer >= comm->size) return NcclResult::invalid_argument;
    if (fake.streams_ == Streams::emulated) {
      operation.data.from = cuda_on_cpu::on_host(operation.data.from);
      operation.data.to = cuda_on_cpu::on_host(operation.data.to);
    }
    if (group.depth == 0) return fake.post(comm, {operation}, lock);
    if (group.comm && group.comm != comm) fake.note("one group for two communicators");
    group.comm = comm;
    comm->in_group = true;
    group.operations.push_back(operation);
    return NcclResult::success;
  }
  static NcclResult all_reduce(const NcclData& data, NcclStream stream) {
    return ask("ncclAllReduce", {Collective::all_reduce, data, -1, stream.stream}, stream.comm);
  }
  static NcclResult reduce_scatter(const NcclData& data, NcclStream stream) {
    return ask("ncclReduceScatter", {Collective::reduce_scatter, data, -1, stream.stream},
               stream.comm);
  }
  static NcclResult all_gather(const NcclData& data, NcclStream stream) {
    return ask("ncclAllGather", {Collective::all_gather, data, -1, stream.stream}, stream.comm);
  }
  static NcclResult broadcast(const NcclData& data, int root, NcclStream stream) {
    return ask("ncclBroadcast", {Collective::broadcast, data, root, stream.stream}, stream.comm);
  }
  static NcclResult send(const NcclData& data, int peer, NcclStream stream) {
    return ask("ncclSend", {Collective::send, data, peer, stream.stream}, stream.comm);
  }
  static NcclResult receive(const NcclData& data, int peer, NcclStream stream) {
    return ask("ncclRecv", {Collective::receive, data, peer, stream.stream}, stream.comm);
  }
};

FakeNccl::FakeNccl(std::vector<Fault> faults, int version, Streams streams)
    : version_(version), streams_(streams), script_(std::move(faults)) {
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
          .all_reduce = F::all_reduce,
          .reduce_scatter = F::reduce_scatter,
          .all_gather = F::all_gather,
          .broadcast = F::broadcast,
          .send = F::send,
          .receive = F::receive};
}

// What every function does first: notes misuse, and does what the script says of this call.
NcclResult FakeNccl::enter(const char* function, NcclComm* comm,
                           std::unique_lock<std::mutex>& lock) {
  const int rank = comm ? comm->rank : 0;
  const bool aborts = std::string_view(function) == "ncclCommAbort";
  if (comm && comm->thread != std::this_thread::get_id() && (!aborts || comm->in_group))
    note(str(function, " on another thread than the communicator's"));
  if (comm && comm->ended() && !aborts) note(str(function, " after the end"));
  const bool joins = std::string_view(function) == "ncclCommInitRankConfig";
  if (comm && !joins && !aborts && group.depth == 0 && in_progress(*comm))
    note(str(function, " while another call is in progress"));
  for (const Fault& fault : script_.call(function, rank)) {
    if (fault.kind == Fault::Kind::hangs) never_.wait(lock, [] { return false; });
    Trouble none;
    if (const NcclResult result = (comm ? comm->trouble : none).take(fault);
        result != NcclResult::success)
      return result;
  }
  return NcclResult::success;
}

NcclResult FakeNccl::post(NcclComm* comm, std::vector<Operation> operations,
                          std::unique_lock<std::mutex>& lock) {
  const auto batch = std::make_shared<Batch>();
  void* const stream = operations.front().stream;
  for (const Operation& operation : operations) {
    if (operation.stream != stream) note("one group in two streams");
    const std::pair side(operation.kind, operation.peer);
    const bool between_two =
        operation.kind == Collective::send || operation.kind == Collective::receive;
    if (between_two && operation.peer != comm->rank && comm->seen.insert(side).second)
      batch->first.insert(side);
  }
  batch->operations = std::move(operations);
  batch->stalled = std::exchange(comm->trouble.stalls, false);
  comm->open = batch;
  lock.unlock();  // streams take their lock first, then this one
  reserve(*batch, true);
  return NcclResult::in_progress;
}

void FakeNccl::reserve(const Batch& batch, bool reserved) {
  void* const stream = batch.operations.front().stream;
  if (!stream) return;
  if (streams_ == Streams::emulated)
    cuda_on_cpu::reserve(static_cast<CUstream_st*>(stream), reserved);
  else
    static_cast<FakeStream*>(stream)->reserved = reserved;
}

bool FakeNccl::may_take(NcclComm& comm) {
  if (comm.open->polls > 0) return --comm.open->polls, false;
  return comm.trouble.slow == 0 && !comm.trouble.never &&
         connected(worlds_[size_t(comm.world)], comm);
}

// An operation on a stream begins when the stream comes to it; without a stream the call is in
// progress until it is done.
void FakeNccl::take(NcclComm& comm, std::unique_lock<std::mutex>& lock) {
  const auto batch = std::exchange(comm.open, nullptr);
  void* const stream = batch->operations.front().stream;
  comm.batches.push_back(batch);
  const auto begin = [this, &comm, batch] {
    batch->active = true;
    if (!comm.ended()) match(worlds_[size_t(comm.world)]);
    return batch->done;
  };
  if (!stream) return void(begin());
  const auto go_on = [this, begin] {
    const std::lock_guard again(mutex_);
    return begin();
  };
  lock.unlock();
  reserve(*batch, false);
  if (streams_ == Streams::emulated)
    cuda_on_cpu::enqueue_until(static_cast<CUstream_st*>(stream), go_on);
  else
    static_cast<FakeStream*>(stream)->enqueue(go_on);
  lock.lock();
}

bool FakeNccl::in_progress(NcclComm& comm) const {
  const World& world = worlds_[size_t(comm.world)];
  if (comm.trouble.never || comm.trouble.slow > 0) return true;
  if (comm.trouble.error != NcclResult::success) return false;
  if (!world.complete() || comm.open) return true;
  if (comm.finalizing &&
      !std::ranges::all_of(world.comms, [](const NcclComm* other) { return other->finalizing; }))
    return true;
  return !comm.batches.empty() && !comm.batches.front()->operations.front().stream;
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
