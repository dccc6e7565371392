#include "tutorials/exercises/stages/watched_stage.h"

#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace zl::exercises {
namespace {

void listen(EventStream& events, WatchedRank& watched) {
  events.listen([&watched](const Event& event) {
    const bool allocates = event.kind == EventKind::allocate;
    if (!allocates && event.kind != EventKind::release) return;
    for (int i = 0; i < kMemoryUses; ++i) {
      if (std::string_view(event.what) != name(MemoryUse(i))) continue;
      watched.memory.add(MemoryUse(i), allocates ? event.bytes : -event.bytes);
      watched.call_memory.add(MemoryUse(i), allocates ? event.bytes : -event.bytes);
    }
  });
}

std::string text_of(StageFunction function, const UnitState& u) {
  return str(name(function), "(", u.name(), ")");
}

// A Work in it would run when no call is watched.
void require_unchanged(const UnitState& u, bool pending) {
  require(u.unshard_work.pending() == pending, "u.unshard_work is kept by the schedule");
}

}  // namespace

// Records one call: what memory and waits gained between its begin and its end.
class WatchedStage::Watch {
 public:
  Watch(const WatchedStage& stage, StageFunction function, int unit) : watched_(stage.watched_) {
    call_ = {.function = function,
             .unit = unit,
             .event = stage.events().appended(),
             .waits = -watched_.comm->waits()};
    watched_.call_memory.reset_peak();
    before_ = watched_.call_memory;
  }
  ~Watch() {
    const MemoryLedger& now = watched_.call_memory;
    call_.waits += watched_.comm->waits();
    for (int i = 0; i < kMemoryUses; ++i) {
      const int64_t live = before_.live(MemoryUse(i));
      call_.grown[size_t(i)] = now.live(MemoryUse(i)) - live;
      call_.peak[size_t(i)] = now.peak(MemoryUse(i)) - live;
    }
    watched_.calls.push_back(call_);
  }

 private:
  WatchedRank& watched_;
  MemoryLedger before_;
  StageCall call_;
};

WatchedStage::WatchedStage(WatchedRank& watched, std::vector<Unit>& units, Communicator& comm,
                           Memories memories, const Options& options)
    : Stage(units, comm, memories, options), watched_(watched) {
  watched_.comm = std::make_unique<LateCommunicator>(comm, memory());
  listen(memory().events(), watched_);
  const Watch watch(*this, StageFunction::constructor, 0);
  students_ = students_stage().make(units, *watched_.comm, memories, options);
  require(students_ != nullptr, "the function that makes the stage returns nullptr");
}

// What the student's function throws gets its name and the unit's. A CommunicationError names the
// call, and the first error of all ranks is reported.
template <class Body>
auto WatchedStage::run(StageFunction function, const UnitState& u, const Body& body) {
  const Watch watch(*this, function, u.unit->index);
  const bool pending = u.unshard_work.pending();
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      require_unchanged(u, pending);
    } else {
      auto result = body();
      require_unchanged(u, pending);
      return result;
    }
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    const std::string text = e.what();
    if (text.starts_with("not written yet")) throw;
    const bool undefined = text.find("undefined tensor") != std::string::npos;
    throw std::runtime_error(text_of(function, u) + ": " + text +
                             (undefined ? ": a buffer of u does not exist at this time" : ""));
  }
}

Work WatchedStage::started_by(Work (Stage::*function)(UnitState&), StageFunction named,
                              UnitState& u) {
  Work work = run(named, u, [&] { return (students_.get()->*function)(u); });
  if (!work.pending()) return work;
  return Work([this, &u, work = std::make_shared<Work>(std::move(work))] {
    const Watch watch(*this, StageFunction::wait, u.unit->index);
    const bool pending = u.unshard_work.pending();
    Work all = std::move(*work);  // with what it holds
    all.wait();
    require_unchanged(u, pending);
  });
}

void WatchedStage::allocate(UnitState& u) {
  run(StageFunction::allocate, u, [&] { students_->allocate(u); });
}
bool WatchedStage::reduces_every_micro_batch() const {
  const Watch watch(*this, StageFunction::reduces_every_micro_batch, 0);
  return students_->reduces_every_micro_batch();
}
void WatchedStage::before_backward(UnitState& u) {
  run(StageFunction::before_backward, u, [&] { students_->before_backward(u); });
}
Work WatchedStage::reduce_gradient(UnitState& u) {
  return started_by(&Stage::reduce_gradient, StageFunction::reduce_gradient, u);
}
void WatchedStage::after_reduce(UnitState& u) {
  run(StageFunction::after_reduce, u, [&] { students_->after_reduce(u); });
}
void WatchedStage::update(UnitState& u, const Update& step) {
  run(StageFunction::update, u, [&] { students_->update(u, step); });
}
Work WatchedStage::after_update(UnitState& u) {
  return started_by(&Stage::after_update, StageFunction::after_update, u);
}
Work WatchedStage::unshard(UnitState& u) {
  return started_by(&Stage::unshard, StageFunction::unshard, u);
}
void WatchedStage::reshard(UnitState& u) {
  run(StageFunction::reshard, u, [&] { students_->reshard(u); });
}

}  // namespace zl::exercises
