// One run on all ranks: their memories, the loop of a rank with its evaluations and checkpoints,
// and what rank 0 gets.
#include "dist/processes/wire.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/checkpoint/save.h"
#include "stages/train/trainer.h"
#include "tensor/io/disk.h"

namespace zl {
namespace {

// The checkpoints of one rank: when it loads and saves.
class TrainingCheckpoints {
 public:
  // Loads the checkpoint of spec.checkpoint.resume, if there is one, and prepares the folder.
  // `saved` is called on rank 0 for each checkpoint that is complete.
  TrainingCheckpoints(Trainer& trainer, const std::function<void(const CheckpointRecord&)>& saved)
      : loaded(load_checkpoint(trainer.engine(), trainer.model(), trainer.spec().checkpoint,
                               trainer.position().data)),
        trainer_(trainer),
        options_(trainer.spec().checkpoint),
        saved_(saved) {
    if (loaded) trainer.restore(loaded->position);
    if (!options_.saves()) return;
    require_input(options_.keep >= 1, "at least one checkpoint must be kept, not ", options_.keep);
    on_all_ranks(trainer.comm(), "checkpoint folder", [&] {
      if (trainer.comm().rank() == 0) folder_.emplace(options_, trainer.steps());
      return std::string();
    });
  }

  // To be called after each backward pass: before an update, a save that must not see it is
  // committed.
  void after_backward() {
    if (options_.writes == CheckpointWrites::still &&
        trainer_.engine().is_gradient_accumulation_boundary())
      commit();
  }
  // To be called after each step: saves if it is time to. Throws Interrupted, after a save, if a
  // rank was asked to end.
  void after_step();
  // To be called after the last step.
  void commit() {
    if (!saving_) return;
    const CheckpointRecord record = saving_->commit();
    saving_.reset();
    if (saved_ && trainer_.comm().rank() == 0) saved_(record);
  }

  const std::optional<LoadedCheckpoint> loaded;

 private:
  Trainer& trainer_;
  const CheckpointOptions& options_;
  const std::function<void(const CheckpointRecord&)>& saved_;
  std::optional<CheckpointFolder> folder_;  // of rank 0
  std::unique_ptr<Backend> device_;         // for a thread that reads a GPU's memory
  std::unique_ptr<CheckpointSave> saving_;
};

void TrainingCheckpoints::after_step() {
  if (!options_.saves()) return;
  const TrainingSpec& spec = trainer_.spec();
  const bool ends = spec.interrupted && spec.interrupted();
  const bool written = !saving_ || saving_->written();
  bool any_ends = false, all_written = true;
  for (const std::string& rank : trainer_.comm().all_gather_object(
           {ends ? 'e' : '-', written ? 'w' : '-'}, "checkpoint progress")) {
    any_ends |= rank[0] == 'e';
    all_written &= rank[1] == 'w';
  }
  if (all_written) commit();
  const bool is_last = trainer_.steps() == spec.steps;
  if (!any_ends && !is_last && trainer_.steps() % options_.save_every != 0) return;
  commit();
  const bool needs_device = options_.writes == CheckpointWrites::still && spec.backends &&
                            !trainer_.memory().backend().host_addressable();
  if (needs_device && !device_) device_ = spec.backends(trainer_.comm().rank()).device;
  saving_ = std::make_unique<CheckpointSave>(
      SavedRun{trainer_.engine(), trainer_.model(), trainer_.host(), device_.get()}, options_,
      trainer_.position());
  const bool stops = any_ends && !is_last;
  if (stops || options_.writes == CheckpointWrites::wait) commit();
  if (stops) throw Interrupted();
}

// The report as bytes, to send to another process.
std::string encode(const RankReport& report) {
  std::string bytes = to_bytes(report.rest, report.host, report.disk, report.init_peak_total,
                               report.moves, uint64_t(report.log.rows().size()));
  for (const auto& [key, traffic] : report.log.rows())
    bytes += to_bytes(key.collective, key.purpose, key.group, traffic);
  for (const auto& [collective, time] : report.log.times()) bytes += to_bytes(collective, time);
  return bytes;
}

RankReport decode_report(const std::string& bytes) {
  WireReader wire(bytes);
  RankReport report{wire.get<MemoryLedger>(), wire.get<MemoryLedger>(), wire.get<MemoryLedger>(),
                    wire.get<int64_t>()};
  report.moves = wire.get<MoveLog>();
  CommunicationLog::Rows rows;
  for (uint64_t left = wire.get<uint64_t>(); left > 0; --left)
    rows.insert({{wire.get<Collective>(), wire.get<Purpose>(), wire.get<std::string>()},
                 wire.get<Traffic>()});
  CommunicationLog::Times times;
  while (!wire.at_end()) times.insert({wire.get<Collective>(), wire.get<TimeSpent>()});
  report.log = {std::move(rows), std::move(times)};
  return report;
}

void train_in(const TrainingSpec& spec, const TrainingCallbacks& callbacks, Communicator& comm,
              const Memories& memories, TrainingResult& result) {
  constexpr int64_t kCheckedSteps = 2;  // mismatched calls normally show up in the first steps
  Trainer trainer(spec, comm, memories);
  TrainingCheckpoints checkpoints(trainer, callbacks.saved);
  const bool reports_here = comm.rank() == 0;
  if (reports_here && checkpoints.loaded && callbacks.resumed)
    callbacks.resumed(*checkpoints.loaded);
  const int64_t init_peak = begin_counting(trainer);
  const auto call = [&](const std::function<void(Trainer&)>& callback) {
    if (callback) callback(trainer);
  };
  // What `action` moves is not counted in a step.
  const auto without_moves = [&](const auto& action) {
    const MoveLog moves = comm.events().moves();
    action();
    comm.events().moves() = moves;
  };
  call(callbacks.at_start);
  for (int64_t made = 1; trainer.steps() < spec.steps; ++made) {
    StepRecord record = trainer.step([&] {
      call(callbacks.after_backward);
      checkpoints.after_backward();
    });
    if (made == kCheckedSteps && !spec.check_calls) comm.compare_calls_only_on_timeout();
    if (spec.eval_every > 0 && record.step % spec.eval_every == 0) {
      // Nor is an evaluation counted in a step's memory and traffic.
      const MemoryLedger ledger = memories.device.ledger();
      const CommunicationLog log = comm.log();
      without_moves([&] { record.eval_loss = trainer.evaluate(); });
      memories.device.ledger() = ledger;
      comm.log() = log;
    }
    comm.require_running();  // else the record may hold garbage
    call(callbacks.after_step);
    if (reports_here) result.steps.push_back(record);
    if (reports_here && callbacks.on_step) callbacks.on_step(record);
    without_moves([&] { checkpoints.after_step(); });
  }
  without_moves([&] { checkpoints.commit(); });
  const auto reports = comm.all_gather_object(encode(report(trainer, init_peak)), "report");
  if (reports_here)
    for (const std::string& bytes : reports) result.ranks.push_back(decode_report(bytes));
  call(callbacks.at_end);
}

void train_rank(const TrainingSpec& spec, const TrainingCallbacks& callbacks, Communicator& comm,
                TrainingResult& result) {
  if (spec.device == DeviceKind::cuda) annotate_for_profilers(comm.events());
  RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends{};
  // Opening a GPU and loading kernels may take longer than a call's deadline. all_gather_object has
  // none, so ranks wait for each other here.
  if (spec.backends && !spec.reference) (void)comm.all_gather_object("", "opening GPUs");
  Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events(),
                {.limit = spec.device_memory, .poison = spec.poison});
  Memory host({DeviceKind::cpu}, backends.host ? *backends.host : cpu_backend(), comm.events(),
              {.limit = spec.host_memory, .poison = spec.poison, .pool = Pool::host});
  std::optional<Memory> disk;
  if (needs_disk(spec.engine)) {
    if (!backends.disk) backends.disk = make_disk_backend(spec.engine.nvme_path);
    disk.emplace(Device{DeviceKind::cpu}, *backends.disk, comm.events(),
                 MemoryOptions{.pool = Pool::disk});
  }
  train_in(spec, callbacks, comm, {memory, &host, disk ? &*disk : nullptr}, result);
  if (callbacks.freed) callbacks.freed(comm.rank(), memory);
}

}  // namespace

TrainingResult run_training(const TrainingSpec& spec, const TrainingCallbacks& callbacks) {
  require_input(spec.data != nullptr, "a training run needs data: set TrainingSpec::data");
  require_input(spec.eval_every == 0 || spec.data->held_out() > 0, "an evaluation every ",
                spec.eval_every, " steps needs held-out rows, but the data has none");
  TrainingResult result;
  const RunRanks& run = spec.run_ranks ? spec.run_ranks : RunRanks(run_ranks);
  run(
      spec.ranks, [&](Communicator& comm) { train_rank(spec, callbacks, comm, result); },
      rank_options(spec));
  return result;
}

}  // namespace zl
