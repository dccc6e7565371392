#include <list>
#include <utility>

#include "dist/flight_recorder.h"
#include "dist/mismatch.h"
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

// A call, as the message that a sender sends before its data.
std::string announcement(const Call& call) {
  std::string text = describe(call);
  text.resize(256);
  return text;
}

class MpiCommunicator final : public ProcessCommunicator {
 public:
  MpiCommunicator(const LaunchedRank& place, std::chrono::milliseconds timeout, bool ordered,
                  ControlClient& others, EventStream& events)
      : ProcessCommunicator(place.rank, place.size, events, others, ordered, "MPI"), all_(*this) {
    join(std::chrono::nanoseconds(timeout).count());
    others_.while_waiting([this] { progress(); });
  }
  ~MpiCommunicator() override {
    if (&all_ == this) others_.while_waiting({});
  }

  void finish() override {
    Communicator::finish();
    (void)all_gather_object("", "leaving MPI");
  }

 private:
  struct InFlight {
    Operation* op;
    MpiMessages messages;  // of its step
    size_t step = 0;       // the next
  };

  // MPI needs to know of a group only to add.
  MpiCommunicator(MpiCommunicator& all, const Split& split)
      : ProcessCommunicator(all, split), all_(all) {
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

  const char* memory() const override { return "CPUs"; }

  void post(Operation& op) override {
    progress(all_.in_flight_.emplace_back(InFlight{&op, MpiMessages(op.call, rank(), size())}));
    others_.set_state(op.record, CallState::posted);
  }

  Step unordered_sum(const Tensor& tensor, const Call& call, int64_t count, char* sums) override {
    const bool all = call.kind == Collective::all_reduce;
    const std::string cure = "; leave sums to zerolab (\"zerolab\": {\"ordered\": true}), or use ";
    require_input(call.dtype == Dtype::f32 || call.dtype == Dtype::f64 || call.dtype == Dtype::i32,
                  name(call.kind), " '", call.name, "': MPI cannot add ", name(call.dtype), cure,
                  "fp32");
    require_input(all || count * size_of(call.dtype) <= kMaxMessageBytes, name(call.kind), " '",
                  call.name, "': MPI adds shards of up to 1 GiB, and this one has ",
                  human_bytes(count * size_of(call.dtype)), cure, "more ranks");
    const auto add = [=](ChunkTransport& mpi) {
      static_cast<MpiMessages&>(mpi).add(call.kind, address_at(tensor, 0), count, call.dtype);
    };
    const auto place = [=] {
      if (sums != address_at(tensor, 0))
        tensor.backend().move_bytes(address_at(tensor, 0), sums, count * size_of(call.dtype));
    };
    return {add, place};
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

  Work do_send(const Tensor& from, const Call& call) override {
    const auto mine = std::make_shared<const std::string>(announcement(call));
    return issue(from, call, {{[=](ChunkTransport& mpi) {
                   mpi.send(mine->data(), int64_t(mine->size()), Dtype::u8, call.peer);
                   mpi.send(address_at(from, 0), call.count, call.dtype, call.peer);
                 }}});
  }
  Work do_receive(const Tensor& to, const Call& call) override {
    Call other = call;
    other.kind = Collective::send, other.peer = rank();
    const std::string expected = announcement(other);
    const auto theirs = std::make_shared<std::string>(expected.size(), '\0');
    const auto hear = [=](ChunkTransport& mpi) {
      mpi.receive(theirs->data(), int64_t(theirs->size()), Dtype::u8, call.peer);
    };
    const auto compare = [=, this] {
      if (*theirs == expected) return;
      others_.stopped(
          {unmatched_text(other.peer_of_run(), describe(call), call.peer_of_run(), theirs->c_str()),
           ""});
      others_.throw_failure(call);
    };
    return issue(to, call, {{hear, compare}, {[=](ChunkTransport& mpi) {
                              mpi.receive(address_at(to, 0), call.count, call.dtype, call.peer);
                            }}});
  }

  // An operation goes on as far as its messages have moved.
  void progress(InFlight& one) {
    others_.carry_out(one.op->call, [&] {
      Operation& op = *one.op;
      while (op.state != Operation::State::done && one.messages.done()) {
        if (one.step > 0 && op.steps[one.step - 1].kernel) op.steps[one.step - 1].kernel();
        if (one.step == op.steps.size())
          op.state = Operation::State::done;
        else
          op.steps[one.step++].exchange(one.messages);
      }
    });
  }

  // All calls of this rank go on, until the run fails.
  void progress() {
    for (InFlight& one : all_.in_flight_)
      if (!others_.failed()) progress(one);
  }

  // If it takes too long, the server fails the run.
  void complete(Operation& op) override {
    const bool alone = op.call.point_to_point();
    others_.set_state(op.record, alone ? CallState::waiting : CallState::moving);
    for (int polls = 1; op.state != Operation::State::done; ++polls) {
      if (polls > 1) rest_after_poll(polls - 1);
      if (others_.failed()) others_.throw_failure(op.call);
      progress();
    }
    if (alone) all_ranks_came(op.call);
    others_.set_state(op.record, CallState::done);
    (void)forget(op);
    op.steps.clear();
  }

  bool forget(const Operation& op) {
    return std::erase_if(all_.in_flight_, [&](const InFlight& one) { return one.op == &op; }) > 0;
  }

  // An operation that was not waited for; this rank's next call throws. MPI cannot withdraw the
  // messages: a send may be read by the other rank, and collectives have no cancel. So its memory
  // is kept until the process ends.
  void release(Operation& op) noexcept override {
    if (!forget(op)) return;
    static auto* const kept = new std::vector<Steps>;
    kept->push_back(std::move(op.steps));
  }

  MpiCommunicator& all_;               // the communicator of all ranks, whose in_flight_ counts
  std::vector<std::string> machines_;  // of the members

  std::list<InFlight> in_flight_;  // in the order of their calls
};

}  // namespace

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               bool ordered) {
  const auto join = [=](ControlClient& others, EventStream& events) {
    return std::make_unique<MpiCommunicator>(place, options.timeout, ordered, others, events);
  };
  return {join, inside_mpi, "MPI"};
}

}  // namespace zl
