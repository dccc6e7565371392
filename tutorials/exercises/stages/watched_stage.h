// A student's stage as the checks run it: passes every call on, and records what it did.
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

#include "stages/stage.h"
#include "tutorials/exercises/judge/watched_communicator.h"
#include "tutorials/exercises/stages/stage_case.h"

namespace zl {

// The student's ZL_STAGE. Its file is compiled with this name for stage_zero1, stage_zero2 and
// stage_zero3, so that the library's stages do not take its place.
StageFile students_stage();

}  // namespace zl

namespace zl::exercises {

// What one rank's stage did. It must outlive the rank.
struct WatchedRank {
  std::unique_ptr<WatchedCommunicator> comm;  // the stage's
  std::vector<StageCall> calls;
  Record seen;
  // The rank's memory by its events. A stage can reach the rank's ledger, but not this one.
  MemoryLedger memory;

  void listen(const Event& event) {
    const bool allocates = event.kind == EventKind::allocate;
    for (int i = 0; i < kMemoryUses; ++i)
      if ((allocates || event.kind == EventKind::release) &&
          std::string_view(event.what) == zl::name(MemoryUse(i)))
        memory.add(MemoryUse(i), allocates ? event.bytes : -event.bytes);
  }
};

// Both stages hold the same units, but only this one's UnitStates are used.
class WatchedStage final : public Stage {
 public:
  WatchedStage(WatchedRank& watched, std::vector<Unit>& units, Communicator& comm,
               Memories memories, const Options& options)
      : Stage(units, comm, memories, options), watched_(watched) {
    watched_.comm = std::make_unique<WatchedCommunicator>(
        comm, memory(),
        std::vector{Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather});
    memory().events().listen([&watched](const Event& event) { watched.listen(event); });
    watch("the constructor", nullptr,
          [&] { students_ = students_stage().make(units, *watched_.comm, memories, options); });
    require(students_ != nullptr, "the function that makes the stage returns nullptr");
  }

  bool reduces_every_micro_batch() const override {
    bool every = false;
    watch("reduces_every_micro_batch", nullptr,
          [&] { every = students_->reduces_every_micro_batch(); });
    return every;
  }
  void allocate(UnitState& u) override { run("allocate", u, &Stage::allocate); }
  void before_backward(UnitState& u) override {
    run("before_backward", u, &Stage::before_backward);
  }
  Work reduce_gradient(UnitState& u) override {
    return started("reduce_gradient", u, &Stage::reduce_gradient);
  }
  void after_reduce(UnitState& u) override { run("after_reduce", u, &Stage::after_reduce); }
  void update(UnitState& u, const Update& step) override { run("update", u, &Stage::update, step); }
  Work after_update(UnitState& u) override {
    return started("after_update", u, &Stage::after_update);
  }
  Work unshard(UnitState& u) override { return started("unshard", u, &Stage::unshard); }
  void reshard(UnitState& u) override { run("reshard", u, &Stage::reshard); }

 private:
  // Records one call: what memory and waits gained between its begin and its end. What the
  // student's function throws gets its name and the unit's. A CommunicationError names the call,
  // and the first error of all ranks is reported.
  template <class Body>
  void watch(const char* function, const UnitState* u, const Body& body) const {
    StageCall call{.unit = u ? u->unit->index : -1,
                   .event = watched_.comm->transport().events().appended(),
                   .waits = -watched_.comm->waits()};
    std::string_view(function).copy(call.function, sizeof call.function - 1);
    MemoryLedger& now = watched_.memory;
    now.reset_peak();
    const MemoryLedger before = now;
    const bool pending = u && u->unshard_work.pending();
    try {
      body();
      // A Work in it would run when no call is watched.
      require(!u || u->unshard_work.pending() == pending, "u.unshard_work is kept by the schedule");
    } catch (const std::exception& e) {
      const std::string text = e.what();
      if (dynamic_cast<const CommunicationError*>(&e) || dynamic_cast<const std::bad_alloc*>(&e) ||
          text.starts_with("not written yet"))
        throw;
      const bool undefined = u && text.find("undefined tensor") != std::string::npos;
      throw std::runtime_error(str(function, u ? "(" + u->name() + ")" : "", ": ", text,
                                   undefined ? ": a buffer of u does not exist at this time" : ""));
    }
    call.waits += watched_.comm->waits();
    for (int i = 0; i < kMemoryUses; ++i) {
      const int64_t live = before.live(MemoryUse(i));
      call.grown[size_t(i)] = now.live(MemoryUse(i)) - live;
      call.peak[size_t(i)] = now.peak(MemoryUse(i)) - live;
    }
    watched_.calls.push_back(call);
  }

  template <class Function, class... More>
  void run(const char* name, UnitState& u, Function function, const More&... more) {
    watch(name, &u, [&] { (students_.get()->*function)(u, more...); });
  }

  Work started(const char* name, UnitState& u, Work (Stage::*start)(UnitState&)) {
    Work work;
    watch(name, &u, [&] { work = (students_.get()->*start)(u); });
    if (!work.pending()) return work;
    return Work([this, &u, begun = std::make_shared<Work>(std::move(work))] {
      watch("Work::wait", &u, [&] {
        Work all = std::move(*begun);  // with what it holds
        all.wait();
      });
    });
  }

  WatchedRank& watched_;
  std::unique_ptr<Stage> students_;
};

}  // namespace zl::exercises
