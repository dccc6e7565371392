#include "tests/recording/recorded_run.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

namespace zl::test {
namespace {

// The functions that a stage file defines, read from its text.
std::set<std::string> functions_of(StageKind kind) {
  std::ifstream file(std::string(ZEROLAB_SOURCE_DIR) + "/stages/" + name(kind) + ".cpp");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> all;
  for (const char* function : {"before_backward", "reduce_gradient", "after_reduce", "update",
                               "after_update", "unshard", "reshard"})
    if (text.find(" " + std::string(function) + "(UnitState&") != text.npos) all.insert(function);
  return all;
}

// Passes every call on to the stage of the library, and logs those that its file defines. Both
// stages hold the same units, but only this one's UnitStates are used.
class LoggedStage final : public Stage {
 public:
  LoggedStage(StageKind kind, std::vector<StageCallSeen>& log, std::vector<Unit>& units,
              Communicator& comm, Memory& memory, const StageOptions& options)
      : Stage(units, comm, memory, options), log_(log), defined_(functions_of(kind)) {
    constexpr MakeStage* make[] = {make_ddp, make_zero1, make_zero2, make_zero3};
    inner_ = make[size_t(kind)](units, comm, memory, options);
  }

  void allocate(UnitState& u) override { inner_->allocate(u); }
  bool reduces_every_micro_batch() const override { return inner_->reduces_every_micro_batch(); }
  void before_backward(UnitState& u) override {
    log("before_backward", u);
    inner_->before_backward(u);
  }
  Work reduce_gradient(UnitState& u) override {
    log("reduce_gradient", u);
    return inner_->reduce_gradient(u);
  }
  void after_reduce(UnitState& u) override {
    log("after_reduce", u);
    inner_->after_reduce(u);
  }
  void update(UnitState& u, const Update& step) override {
    log("update", u);
    inner_->update(u, step);
  }
  Work after_update(UnitState& u) override {
    log("after_update", u);
    return inner_->after_update(u);
  }
  Work unshard(UnitState& u) override {
    log("unshard", u);
    return inner_->unshard(u);
  }
  void reshard(UnitState& u) override {
    log("reshard", u);
    inner_->reshard(u);
  }

 private:
  void log(const char* function, const UnitState& u) {
    if (defined_.contains(function)) log_.push_back({u.name(), function});
  }

  std::vector<StageCallSeen>& log_;
  const std::set<std::string> defined_;
  std::unique_ptr<Stage> inner_;
};

HeldSeen held_by(const Stage& stage, const std::vector<Unit>& units) {
  HeldSeen all;
  const auto letter = [](bool full, bool shard) { return full ? '#' : shard ? '/' : '.'; };
  for (const Unit& unit : units) {
    const UnitState& u = stage.state(unit);
    all.push_back({letter(u.full_parameter.defined(), u.parameter_shard.defined()),
                   letter(u.full_gradient.defined(), u.gradient_shard.defined()),
                   letter(u.optimizer->numel() == u.partition.full(), true)});
  }
  return all;
}

}  // namespace

RecordedRun record(StageRunSpec spec, StageKind recorded_as) {
  RecordedRun run;
  run.calls.resize(size_t(spec.ranks));
  run.held.resize(size_t(spec.ranks));
  const StageKind kind = spec.stage;
  const auto data = odd_data(spec);
  TrainingSpec training = training_spec(spec, *data);
  training.engine.stage = recorded_as;
  training.make_stage = [&](StageKind, auto& units, auto& comm, auto& memory, const auto& options) {
    auto stage = std::make_unique<LoggedStage>(kind, run.calls[size_t(comm.rank())], units, comm,
                                               memory, options);
    stage->start();
    return stage;
  };
  recording::RunRecording recording(spec.ranks);
  const int64_t recorded = std::min(2, spec.steps);
  std::vector<char> ended(size_t(spec.ranks));  // the recorded step
  TrainingCallbacks callbacks;
  callbacks.at_start = [&](Trainer& t) {
    const auto rank = size_t(t.comm().rank());
    run.calls[rank].clear();
    t.comm().events().listen([&, rank, recorded](const Event& e) {
      if (recording::RankRecorder::records(e) && t.steps() == recorded && !ended[rank])
        run.held[rank].push_back(held_by(t.engine().stage(), t.model().units()));
    });
    recording.at_start(t);
  };
  callbacks.after_step = [&](Trainer& t) {
    if (t.steps() < recorded) run.calls[size_t(t.comm().rank())].clear();
    ended[size_t(t.comm().rank())] = t.steps() == recorded;
    recording.after_step(t);
  };
  run.result = run_training(training, callbacks);
  run.step = recording.result();
  return run;
}

std::vector<StageCallSeen> named_calls(const recording::RankRecording& rank) {
  std::vector<StageCallSeen> calls;
  StageCallSeen last;
  for (const auto& e : rank.events) {
    const StageCallSeen named{rank.text(e.unit), rank.text(e.method)};
    if (!named.function.empty() && named != last) calls.push_back(named);
    last = named;
  }
  return calls;
}

std::vector<StageCallSeen> by_unit(std::vector<StageCallSeen> calls) {
  std::ranges::stable_sort(calls, {}, &StageCallSeen::unit);
  return calls;
}

}  // namespace zl::test
