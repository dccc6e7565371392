#include "tests/recording/recorded_run.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/paths.h"
#include "tutorials/recording/recording.h"

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
  LoggedStage(StageKind kind, CallsSeen& log, std::vector<Unit>& units, Communicator& comm,
              Memories memories, const Options& options)
      : Stage(units, comm, memories, options),
        log_(log),
        defined_(functions_of(kind)),
        inner_(file_of(kind).make(units, comm, memories, options)) {}

  void allocate(UnitState& u) override { inner_->allocate(u); }
  bool reduces_every_micro_batch() const override { return inner_->reduces_every_micro_batch(); }
  void before_backward(UnitState& u) override { logged("before_backward", u).before_backward(u); }
  Work reduce_gradient(UnitState& u) override {
    return logged("reduce_gradient", u).reduce_gradient(u);
  }
  void after_reduce(UnitState& u) override { logged("after_reduce", u).after_reduce(u); }
  void update(UnitState& u, const Update& step) override { logged("update", u).update(u, step); }
  Work after_update(UnitState& u) override { return logged("after_update", u).after_update(u); }
  Work unshard(UnitState& u) override { return logged("unshard", u).unshard(u); }
  void reshard(UnitState& u) override { logged("reshard", u).reshard(u); }

 private:
  Stage& logged(const char* function, const UnitState& u) {
    if (defined_.contains(function)) log_.push_back(str(u.name(), " ", function));
    return *inner_;
  }

  CallsSeen& log_;
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
  training.make_stage = [&](auto& units, auto& comm, Memories memories, Options options) {
    options.stage = kind;
    auto stage = std::make_unique<LoggedStage>(kind, run.calls[size_t(comm.rank())], units, comm,
                                               memories, options);
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
      if (recording::is_recorded(e) && t.steps() == recorded && !ended[rank])
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
  run.of_ranks = recording.collected();
  return run;
}

CallsSeen named_calls(const std::string& recorded) {
  CallsSeen calls;
  std::string last;
  const nlohmann::json rank = nlohmann::json::parse(recorded);
  for (const nlohmann::json& e : rank["events"]) {
    const std::string unit = rank["texts"][e[2].get<size_t>()],
                      method = rank["texts"][e[5].get<size_t>()], named = str(unit, " ", method);
    if (!method.empty() && named != last) calls.push_back(named);
    last = named;
  }
  return calls;
}

CallsSeen by_unit(CallsSeen calls) {
  std::ranges::stable_sort(calls, {},
                           [](const std::string& c) { return c.substr(0, c.find(' ')); });
  return calls;
}

}  // namespace zl::test
