// The only file that sees mpi.h: MPI's start and end in this process, and the communicator of ranks
// whose data it moves.
//
// Functions throw CommunicationError with MPI's message. None waits in MPI but its start and end.
// Only the rank's thread, which is the process's main thread, is inside MPI.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "dist/flight_recorder.h"
#include "dist/mpi/mpi_transport.h"
#include "dist/ordered/polling.h"
#include "dist/processes/process_communicator.h"
#include "dist/trace/host_id.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t(1) << 30;  // MPI counts in int

MPI_Comm world = MPI_COMM_NULL;     // of all ranks; its errors are results
std::atomic<bool> starting{false};  // this process is in MPI_Init_thread

// Calls MPI's function of this name. MPI's message is "MPI_ERR_TRUNCATE: message truncated" with
// Open MPI, a stack of lines with MPICH.
template <class... Parameters, class... Arguments>
void call(const char* name, int (*function)(Parameters...), Arguments... arguments) {
  const int error = function(arguments...);
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)MPI_Error_string(error, text, &length);
  std::replace(text, text + length, '\n', ' ');
  throw CommunicationError(str(name, " failed: ", text));
}

// Starts MPI if no run of this process has. MPI may wait for the other ranks.
void start_mpi() {
  if (world != MPI_COMM_NULL) return;
  int level = 0;
  starting = true;
  const std::shared_ptr<void> started(nullptr, [](void*) { starting = false; });
  call("MPI_Init_thread", MPI_Init_thread, nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  call("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // A copy, so that no message of another library in this process is mistaken for ours. It has the
  // error handler too.
  call("MPI_Comm_dup", MPI_Comm_dup, MPI_COMM_WORLD, &world);
}

// The messages of a call, of at most 1 GiB. A send is done when it is being received, so that none
// is left for MPI to move while this rank is not inside MPI. MPI keeps their order between two
// ranks, and a rank has one call at a time under way; the calls of each group have a tag. Ranks are
// those of the call's group.
class MpiMessages final : public ChunkTransport {
 public:
  MpiMessages(const RankGroup& group, int rank, int size)
      : group_(group), rank_(rank), size_(size) {}

  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override {
    post("MPI_Issend", MPI_Issend, from, count * size_of(dtype), to_rank);
  }
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override {
    post("MPI_Irecv", MPI_Irecv, to, count * size_of(dtype), from_rank);
  }
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override {
    for (int i = 1; i < size_; ++i) {
      const int next = (rank_ + i) % size_, last = (rank_ + size_ - i) % size_;
      receive(to + last * count * size_of(dtype), count, dtype, last);
      send(from, count, dtype, next);
    }
  }

  // Whether all have moved; they are forgotten then. Until then MPI uses the buffers, and cannot
  // withdraw the messages. One after the other, because a request that is done becomes
  // MPI_REQUEST_NULL, whose test is free.
  bool done() {
    bool all = true;
    for (MPI_Request& request : requests_) {
      int done = 0;
      MPI_Status status;
      call("MPI_Test", MPI_Test, &request, &done, &status);
      all = all && done;
    }
    if (all) requests_.clear();
    return all;
  }

 private:
  template <class Function, class Memory>
  void post(const char* name, Function function, Memory* memory, int64_t bytes, int peer) {
    for (int64_t at = 0; at < bytes; at += kMaxMessageBytes) {
      requests_.push_back(MPI_REQUEST_NULL);
      call(name, function, memory + at, int(std::min(kMaxMessageBytes, bytes - at)), MPI_BYTE,
           group_.of_run(peer), group_.number, world, &requests_.back());
    }
  }

  const RankGroup group_;
  const int rank_, size_;
  std::vector<MPI_Request> requests_;
};

class MpiCommunicator final : public ProcessCommunicator {
 public:
  MpiCommunicator(const LaunchedRank& place, ControlClient& others, EventStream& events)
      : ProcessCommunicator(place.rank, place.size, events, others) {
    join();
  }

  void finish() override {
    Communicator::finish();
    (void)all_gather_object("", "leaving MPI");
  }

 private:
  MpiCommunicator(MpiCommunicator& all, const Split& split) : ProcessCommunicator(all, split) {
    for (const int member : split.members) machines_.push_back(all.machines_[size_t(member)]);
    ranks_.per_machine = ranks_per_machine(machines_);
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    return std::unique_ptr<Communicator>(new MpiCommunicator(*this, split));
  }

  void join() {
    // This does not count as a call of the program, which are numbered from 1.
    const Call joining{.kind = Collective::barrier, .name = "joining MPI"};
    const int64_t record = others_.require_same_call(joining, events());
    others_.carry_out(joining, start_mpi);
    others_.set_state(record, CallState::done);
    others_.while_waiting = [] {  // a rank whose send has not been answered yet may be waited for
      int any = 0;
      (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &any, MPI_STATUS_IGNORE);
    };
    int mine = -1, all = 0;
    call("MPI_Comm_rank", MPI_Comm_rank, world, &mine);
    call("MPI_Comm_size", MPI_Comm_size, world, &all);
    const MpiInBuild mpi = require_mpi();
    for (const std::string& text :
         do_all_gather_object(to_bytes(mine, all, machine_id()), joining)) {
      WireReader wire(text);
      const int rank = wire.get<int>(), ranks = wire.get<int>();
      require_input(rank == int(machines_.size()) && ranks == size(), "the launcher started ",
                    size(), " ranks, but on rank ", machines_.size(), " ", mpi.name(), " counts ",
                    ranks, ranks == 1 ? " rank" : " ranks", " and calls it rank ", rank,
                    ranks == 1 ? ", so another MPI's launcher started them" : "",
                    ". Cure: start them with ", mpi.mpirun,
                    ", or under Slurm with srun --mpi=pmix or --mpi=pmi2");
      machines_.push_back(wire.get<std::string>());
    }
    ranks_.per_machine = ranks_per_machine(machines_);
  }

  bool moves_memory_of(Backend& backend) const override {
    return !backend.native_stream(Stream::communication);
  }

  // Returns when the data has moved, so that a rank has one call under way. If it fails, MPI cannot
  // withdraw its messages, which other ranks may read: its memory is kept until the process ends.
  Work carry_out(const Call& call, Backend&, Steps steps, int64_t record) override {
    static auto* const kept = new std::vector<Steps>;
    const auto move = [&] {
      MpiMessages messages(call.group, rank(), size());
      for (const Step& step : steps) {
        step.exchange(messages);
        for (int polls = 1; !messages.done(); ++polls) {
          others_.require_running();
          rest_after_poll(polls);
        }
        if (step.kernel) step.kernel();
      }
    };
    others_.set_state(record, CallState::moving);
    others_.carry_out(call, move, [&] { kept->push_back(std::move(steps)); });
    others_.set_state(record, CallState::done);
    has_moved(call);
    return Work([steps = std::move(steps)] {});  // keeps their scratch
  }

  std::vector<std::string> machines_;  // of the members
};

}  // namespace

std::optional<MpiInBuild> mpi_in_build() {
  return MpiInBuild{ZEROLAB_OPEN_MPI, ZEROLAB_MPI_VERSION, ZEROLAB_MPIRUN};  // of CMake
}

ProcessTransport mpi_transport(const LaunchedRank& place) {
  return {.join =
              [=](ControlClient& others, EventStream& events) {
                return std::make_unique<MpiCommunicator>(place, others, events);
              },
          .inside = [] { return starting ? "MPI_Init_thread" : nullptr; },
          .returns = false};
}

void finish_mpi() {
  if (world == MPI_COMM_NULL) return;
  static std::atomic<bool> finished{false};
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::minutes(1));
    if (finished) return;
    std::fputs("zerolab: MPI_Finalize does not return: another rank has not come to its end\n",
               stderr);
    std::_Exit(4);
  }).detach();
  call("MPI_Finalize", MPI_Finalize);
  finished = true;
}

}  // namespace zl
