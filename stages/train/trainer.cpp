#include "stages/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "nn/data/windows.h"
#include "stages/train/weights.h"
#include "tensor/backend.h"
#include "tensor/kernels.h"
#include "tensor/printable.h"
#include "tensor/random.h"

namespace zl {

const char* name(Transport transport) {
  return transport == Transport::nccl ? "nccl" : transport == Transport::mpi ? "mpi" : "threads";
}

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

Trainer::Trainer(const TrainingSpec& spec, Communicator& comm, const Memories& memories)
    : spec_(spec), comm_(comm), memories_(memories), model_(spec.new_model()) {
  require_input(spec.micro_batch > 0, "a micro-batch needs at least one row, not ",
                spec.micro_batch);
  require_input(!spec.engine.reproducible || spec.ordered(),
                "reproducible sums add in rank order: leave \"ordered\": false out");
  require_input(spec.input_row.empty() || (spec.row_of_inputs() == spec.input_row &&
                                           spec.row_of_targets() == spec.target_row),
                "the model takes rows of shape ", to_string(spec.input_row), " and targets ",
                to_string(spec.target_row), ", but the data has rows of another shape");
  const std::function<MakeStage> make = spec.make_stage ? spec.make_stage : zl::make_stage;
  engine_ = std::make_unique<Engine>(make(model_->units(), comm, memories_, spec.engine));
  if (spec.weights) load_weights(engine_->stage(), spec.weights);
  batches_.resize(size_t(spec.engine.accumulation), host_batch(spec, spec.micro_batch));
}

HostBatch host_batch(const TrainingSpec& spec, int64_t rows) {
  if (!spec.data) return {};
  return {std::vector<int32_t>(size_t(rows * numel(spec.row_of_inputs()))),
          std::vector<int32_t>(size_t(rows * numel(spec.row_of_targets())))};
}

Batch upload(const TrainingSpec& spec, const HostBatch& batch, int64_t rows, Memory& memory) {
  const auto tensor = [&](const std::vector<int32_t>& values, Shape shape) {
    shape.insert(shape.begin(), rows);
    Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape), Dtype::i32);
    if (spec.data) kernel::upload<int32_t>(values, t);
    return t;
  };
  return {tensor(batch.inputs, spec.row_of_inputs()), tensor(batch.targets, spec.row_of_targets())};
}

Engine::Forward Trainer::forward_of(const HostBatch& from, int64_t rows) {
  if (spec_.interrupted && !spec_.checkpoint.saves() && spec_.interrupted()) throw Interrupted();
  memory().events().set_phase("data");
  return [this, batch = upload(spec_, from, rows, memory())](Tape* tape, UnitObserver& observer) {
    return model_->loss(tape, observer, batch);
  };
}

RunPosition Trainer::position() const {
  return {steps_, next_window_, spec_.micro_batch, spec_.data ? spec_.data->identity() : ""};
}

void Trainer::restore(const RunPosition& position) {
  steps_ = position.step;
  next_window_ = position.next_window;
}

StepRecord Trainer::step(const std::function<void()>& after_backward) {
  const int64_t A = spec_.engine.accumulation, B = spec_.micro_batch;
  const int64_t N = comm_.size();
  const MicroBatches order{A, N};
  for (int64_t a = 0; a < A && spec_.data; ++a) {
    HostBatch& batch = batches_[size_t(a)];
    spec_.data->fill_rows(next_window_ + order.index(0, a, comm_.rank()) * B, batch.inputs,
                          batch.targets);
  }
  next_window_ += A * N * B;
  StepRecord record;
  record.step = ++steps_;
  record.lr = engine_->learning_rate();
  record.tokens = A * B * N * numel(spec_.row_of_inputs());
  if (spec_.engine.precision == Dtype::f16) record.loss_scale = engine_->loss_scale();
  const auto begin = std::chrono::steady_clock::now();
  for (const HostBatch& batch : batches_) {
    {
      const Engine::Forward forward = forward_of(batch, B);  // holds the batch until after backward
      Var loss = engine_->forward(forward);
      engine_->backward(loss);
    }
    if (after_backward) after_backward();
    if (const auto stepped = engine_->step()) static_cast<StepResult&>(record) = *stepped;
  }
  memory().backend().synchronize();  // a GPU may still be computing
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.loss = engine_->loss_of_step();
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
    HostBatch batch = host_batch(spec_, rows);
    spec_.data->fill_held_out(counts ? first : 0, batch.inputs, batch.targets);
    const double loss = engine_->evaluate(forward_of(batch, rows));
    losses.push_back(counts ? loss * double(rows) : 0);
  }
  if (!spec_.engine.reproducible) losses = {std::accumulate(losses.begin(), losses.end(), 0.0)};
  const std::vector<double> of_ranks =
      RankNumbers(comm_, memory(), losses, {"loss", Purpose::loss}).wait();
  double sum = 0;  // in the order of the rows
  for (size_t i = 0; i < losses.size(); ++i)
    for (size_t r = i; r < of_ranks.size(); r += losses.size()) sum += of_ranks[r];
  return sum / double(all);
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
  for (Memory* memory : {&trainer.memory(), &trainer.host(), trainer.disk()})
    if (memory) memory->ledger().reset_peak();
  trainer.comm().log().clear();
  trainer.comm().events().moves() = {};
  return init_peak;
}

std::function<RankBackends(int rank)> on_gpus(std::vector<int> gpus, GpuOptions options) {
  return [gpus = std::move(gpus), options](int rank) {
    return RankBackends{make_gpu_backend(gpus[size_t(rank) % gpus.size()], options),
                        make_pinned_backend()};
  };
}

void use_reference(TrainingSpec& spec) {
  spec.reference = true;
  spec.backends = [](int) {
    return RankBackends{std::make_unique<Backend>(), std::make_unique<Backend>()};
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
