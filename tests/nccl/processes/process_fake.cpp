#include "tests/nccl/processes/process_fake.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "tensor/error.h"

namespace zl::test {

// What NCCL's own struct is to libnccl.
struct ProcessFake::Comm {
  Comm(int rank, int size) : rank(rank), size(size), so_far(size) {}
  const int rank, size;
  const std::thread::id thread = std::this_thread::get_id();
  Trouble trouble;
  bool finalizing = false, aborted = false, destroyed = false;
  AskedSoFar so_far;
  std::optional<ProcessWire> wire;   // until the end; none: joining has failed
  std::deque<ProcessBatch> batches;  // not done, in the order of the calls
  std::set<ConnectedSide> seen;      // so far
  int polls = 0;                     // to come that say in progress

  bool ended() const { return aborted || destroyed; }
  void move() {
    for (bool moved = bool(wire); moved;) {
      wire->move();
      moved = !batches.empty() && batches.front().move_on(*wire);
      if (moved && batches.front().done()) batches.pop_front();
    }
  }
  void close() {
    wire.reset();
    batches.clear();
  }
};

namespace {

std::atomic<ProcessFake*> current{nullptr};

// The group that a thread has open.
struct Group {
  int depth = 0;
  NcclComm* comm = nullptr;
  std::vector<AskedOfNccl> calls;
};
thread_local Group group;

}  // namespace

struct ProcessFake::Functions {
  static Comm* own(NcclComm* comm) { return reinterpret_cast<Comm*>(comm); }

  static NcclResult get_version(int* version) {
    return *version = current.load()->version_, NcclResult::success;
  }
  static const char* get_error_string(NcclResult result) {
    return result == NcclResult::remote_error ? "remote process exited or there was a network error"
           : result == NcclResult::system_error ? "unhandled system error"
                                                : "error";
  }
  static const char* get_last_error(NcclComm*) {
    ProcessFake& fake = *current;
    const Lock lock(fake.mutex_);
    return fake.script_.last_said();
  }

  static NcclResult get_unique_id(NcclUniqueId* id) {
    ProcessFake& fake = *current;
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

  static NcclResult comm_init_rank(NcclComm** comm, int ranks, const NcclUniqueId& id, int rank) {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    const std::string name(id.bytes, strnlen(id.bytes, sizeof id.bytes));
    if (name.size() != 24 || ranks < 1 || rank < 0 || rank >= ranks)
      return NcclResult::invalid_argument;
    if (fake.one_gpu && ranks > 1 && !std::getenv("NCCL_HOSTID")) return NcclResult::invalid_usage;
    Comm& joining = fake.comms_.emplace_back(rank, ranks);
    *comm = reinterpret_cast<NcclComm*>(&joining);
    if (const NcclResult result = fake.enter("ncclCommInitRankConfig", &joining, lock);
        result != NcclResult::success)
      return result;
    joining.wire.emplace(name, rank, ranks);
    if (joining.wire->taken()) return fake.note(str("two ranks ", rank)), NcclResult::invalid_usage;
    joining.move();
    return NcclResult::in_progress;
  }

  static NcclResult comm_get_async_error(NcclComm* comm, NcclResult* state) {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    Comm& asked = *own(comm);
    if (asked.ended()) return fake.note("a poll after the end"), NcclResult::invalid_argument;
    if (asked.thread != std::this_thread::get_id() && !fake.finish_gpus)  // else by the watchdog
      fake.note("a poll on another thread than the communicator's");
    *state = fake.in_progress(asked) ? NcclResult::in_progress : asked.trouble.error;
    asked.trouble.poll();
    if (asked.polls > 0) --asked.polls;
    return NcclResult::success;
  }

  static NcclResult comm_finalize(NcclComm* comm) {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    if (const NcclResult result = fake.enter("ncclCommFinalize", own(comm), lock);
        result != NcclResult::success)
      return result;
    own(comm)->finalizing = true;
    return fake.post(*own(comm),
                     {{Collective::barrier, {nullptr, nullptr, 0, NcclType::int32}, -1}});
  }

  static NcclResult comm_destroy(NcclComm* comm) {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    if (own(comm)->ended()) fake.note("destroyed after its end");
    const NcclResult result = fake.enter("ncclCommDestroy", own(comm), lock);
    if (!own(comm)->finalizing) fake.note("destroyed before it was finalised");
    own(comm)->destroyed = true;
    own(comm)->close();
    return result;
  }

  static NcclResult comm_abort(NcclComm* comm) {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    if (own(comm)->ended()) fake.note("aborted after its end");
    const NcclResult result = fake.enter("ncclCommAbort", own(comm), lock);
    own(comm)->aborted = true;
    own(comm)->close();
    return result;
  }

  static NcclResult group_start() { return ++group.depth, NcclResult::success; }
  static NcclResult group_end() {
    ProcessFake& fake = *current;
    Lock lock(fake.mutex_);
    if (group.depth == 0)
      return fake.note("a group ends that has not begun"), NcclResult::invalid_usage;
    if (--group.depth > 0) return NcclResult::success;
    const Group ended = std::exchange(group, {});
    if (ended.calls.empty()) return NcclResult::success;
    const NcclResult result = fake.enter("ncclGroupEnd", own(ended.comm), lock);
    return result == NcclResult::success ? fake.post(*own(ended.comm), ended.calls) : result;
  }

  // Addresses of emulated GPUs are those of the host with bits of the GPU's number added.
  static void* on_host(const void* address) {
    return reinterpret_cast<void*>(uintptr_t(address) & ((uintptr_t(1) << 60) - 1));
  }

  static NcclResult ask(const char* function, AskedOfNccl call, NcclStream stream) {
    ProcessFake& fake = *current;
    call.data.from = on_host(call.data.from);
    call.data.to = on_host(call.data.to);
    Lock lock(fake.mutex_);
    Comm& comm = *own(stream.comm);
    if (const NcclResult result = fake.enter(function, &comm, lock); result != NcclResult::success)
      return result;
    const bool has_peer = call.kind == Collective::broadcast || call.kind == Collective::send ||
                          call.kind == Collective::receive;
    if (has_peer && (call.peer < 0 || call.peer >= comm.size)) return NcclResult::invalid_argument;
    if (comm.ended()) return NcclResult::invalid_argument;
    if (stream.stream && !fake.finish_gpus)
      return fake.note(str(function, " in a stream")), NcclResult::invalid_argument;
    if (group.depth == 0) return fake.post(comm, {call});
    if (group.comm && group.comm != stream.comm) fake.note("one group for two communicators");
    group.comm = stream.comm;
    group.calls.push_back(call);
    return NcclResult::success;
  }
  static NcclResult all_reduce(const NcclData& data, NcclStream stream) {
    return ask("ncclAllReduce", {Collective::all_reduce, data, -1}, stream);
  }
  static NcclResult reduce_scatter(const NcclData& data, NcclStream stream) {
    return ask("ncclReduceScatter", {Collective::reduce_scatter, data, -1}, stream);
  }
  static NcclResult all_gather(const NcclData& data, NcclStream stream) {
    return ask("ncclAllGather", {Collective::all_gather, data, -1}, stream);
  }
  static NcclResult broadcast(const NcclData& data, int root, NcclStream stream) {
    return ask("ncclBroadcast", {Collective::broadcast, data, root}, stream);
  }
  static NcclResult send(const NcclData& data, int peer, NcclStream stream) {
    return ask("ncclSend", {Collective::send, data, peer}, stream);
  }
  static NcclResult receive(const NcclData& data, int peer, NcclStream stream) {
    return ask("ncclRecv", {Collective::receive, data, peer}, stream);
  }
};

ProcessFake::ProcessFake(std::vector<Fault> faults, Deaths deaths, int version)
    : deaths_(deaths), version_(version), script_(std::move(faults)) {
  ProcessFake* none = nullptr;
  require(current.compare_exchange_strong(none, this), "there is another fake NCCL");
}

ProcessFake::~ProcessFake() { current = nullptr; }

NcclApi ProcessFake::api() const {
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
NcclResult ProcessFake::enter(const char* function, Comm* comm, Lock& lock) {
  const std::string_view name = function;
  const bool aborts = name == "ncclCommAbort", joins = name == "ncclCommInitRankConfig",
             destroys = name == "ncclCommDestroy";
  if (comm && comm->thread != std::this_thread::get_id())
    note(str(function, " on another thread than the communicator's"));
  if (comm && comm->ended() && !aborts && !destroys) note(str(function, " after the end"));
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

NcclResult ProcessFake::post(Comm& comm, const std::vector<AskedOfNccl>& calls) {
  std::vector<ConnectedSide> first;
  for (const AskedOfNccl& call : calls)
    if ((call.kind == Collective::send || call.kind == Collective::receive) &&
        call.peer != comm.rank && comm.seen.insert({call.kind, call.peer}).second)
      first.emplace_back(call.kind, call.peer);
  ProcessBatch& batch =
      comm.batches.emplace_back(std::exchange(comm.trouble.stalls, false), std::move(first));
  comm.polls = kPolls;
  for (const AskedOfNccl& call : calls)
    batch.add(std::make_unique<ProcessCall>(call, comm.rank, comm.size, comm.so_far));
  if (finish_gpus) finish_gpus();
  comm.move();
  while (finish_gpus && !comm.batches.empty() && !comm.wire->lost())
    std::this_thread::yield(), comm.move();
  return NcclResult::in_progress;
}

bool ProcessFake::in_progress(Comm& comm) {
  comm.move();
  if (comm.trouble.never || comm.trouble.slow > 0) return true;
  if (comm.wire && comm.wire->lost() && deaths_ == Deaths::noticed &&
      comm.trouble.error == NcclResult::success)
    comm.trouble.error = NcclResult::remote_error;
  if (comm.trouble.error != NcclResult::success) return false;
  return comm.polls > 0 || (comm.wire && (!comm.wire->joined() || !comm.batches.empty()));
}

std::string ProcessFake::misuse() const {
  const Lock lock(mutex_);
  std::string text = misuse_;
  for (const Comm& comm : comms_)
    if (comm.aborted + comm.destroyed != 1)
      text += str("rank ", comm.rank, " was ended ", comm.aborted + comm.destroyed, " times; ");
  if (group.depth != 0) text += "a group is open; ";
  return text;
}

int ProcessFake::calls(const std::string& function) const {
  const Lock lock(mutex_);
  return script_.calls(function);
}

}  // namespace zl::test
