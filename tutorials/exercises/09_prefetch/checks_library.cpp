// A run of the library's schedule, on the meta backend, by a stage that notes what it is asked for.
#include <algorithm>

#include "dist/ordered/meta_communicator.h"
#include "stages/predict/peaks.h"
#include "stages/schedule/step_schedule.h"
#include "tensor/backend.h"
#include "tutorials/exercises/09_prefetch/schedules.h"

namespace zl::exercises::prefetch_checks {
namespace {

constexpr int kRanks = 1;  // the sizes are padded already, and their shards do not matter

// Full parameters by the schedule of stage 3. Nothing is communicated or updated.
class NotingStage final : public Stage {
 public:
  using Stage::Stage;
  void allocate(UnitState& u) override {
    u.parameter_shard =
        Tensor::empty(memory_of(MemoryUse::parameter), MemoryUse::parameter, {u.partition.shard()});
    u.parameters = ParameterState::sharded;
  }
  bool reduces_every_micro_batch() const override { return false; }
  Work reduce_gradient(UnitState&) override { return {}; }
  void update(UnitState&, const Update&) override {}
  Work unshard(UnitState& u) override {
    notes.push_back({Action::unshard, u.unit->index});
    u.full_parameter = new_full_tensor(u, MemoryUse::parameter);
    return {};  // when it completes does not matter: the schedule depends on sizes alone
  }
  void reshard(UnitState& u) override {
    notes.push_back({Action::reshard, u.unit->index});
    u.full_parameter = {};
  }
  Entries notes;
};

// Numbers units in the order of the forward pass, as the library does.
void run_passes(NotingStage& stage) {
  FullParameters parameters(stage);
  std::vector<UnitState>& units = stage.units();
  const auto begin = [&](UnitState& u, bool backward) {
    if (!backward) ++u.forward_passes;
    backward ? parameters.before_backward(u) : parameters.before_forward(u);
    ++u.running;
    stage.notes.push_back({Action::run, u.unit->index});
  };
  const auto end = [&](UnitState& u, bool backward) {
    --u.running;
    if (backward) --u.forward_passes;
    backward ? parameters.after_backward(u) : parameters.after_forward(u);
  };
  begin(units[0], false);
  for (size_t i = 1; i < units.size(); ++i) begin(units[i], false), end(units[i], false);
  end(units[0], false);
  parameters.end_forward();
  begin(units[0], true);
  for (size_t i = units.size(); i-- > 1;) begin(units[i], true), end(units[i], true);
  end(units[0], true);
  parameters.end_backward();
}

Overlap overlap_of(const PrefetchTask& task) {
  return {.prefetch_bucket_size = task.prefetch_bucket_size,
          .max_live_parameters = task.max_live_parameters};
}

}  // namespace

bool same(const Entries& a, const Entries& b) {
  return std::ranges::equal(a, b, [](const ScheduleEntry& x, const ScheduleEntry& y) {
    return x.action == y.action && x.unit == y.unit;
  });
}

LibraryRun library_run(const PrefetchTask& task) {
  std::vector<Parameter> parameters(task.full.size());
  std::vector<Unit> units(task.full.size());
  for (size_t i = 0; i < units.size(); ++i) {
    parameters[i] = {.name = str("p", i), .shape = {task.full[size_t(task.forward[i])]}};
    units[i] = {.name = str("unit ", i), .parameters = {&parameters[i]}, .index = int(i)};
  }
  EventStream events;
  const std::unique_ptr<Communicator> comm = meta_communicator(0, kRanks, events);
  // Shards are in another memory, so that the ledger of the first counts full parameters alone.
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  Memory of_shards({DeviceKind::meta}, meta_backend(), events);
  const Options options{
      .stage = StageKind::zero3, .overlap = overlap_of(task), .offload_param = OffloadDevice::cpu};
  NotingStage stage(units, *comm, {memory, &of_shards}, options);
  for (UnitState& u : stage.units()) stage.allocate(u);
  run_passes(stage);
  for (ScheduleEntry& entry : stage.notes) entry.unit = task.forward[size_t(entry.unit)];
  return {stage.notes, memory.ledger().peak(MemoryUse::parameter) / 4};
}

int64_t right_peak(const PrefetchTask& task) {
  std::vector<int64_t> units;
  for (const int u : task.forward) units.push_back(task.full[size_t(u)]);
  return peaks_of({units, overlap_of(task)}).parameters;
}

}  // namespace zl::exercises::prefetch_checks
