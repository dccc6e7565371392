#include "dist/lane/lane.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "tensor/error.h"

namespace zl {
namespace {

using std::chrono::nanoseconds;

int64_t now() { return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// [B] that a rank sends over its link. What it receives takes as long as the peer's send.
double sent_bytes(const Call& call, int ranks) {
  const Collective kind = call.kind == Collective::receive ? Collective::send : call.kind;
  return double(sent_bytes_times_n(kind, call.count * size_of(call.dtype), ranks)) / ranks;
}

// Makes the same call of another communicator.
Work make(const Call& call, const Tensor& a, const Tensor& b, Communicator& comm) {
  const CallName name{call.name, Purpose::check};
  switch (call.kind) {
    case Collective::all_reduce: return comm.all_reduce(a, call.reduction, name, b);
    case Collective::reduce_scatter: return comm.reduce_scatter(a, call.reduction, name, b);
    case Collective::all_gather: return comm.all_gather(a, name);
    case Collective::broadcast: return comm.broadcast(a, call.peer, name);
    case Collective::all_to_all: return comm.all_to_all(a, b, name);
    case Collective::barrier: return comm.barrier(name);
    case Collective::send: return comm.send(a, call.peer, name);
    case Collective::receive: return comm.receive(a, call.peer, name);
  }
  return {};
}

// The second thread of a rank: it runs one task after another while the rank computes.
class Lane {
 public:
  // A thread named "lane 3".
  explicit Lane(int rank) : thread_(start_thread(str("lane ", rank), [this](auto&) { run(); })) {}
  ~Lane() { close(); }
  Lane(const Lane&) = delete;

  // The result is ready when the task and all before it have run; it has what the task threw.
  std::future<void> add(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    added_.notify_one();
    return tasks_.emplace_back(std::move(task)).get_future();
  }
  // Ends the thread after its last task. add() must not be called any more.
  void close() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
      added_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      added_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool ends_ = false;
  std::jthread thread_;  // the last member, because it uses the others
};

class LaneCommunicator final : public Communicator {
 public:
  LaneCommunicator(std::unique_ptr<Communicator> inner, EventStream& events, const Link& link,
                   SharedFailure failure)
      : Communicator(inner->rank(), inner->size(), events),
        all_(*this),
        inner_(std::move(inner)),
        link_(link),
        failure_(std::move(failure)),
        lane_(std::make_shared<Lane>(rank())) {
    require(inner_->reduction_scratch_bytes(int64_t(1) << 20, Dtype::f32) == 0,
            "a lane cannot carry out reductions that need scratch memory, because only the rank's "
            "thread may allocate; use this engine without a lane");
    inner_->events().listen([this](const Event& event) {
      if (event.kind == EventKind::collective_met && current_) current_->met = event.nanoseconds;
    });
  }
  // The lane ends first, or has done the calls of a group.
  ~LaneCommunicator() override {
    if (&all_ == this)
      lane_->close();
    else
      lane_->add([] {}).wait();
  }

  void finish() override {
    Communicator::finish();
    lane_->add([this] { inner_->finish(); }).get();
  }

 private:
  // A call from issue to wait. Belongs to the Work that the rank has, and is destroyed on its
  // thread. The lane uses it until `done` is ready.
  struct Operation {
    ~Operation() {
      const auto is_done = [&] {
        return done.wait_for(nanoseconds(0)) == std::future_status::ready;
      };
      if (done.valid() && (call.point_to_point() || !is_done())) of.drop(*this);
    }

    LaneCommunicator& of;
    const Call call;
    const Tensor a, b;
    const char *phase, *unit;  // in which the rank issued it
    std::future<void> done;  // of a send or receive: that it is posted; valid until the rank waits
    // The lane's.
    Work work;
    int64_t began = 0, met = 0, moved = 0;  // [ns]
  };

  LaneCommunicator(LaneCommunicator& all, const Split& split, std::unique_ptr<Communicator> inner)
      : Communicator(all, split),
        all_(all),
        inner_(std::move(inner)),
        link_(all.link_),
        failure_(all.failure_),
        lane_(all.lane_) {}

  Work do_all_reduce(const Tensor& inout, const Tensor& start, const Call& call) override {
    return issue(call, inout, start);
  }
  Work do_reduce_scatter(const Tensor& full, const Tensor& start, const Call& call) override {
    return issue(call, full, start);
  }
  Work do_all_gather(const Tensor& full, const Call& call) override { return issue(call, full); }
  Work do_broadcast(const Tensor& inout, const Call& call) override { return issue(call, inout); }
  Work do_all_to_all(const Tensor& from, const Tensor& to, const Call& call) override {
    return issue(call, from, to);
  }
  Work do_barrier(const Call& call) override { return issue(call); }
  Work do_point_to_point(const Tensor& t, const Call& call) override { return issue(call, t); }
  std::vector<std::string> do_all_gather_object(const std::string& text,
                                                const Call& call) override {
    std::vector<std::string> all;
    lane_->add([&] { all = inner_->all_gather_object(text, call.name); }).get();
    return all;
  }
  std::unique_ptr<Communicator> do_split(const Split& split) override {
    std::unique_ptr<Communicator> inner;  // it compares the split with that of the other ranks
    lane_->add([&] { inner = inner_->split(split.color_of_rank, split.group.label); }).get();
    return std::unique_ptr<Communicator>(new LaneCommunicator(*this, split, std::move(inner)));
  }

  // These three on the rank's thread.
  Work issue(const Call& call, const Tensor& a = {}, const Tensor& b = {}) {
    const auto operation = std::shared_ptr<Operation>(
        new Operation{*this, call, a, b, events().phase(), events().unit()});
    operation->done =
        lane_->add([this, &o = *operation] { carry_out(o, true, !o.call.point_to_point()); });
    return Work([this, operation] { wait(*operation); });
  }

  void wait(Operation& operation) {
    operation.done.get();
    if (operation.call.point_to_point())
      lane_->add([&] { carry_out(operation, false, true); }).get();
    if (operation.met) all_ranks_came(operation.call, operation.met);
    carried_out(operation.call, operation.began, operation.moved);
  }

  void drop(Operation& operation) noexcept {
    if (std::uncaught_exceptions() > 0 && !failure_.failed())
      failure_.fail(str("rank ", group().of_run(rank()), " stopped: an exception ended it while ",
                        describe(operation.call), " was in flight"));
    if (operation.call.point_to_point())  // what was posted is withdrawn on the lane
      operation.done = lane_->add([&] { const Work dropped = std::move(operation.work); });
    operation.done.wait();
  }

  // These two on the lane.
  void carry_out(Operation& operation, bool begins, bool completes) {
    all_.current_ = &operation;
    const std::shared_ptr<void> ends(nullptr, [&](void*) { all_.current_ = nullptr; });
    if (begins) {
      EventStream& events = inner_->events();
      if (std::strcmp(events.phase(), operation.phase) != 0) events.set_phase(operation.phase);
      events.set_unit(operation.unit);
      operation.began = now();
      operation.work = make(operation.call, operation.a, operation.b, *inner_);
    }
    if (!completes) return;
    operation.work.wait();
    pass_link(operation);
    operation.moved = now();
  }

  // One call after another passes the link. Sleeps in slices, so that a failure ends it.
  void pass_link(const Operation& operation) {
    if (!link_.simulated()) return;
    constexpr double longest = 1e9;  // [s], so that nanoseconds fit
    const auto in_nanoseconds = [=](double s) { return int64_t(std::min(s, longest) * 1e9); };
    const double sending =
        link_.bandwidth > 0 ? sent_bytes(operation.call, size()) / link_.bandwidth : 0;
    const int64_t met = operation.met ? operation.met : operation.began;
    int64_t& free_at = all_.link_free_at_;
    free_at = std::max(met, free_at) + in_nanoseconds(sending);
    const std::chrono::steady_clock::time_point until(
        nanoseconds(free_at + in_nanoseconds(link_.latency)));
    while (std::chrono::steady_clock::now() < until && !failure_.failed())
      std::this_thread::sleep_until(
          std::min(until, std::chrono::steady_clock::now() + std::chrono::milliseconds(50)));
  }

  LaneCommunicator& all_;  // of all ranks: it has the lane
  const std::unique_ptr<Communicator> inner_;
  const Link link_;
  const SharedFailure failure_;
  // The lane's.
  Operation* current_ = nullptr;
  int64_t link_free_at_ = 0;          // [ns] when the simulated link has sent all calls so far
  const std::shared_ptr<Lane> lane_;  // groups share it
};

}  // namespace

MakeLane own_lane(const Link& link) {
  return [link](std::unique_ptr<Communicator> inner, EventStream& events, SharedFailure failure) {
    return std::make_unique<LaneCommunicator>(std::move(inner), events, link, std::move(failure));
  };
}

}  // namespace zl
