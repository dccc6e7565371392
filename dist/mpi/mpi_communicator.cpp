#include <utility>

#include "dist/flight_recorder.h"
#include "dist/mpi/library.h"
#include "dist/mpi/mpi_calls.h"
#include "dist/mpi/mpi_transport.h"
#include "dist/ordered/polling.h"
#include "dist/processes/process_communicator.h"
#include "dist/trace/host_id.h"
#include "tensor/backend.h"
#include "tensor/error.h"

namespace zl {
namespace {

class MpiCommunicator final : public ProcessCommunicator {
 public:
  MpiCommunicator(const LaunchedRank& place, std::chrono::milliseconds timeout, bool ordered,
                  ControlClient& others, EventStream& events)
      : ProcessCommunicator(place.rank, place.size, events, others, ordered, "MPI") {
    join(std::chrono::nanoseconds(timeout).count());
  }

  void finish() override {
    Communicator::finish();
    (void)all_gather_object("", "leaving MPI");
  }

 private:
  // MPI needs to know of a group only to add.
  MpiCommunicator(MpiCommunicator& all, const Split& split) : ProcessCommunicator(all, split) {
    for (const int member : split.members) machines_.push_back(all.machines_[size_t(member)]);
    ranks_.per_machine = ranks_per_machine(machines_);
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    std::unique_ptr<MpiCommunicator> group(new MpiCommunicator(*this, split));
    if (!ordered_) others_.carry_out(split.call, [&] { make_mpi_group(split.group); });
    return group;
  }

  void join(int64_t timeout) {
    // This does not count as a call of the program, which are numbered from 1.
    const Call joining{.kind = Collective::barrier, .name = "joining MPI", .has_deadline = false};
    (void)do_all_gather_object("", joining);  // so that reports say where the ranks are
    const int64_t began = running_nanoseconds();
    MpiPlace place;
    others_.carry_out(joining, [&] {
      place = start_mpi([&] {
        others_.require_running();
        if (timeout > 0 && running_nanoseconds() - began > timeout)
          throw CommunicationError(str("MPI_Init_thread did not return within ",
                                       human_time(timeout),
                                       "; a slow start needs a larger --timeout"));
      });
    });
    const std::string mine = WireWriter().put(place).text(machine_id()).take();
    const MpiInBuild mpi = require_mpi();
    for (const std::string& text : do_all_gather_object(mine, joining)) {
      WireReader wire(text);
      const auto [rank, ranks] = wire.get<MpiPlace>();
      require_input(rank == int(machines_.size()) && ranks == size(), "the launcher started ",
                    size(), " ranks, but on rank ", machines_.size(), " ", mpi.name(), " counts ",
                    ranks, ranks == 1 ? " rank" : " ranks", " and calls it rank ", rank,
                    ranks == 1 ? ", so another MPI's launcher started them" : "",
                    ". Cure: start them with ", mpi.mpirun,
                    ", or under Slurm with srun --mpi=pmix or --mpi=pmi2");
      machines_.push_back(wire.text());
    }
    ranks_.per_machine = ranks_per_machine(machines_);
  }

  bool moves_memory_of(Backend& backend) const override {
    return !backend.native_stream(Stream::communication);
  }

  // Returns when the data has moved, so that a rank has one call under way.
  void post(Operation& op) override {
    others_.set_state(op.record, CallState::moving);
    others_.carry_out(op.call, [&] {
      MpiMessages messages(op.call.group, rank(), size());
      const auto wait = [&] {
        for (int polls = 1; !messages.done(); ++polls) {
          others_.require_running();
          rest_after_poll(polls);
        }
      };
      for (const Step& step : op.steps) {
        step.exchange(messages);
        wait();
        if (step.kernel) step.kernel();
      }
      if (ordered_) return;
      static char ends[kMostRanks];  // MPI's own messages have gone too when these have
      messages.all_gather(&ends[rank()], ends, 1, Dtype::u8);
      wait();
    });
    op.state = Operation::State::done;
    others_.set_state(op.record, CallState::done);
    has_moved(op.call);
  }

  // An all-reduce, also for a reduce_scatter: the local shard then has its sum. Each rank sends
  // twice as much, but an all-reduce can be made in parts of 1 GiB, whose elements an int counts.
  Step unordered_sum(const Tensor& tensor, const Call& call, int64_t, char*) override {
    require_input(call.dtype == Dtype::f32 || call.dtype == Dtype::f64 || call.dtype == Dtype::i32,
                  name(call.kind), " '", call.name, "': MPI cannot add ", name(call.dtype),
                  "; leave sums to zerolab (\"zerolab\": {\"ordered\": true}), or use fp32");
    return {[=](ChunkTransport& mpi) {
      static_cast<MpiMessages&>(mpi).add(address_at(tensor, 0), call.count, call.dtype);
    }};
  }

  // A binomial tree: after k rounds 2^k ranks have the values. Ranks count from the root here.
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    const int ranks = size(), place = (rank() + ranks - call.peer) % ranks;
    Steps rounds;
    for (int have = 1; have < ranks; have *= 2)
      rounds.push_back({[=](ChunkTransport& mpi) {
        char* const values = address_at(inout, 0);
        if (place < have && place + have < ranks)
          mpi.send(values, call.count, call.dtype, (place + have + call.peer) % ranks);
        if (place >= have && place < 2 * have)
          mpi.receive(values, call.count, call.dtype, (place - have + call.peer) % ranks);
      }});
    return issue(inout, call, std::move(rounds));
  }

  void complete(Operation& op) override { op.steps.clear(); }

  // A call that failed. MPI cannot withdraw its messages: a send may be read by the other rank, and
  // collectives have no cancel. So its memory is kept until the process ends.
  void release(Operation& op) noexcept override {
    static auto* const kept = new std::vector<Steps>;
    if (op.state != Operation::State::done) kept->push_back(std::move(op.steps));
  }

  std::vector<std::string> machines_;  // of the members
};

}  // namespace

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               bool ordered) {
  const auto join = [=](ControlClient& others, EventStream& events) {
    return std::make_unique<MpiCommunicator>(place, options.timeout, ordered, others, events);
  };
  return {join};
}

}  // namespace zl
