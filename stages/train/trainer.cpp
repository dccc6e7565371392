#include "stages/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "nn/data/windows.h"
#include "stages/train/training_checkpoints.h"
#include "stages/weights.h"
#include "tensor/io/disk.h"
#include "tensor/kernels.h"
#include "tensor/printable.h"
#include "tensor/random.h"
#include "tensor/reference/reference_backend.h"

namespace zl {

const char* name(Transport transport) {
  return transport == Transport::nccl ? "nccl" : transport == Transport::mpi ? "mpi" : "threads";
}

namespace {

constexpr int64_t kCheckedSteps = 2;  // mismatched calls normally show up in the first steps

}  // namespace

std::unique_ptr<Model> TrainingSpec::new_model() const {
  require_input(make_model != nullptr, "a run needs a model: set TrainingSpec::make_model");
  std::unique_ptr<Model> model = make_model();
  require_input(model != nullptr, "TrainingSpec::make_model returned a null pointer, not a model");
  check_units(model->units());
  std::map<std::string, std::string> texts = model->metadata();
  texts[model->name()];
  for (const auto& [key, value] : texts)
    require(is_utf8(key) && is_utf8(value), "the model '", printable(model->name()),
            "' has a name or metadata that are not UTF-8, which no checkpoint can store");
  return model;
}

TrainingSpec TrainingSpec::without_data() const {
  TrainingSpec spec = *this;
  spec.input_row = row_of_inputs(), spec.target_row = row_of_targets();
  spec.data = nullptr;
  return spec;
}

Trainer::Trainer(const TrainingSpec& spec, Communicator& comm, Memory& memory, Memory& host,
                 Memory* disk)
    : spec_(spec),
      comm_(comm),
      memory_(memory),
      host_(host),
      disk_(disk),
      model_(spec.new_model()) {
  require_input(spec.micro_batch > 0, "a micro-batch needs at least one row, not ",
                spec.micro_batch);
  require_input(!spec.engine.reproducible || spec.ordered(),
                "reproducible sums add in rank order: leave \"ordered\": false out");
  require_input(spec.input_row.empty() || (spec.row_of_inputs() == spec.input_row &&
                                           spec.row_of_targets() == spec.target_row),
                "the model takes rows of shape ", to_string(spec.input_row), " and targets ",
                to_string(spec.target_row), ", but the data has rows of another shape");
  const std::function<MakeStage> make = spec.make_stage ? spec.make_stage : zl::make_stage;
  engine_ = std::make_unique<Engine>(
      make(model_->units(), comm, Memories(memory, &host, disk), spec.engine), spec.engine, &host);
  if (spec.weights) load_weights(engine_->stage(), spec.weights);
  batches_.resize(size_t(spec.engine.accumulation), host_batch(spec.micro_batch));
}

// A dry run moves no data, so it holds none.
Trainer::HostBatch Trainer::host_batch(int64_t rows) const {
  if (!spec_.data) return {};
  return {std::vector<int32_t>(size_t(rows * numel(spec_.row_of_inputs()))),
          std::vector<int32_t>(size_t(rows * numel(spec_.row_of_targets())))};
}

Engine::Forward Trainer::forward_of(const HostBatch& from, int64_t rows) {
  if (spec_.interrupted && !spec_.checkpoint.saves() && spec_.interrupted()) throw Interrupted();
  memory_.events().set_phase("data");
  const auto upload = [&](const std::vector<int32_t>& values, const Shape& row) {
    Shape shape = row;
    shape.insert(shape.begin(), rows);
    Tensor t = Tensor::empty(memory_, MemoryUse::activation, std::move(shape), Dtype::i32);
    if (spec_.data) kernel::upload<int32_t>(values, t);
    return t;
  };
  const Batch batch{upload(from.inputs, spec_.row_of_inputs()),
                    upload(from.targets, spec_.row_of_targets())};
  return [this, batch](Tape* tape, UnitObserver& observer) {
    return model_->loss(tape, observer, batch);
  };
}

RunPosition Trainer::position() const {
  return {.step = steps_,
          .next_window = next_window_,
          .micro_batch = spec_.micro_batch,
          .data = spec_.data ? spec_.data->identity() : ""};
}

void Trainer::restore(const RunPosition& position) {
  steps_ = position.step;
  next_window_ = position.next_window;
}

StepRecord Trainer::step(const std::function<void()>& after_backward) {
  const int64_t A = spec_.engine.accumulation, B = spec_.micro_batch;
  const bool replicated = spec_.engine.replicated_micro_batches;
  const int64_t N = replicated ? 1 : comm_.size(), rank = replicated ? 0 : comm_.rank();
  const MicroBatches order{A, N};
  for (int64_t a = 0; a < A && spec_.data; ++a) {
    HostBatch& batch = batches_[size_t(a)];
    spec_.data->fill_rows(next_window_ + order.index(0, a, rank) * B, batch.inputs, batch.targets);
  }
  next_window_ += A * N * B;
  StepRecord record{.step = ++steps_,
                    .lr = engine_->learning_rate(),
                    .tokens = A * B * N * numel(spec_.row_of_inputs())};
  if (spec_.engine.precision == Dtype::f16) record.loss_scale = engine_->loss_scale();
  const auto begin = std::chrono::steady_clock::now();
  StepResult result;
  for (const HostBatch& batch : batches_) {
    {
      const Engine::Forward forward = forward_of(batch, B);  // holds the batch until after backward
      Var loss = engine_->forward(forward);
      engine_->backward(loss);
    }
    if (after_backward) after_backward();
    if (const auto stepped = engine_->step()) result = *stepped;
  }
  memory_.backend().synchronize();  // a GPU may still be computing
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.loss = engine_->loss_of_step();
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  record.nonfinite = result.nonfinite;
  return record;
}

// Held-out rows are taken B at a time, in turn over the ranks. All ranks make the same number of
// passes, because a pass of stage 3 is collective; a rank without rows left repeats the first ones
// and does not count them.
double Trainer::evaluate() {
  const int64_t B = spec_.micro_batch, all = spec_.data->held_out(), N = comm_.size();
  std::vector<double> losses;  // of this rank's passes, weighted by their rows
  for (int64_t round = 0; round * N * B < all; ++round) {
    const int64_t first = (round * N + comm_.rank()) * B;
    const bool counts = first < all;
    const int64_t rows = std::min(all, counts ? std::min(B, all - first) : B);
    HostBatch batch = host_batch(rows);
    spec_.data->fill_held_out(counts ? first : 0, batch.inputs, batch.targets);
    const double loss = engine_->evaluate(forward_of(batch, rows));
    losses.push_back(counts ? loss * double(rows) : 0);
  }
  return sum_in_order(losses) / double(all);
}

double Trainer::sum_in_order(const std::vector<double>& losses) {
  if (!spec_.engine.reproducible)
    return sum_over_ranks(comm_, memory_, std::accumulate(losses.begin(), losses.end(), 0.0),
                          {"loss", Purpose::loss});
  const std::vector<double> all =
      RankNumbers(comm_, memory_, losses, {"loss", Purpose::loss}).wait();
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i)
    for (size_t r = i; r < all.size(); r += losses.size()) sum += all[r];
  return sum;
}

RankReport report(Trainer& trainer, int64_t init_peak_total) {
  return {.rest = trainer.memory().ledger(),
          .host = trainer.host().ledger(),
          .disk = trainer.disk() ? trainer.disk()->ledger() : MemoryLedger(),
          .init_peak_total = init_peak_total,
          .log = trainer.comm().log(),
          .moves = trainer.comm().events().moves()};
}

int64_t begin_counting(Trainer& trainer) {
  const int64_t init_peak = trainer.memory().ledger().peak_total();
  trainer.memory().ledger().reset_peak();
  trainer.host().ledger().reset_peak();
  if (trainer.disk()) trainer.disk()->ledger().reset_peak();
  trainer.comm().log().clear();
  trainer.comm().events().moves().clear();
  return init_peak;
}

namespace {

// What `action` moves is not counted in a step.
template <class Action>
void without_moves(EventStream& events, const Action& action) {
  const MoveLog moves = events.moves();
  action();
  events.moves() = moves;
}

// An evaluation is not counted in a step's memory and traffic.
void evaluate_uncounted(Trainer& trainer, StepRecord& record) {
  const MemoryLedger ledger = trainer.memory().ledger();
  const CommunicationLog log = trainer.comm().log();
  without_moves(trainer.comm().events(), [&] { record.eval_loss = trainer.evaluate(); });
  trainer.memory().ledger() = ledger;
  trainer.comm().log() = log;
}

void train_in(const TrainingSpec& spec, const TrainingCallbacks& callbacks, Communicator& comm,
              const Memories& memories, TrainingResult& result) {
  Trainer trainer(spec, comm, memories.device, *memories.host, memories.disk);
  TrainingCheckpoints checkpoints(trainer, callbacks.saved);
  const bool reports_here = comm.rank() == 0;
  if (reports_here) result.first_step = trainer.steps() + 1;
  if (reports_here && checkpoints.loaded() && callbacks.resumed)
    callbacks.resumed(*checkpoints.loaded());
  const int64_t init_peak = begin_counting(trainer);
  const auto call = [&](const std::function<void(Trainer&)>& callback) {
    if (callback) callback(trainer);
  };
  call(callbacks.at_start);
  for (int64_t made = 1; trainer.steps() < spec.steps; ++made) {
    StepRecord record = trainer.step([&] {
      call(callbacks.after_backward);
      checkpoints.after_backward();
    });
    if (made == kCheckedSteps && !spec.check_calls) comm.compare_calls_only_on_timeout();
    if (spec.eval_every > 0 && record.step % spec.eval_every == 0)
      evaluate_uncounted(trainer, record);
    comm.require_running();  // else the record may hold garbage
    call(callbacks.after_step);
    if (reports_here) result.steps.push_back(record);
    if (reports_here && callbacks.on_step) callbacks.on_step(record);
    without_moves(comm.events(), [&] { checkpoints.after_step(); });
  }
  without_moves(comm.events(), [&] { checkpoints.at_end(); });
  const auto reports = comm.all_gather_object(encode(report(trainer, init_peak)), "report");
  if (reports_here)
    for (const std::string& bytes : reports) result.ranks.push_back(decode_report(bytes));
  call(callbacks.at_end);
}

void train_rank(const TrainingSpec& spec, const TrainingCallbacks& callbacks, Communicator& comm,
                TrainingResult& result) {
  if (spec.device == DeviceKind::cuda) annotate_for_profilers(comm.events());
  const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends{};
  // Opening a GPU and loading kernels may take longer than a call's deadline. all_gather_object has
  // none, so ranks wait for each other here.
  if (spec.backends && !spec.reference) (void)comm.all_gather_object("", "opening GPUs");
  Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(), comm.events(),
                {.limit = spec.device_memory, .poison = spec.poison});
  Memory host({DeviceKind::cpu}, backends.host ? *backends.host : cpu_backend(), comm.events(),
              {.limit = spec.host_memory, .poison = spec.poison, .pool = Pool::host});
  std::unique_ptr<Backend> file;
  std::optional<Memory> disk;
  if (needs_disk(spec.engine)) {
    if (!backends.disk) file = make_disk_backend(spec.engine.nvme_path);
    disk.emplace(Device{DeviceKind::cpu}, file ? *file : *backends.disk, comm.events(),
                 MemoryOptions{.pool = Pool::disk});
  }
  train_in(spec, callbacks, comm, {memory, &host, disk ? &*disk : nullptr}, result);
  if (callbacks.freed) callbacks.freed(comm.rank(), memory);
}

}  // namespace

std::function<RankBackends(int rank)> on_gpus(std::vector<int> gpus, GpuOptions options) {
  return [gpus = std::move(gpus), options](int rank) {
    return RankBackends{make_gpu_backend(gpus[size_t(rank) % gpus.size()], options),
                        make_pinned_backend()};
  };
}

void use_reference(TrainingSpec& spec) {
  spec.reference = true;
  spec.backends = [](int) {
    return RankBackends{std::make_unique<ReferenceBackend>(), std::make_unique<ReferenceBackend>()};
  };
}

RankOptions rank_options(const TrainingSpec& spec) {
  RankOptions options = spec.rank_options;
  const bool on_cpu =
      !spec.run_ranks && spec.transport == Transport::threads && spec.device == DeviceKind::cpu;
  require_input(on_cpu || !spec.link.simulated(),
                "a link is simulated only between ranks that are threads on the CPU, not between ",
                spec.device != DeviceKind::cpu      ? "GPUs"
                : spec.transport == Transport::nccl ? "ranks on NCCL"
                : spec.transport == Transport::mpi  ? "ranks on MPI"
                                                    : "ranks of another engine");
  const Overlap& overlap = spec.engine.overlap;
  if (on_cpu && (overlap.overlap_comm || overlap.prefetch_bucket_size > 0 || spec.link.simulated()))
    options.lane = own_lane(spec.link);
  return options;
}

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

std::vector<float> collect_weights(Trainer& trainer) {
  std::map<std::string, std::vector<float>> by_name;
  const bool keeps = trainer.comm().rank() == 0;
  visit_weights(trainer.engine().stage(), [&](const Parameter& p, const Tensor& data) {
    if (keeps) by_name[p.name] = kernel::download_floats(data);
  });
  std::vector<float> all;
  for (const auto& [name, values] : by_name) all.insert(all.end(), values.begin(), values.end());
  return all;
}

uint64_t weights_hash(const std::vector<float>& weights) {
  return fnv1a({reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)});
}

}  // namespace zl
