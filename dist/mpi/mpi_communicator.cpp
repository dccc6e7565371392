#include <algorithm>
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

using Clock = std::chrono::steady_clock;

const Call kJoining{.kind = Collective::barrier, .name = "joining MPI", .has_deadline = false};

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
      : ProcessCommunicator(place.rank, place.size, events, others, ordered, "MPI"),
        all_(*this),
        timeout_(timeout) {
    // These do not count as calls of the program, which are numbered from 1.
    machines_ = do_all_gather_object(machine_id(), kJoining);
    ranks_.per_machine = ranks_per_machine(machines_);
    start();
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
  // A call of this rank until its data has moved. Its Work owns it, so that no tensor outlives the
  // rank's memory.
  struct Operation {
    Operation(MpiCommunicator& owner, const Call& call, Steps steps)
        : owner(owner),
          call(call),
          steps(std::move(steps)),
          messages(call, owner.rank(), owner.size()) {}
    Operation(const Operation&) = delete;
    ~Operation() { owner.release(*this); }

    // Goes on as far as its messages have moved.
    void progress() {
      while (!done && messages.done()) {
        if (step > 0 && steps[step - 1].kernel) steps[step - 1].kernel();
        done = step == steps.size();
        if (!done) steps[step++].exchange(messages);
      }
    }

    MpiCommunicator& owner;
    const Call call;
    Steps steps;
    size_t step = 0;  // the next
    bool done = false;
    MpiMessages messages;
    int64_t record = 0;  // in the flight recorder
  };

  // MPI needs to know of a group only to add.
  MpiCommunicator(MpiCommunicator& all, const Split& split)
      : ProcessCommunicator(all, split), all_(all), timeout_(all.timeout_) {
    for (const int member : split.members) machines_.push_back(all.machines_[size_t(member)]);
    ranks_.per_machine = ranks_per_machine(machines_);
  }

  std::unique_ptr<Communicator> do_split(const Split& split) override {
    (void)do_all_gather_object("", split.call);
    std::unique_ptr<MpiCommunicator> group(new MpiCommunicator(*this, split));
    if (!ordered_) in_mpi(split.call, [&] { make_mpi_group(split.group, group->size()); });
    return group;
  }

  void start() {
    const Clock::time_point began = Clock::now();
    MpiPlace place;
    in_mpi(kJoining, [&] {
      place = start_mpi([&] {
        if (others_.failed()) throw CommunicationError("another rank has failed");
        if (timeout_.count() > 0 && Clock::now() - began > timeout_)
          throw CommunicationError("MPI_Init_thread did not return within " + timeout_text() +
                                   "; a slow start needs a larger --timeout");
      });
    });
    const auto text = [](int size, int rank) {
      return str(" counts ", size, size == 1 ? " rank" : " ranks", " and calls it rank ", rank);
    };
    const auto ranks = do_all_gather_object(text(place.size, place.rank), kJoining);
    const MpiInBuild mpi = require_mpi();
    for (int r = 0; r < size(); ++r)  // all ranks say the same
      require_input(ranks[size_t(r)] == text(size(), r), "the launcher started ", size(),
                    " ranks, but on rank ", r, " ", mpi.name(), ranks[size_t(r)],
                    place.size == 1 ? ", so another MPI's launcher started them" : "",
                    ". Cure: start them with ", mpi.mpirun,
                    ", or under Slurm with srun --mpi=pmix or --mpi=pmi2");
  }

  std::string timeout_text() const {
    return human_time(std::chrono::nanoseconds(timeout_).count());
  }

  [[noreturn]] void fail(const Call& call, const std::string& why) {
    others_.fail(str("rank ", call.group.of_run(rank()), " in ", describe(call), ": ", why));
    others_.throw_failure(call);
  }

  void in_mpi(const Call& call, const std::function<void()>& use) {
    try {
      use();
    } catch (const CommunicationError& error) {
      fail(call, error.what());
    }
  }

  Work issue(const Tensor& tensor, const Call& call, Steps steps) override {
    Backend& backend = tensor.backend();
    require(backend.holds_data() && !backend.native_stream(Stream::communication), name(call.kind),
            " '", call.name, "': MPI moves the memory of CPUs, and this tensor is on ",
            backend.name());
    if (call.count == 0 && !call.point_to_point()) steps.clear();
    const auto op = std::make_shared<Operation>(*this, call, std::move(steps));
    op->record = others_.require_same_call(call, events());
    if (!call.point_to_point()) all_ranks_came(call);
    all_.in_flight_.push_back(op.get());
    in_mpi(call, [&] { op->progress(); });
    others_.set_state(op->record, CallState::posted);
    return Work([op] { op->owner.wait(*op); });
  }

  Step unordered_sum(const Tensor& tensor, const Call& call) override {
    const bool all = call.kind == Collective::all_reduce;
    const int64_t count = all ? call.count : call.count / size(), to = all ? 0 : rank() * count;
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
      if (to > 0)
        tensor.backend().move_bytes(address_at(tensor, 0), address_at(tensor, to),
                                    count * size_of(call.dtype));
    };
    return {add, place};
  }

  // A binomial tree: after k rounds 2^k ranks have the values. Ranks count from the root here.
  Work do_broadcast(const Tensor& inout, const Call& call) override {
    const int ranks = size(), place = (rank() + ranks - call.peer) % ranks;
    int has = 1;  // ranks that have the values before this one sends
    while (has <= place) has *= 2;
    const auto rank_at = [=](int place) { return (place + call.peer) % ranks; };
    const auto receive = [=](ChunkTransport& mpi) {
      if (place > 0)
        mpi.receive(address_at(inout, 0), call.count, call.dtype, rank_at(place - has / 2));
    };
    const auto send = [=](ChunkTransport& mpi) {
      for (int next = has; place + next < ranks; next *= 2)
        mpi.send(address_at(inout, 0), call.count, call.dtype, rank_at(place + next));
    };
    return issue(inout, call, {{receive}, {send}});
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

  // All calls of this rank go on, until the run fails.
  void progress() {
    for (Operation* op : all_.in_flight_)
      if (!others_.failed()) in_mpi(op->call, [&] { op->progress(); });
  }

  void wait(Operation& op) {
    const bool alone = op.call.point_to_point();  // then the server sees that it takes too long
    others_.set_state(op.record, alone ? CallState::waiting : CallState::moving);
    Clock::time_point began = Clock::now(), last = began;
    for (int polls = 1;; ++polls) {
      if (others_.failed()) others_.throw_failure(op.call);
      progress();
      if (op.done) break;
      const Clock::time_point now = Clock::now();
      if (now - last > std::chrono::seconds(1)) began += now - last;  // this process was stopped
      last = now;
      if (!alone && timeout_.count() > 0 && now - began > timeout_)
        fail(op.call, "the transfer was not done within " + timeout_text() +
                          ". If the ranks are only slow, raise --timeout (0 waits forever)");
      rest_after_poll(polls);
    }
    if (alone) all_ranks_came(op.call);
    others_.set_state(op.record, CallState::done);
    std::erase(all_.in_flight_, &op);
    op.steps.clear();
  }

  // An operation that was not waited for; this rank's next call throws. MPI cannot withdraw the
  // messages: a send may be read by the other rank, and collectives have no cancel. So its memory
  // is kept until the process ends.
  void release(Operation& op) noexcept {
    if (std::erase(all_.in_flight_, &op) > 0) {
      static auto* const kept = new std::vector<Steps>;
      kept->push_back(std::move(op.steps));
    }
  }

  MpiCommunicator& all_;  // the communicator of all ranks, whose in_flight_ counts
  const std::chrono::milliseconds timeout_;
  std::vector<std::string> machines_;  // of the members

  std::vector<Operation*> in_flight_;  // in the order of their calls
};

}  // namespace

ProcessTransport mpi_transport(const LaunchedRank& place, const RankOptions& options,
                               bool ordered) {
  ProcessTransport transport;
  transport.join = [=](ControlClient& others, EventStream& events) {
    return std::make_unique<MpiCommunicator>(place, options.timeout, ordered, others, events);
  };
  transport.where = [] { return where_text("MPI", inside_mpi()); };
  return transport;
}

}  // namespace zl
