#include "stages/predict/dry_run.h"

#include <algorithm>

#include "dist/ordered/meta_communicator.h"
#include "stages/checkpoint/save.h"

namespace zl {

RankReport dry_run(const TrainingSpec& real, int rank, int64_t micro_batches,
                   const std::function<void(Trainer&)>& at_start,
                   const EventStream::Listener& listener, int steps) {
  TrainingSpec spec = real.without_data();
  spec.engine.accumulation = std::min(spec.engine.accumulation, micro_batches);
  EventStream events(rank);
  if (listener) events.listen(listener);
  if (spec.interrupted && !spec.checkpoint.saves())  // a step of very many layers takes minutes
    events.listen([&spec](const Event& e) {
      if (e.kind == EventKind::unit && spec.interrupted()) throw Interrupted();
    });
  const Overlap& overlap = spec.engine.overlap;
  const bool in_flight = spec.device == DeviceKind::cuda || spec.transport != Transport::threads ||
                         overlap.overlap_comm || overlap.prefetch_bucket_size > 0;
  const auto comm = meta_communicator(rank, spec.ranks, events, spec.uses_scratch(), in_flight);
  Memory memory({DeviceKind::meta}, spec.meta(), events, {.limit = spec.device_memory});
  Memory host({DeviceKind::meta}, memory.backend(), events,
              {.limit = spec.host_memory, .pool = Pool::host});
  Memory disk({DeviceKind::meta}, memory.backend(), events, {.pool = Pool::disk});
  Trainer trainer(spec, *comm, {memory, &host, &disk});
  const int64_t init_peak = begin_counting(trainer);
  if (at_start) at_start(trainer);
  std::vector<Tensor> saved;  // what the save of a checkpoint holds
  const auto before_update = [&] {
    if (spec.checkpoint.writes != CheckpointWrites::snapshot &&
        trainer.engine().is_gradient_accumulation_boundary())
      saved.clear();
  };
  for (int step = 1; step <= steps; ++step) {
    if (step == steps) comm->log().clear(), events.moves() = {};  // those of one step
    trainer.step(before_update);
    if (!spec.checkpoint.saves() || step + 1 != steps) continue;
    Stage& stage = trainer.engine().stage();
    saved = save_buffers(stage, state_files(stage, trainer.model()), host, spec.checkpoint.writes,
                         spec.device == DeviceKind::cpu);
    const bool step_follows = spec.checkpoint.save_every < spec.steps;
    if (spec.checkpoint.writes == CheckpointWrites::wait || !step_follows) saved.clear();
  }
  events.set_phase("report");
  return report(trainer, init_peak);
}

bool formulas_apply(const TrainingSpec& real) {
  if (real.engine.cpu_checkpointing && real.checkpointed_rows.empty()) return false;
  TrainingSpec spec = real;
  spec.engine.stage = StageKind::ddp;
  spec.make_stage = {};
  spec.ranks = 1;
  spec.device_memory = spec.host_memory = 0;
  spec.checkpoint = {};
  std::string passes;
  const auto listener = [&](const Event& e) {
    const bool again = e.what == std::string_view("before_forward");  // also in backward
    if (e.kind == EventKind::unit && (again || e.phase == std::string_view("forward")))
      passes += str(e.what, " ", e.unit, "; ");
  };
  dry_run(spec, 0, 1, {}, listener, 1);
  std::string expected;
  const auto model = spec.new_model();
  for (const Unit& u : model->units()) {
    expected += str("before_forward ", u.name, "; ");
    if (u.index > 0) expected += str("after_forward ", u.name, "; ");
  }
  return passes == str(expected, "after_forward ", model->units()[0].name, "; ");
}

}  // namespace zl
