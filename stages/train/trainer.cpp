#include "stages/train/trainer.h"

#include <algorithm>
#include <chrono>

#include "dist/meta_communicator.h"
#include "nn/data/windows.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

const char* name(Transport transport) { return transport == Transport::nccl ? "nccl" : "threads"; }

RankTraining::RankTraining(const TrainingSpec& spec, Communicator& comm, Memory& memory,
                           Memory& host)
    : spec_(spec),
      comm_(comm),
      memory_(memory),
      host_(host),
      model_(spec.model, spec.config.recompute),
      window_(spec.window ? spec.window : spec.model.block_size) {
  require_input(window_ <= spec.model.block_size, "a window of ", window_,
                " tokens does not fit block-size ", spec.model.block_size);
  engine_ = std::make_unique<Engine>(model_.units(), comm, memory, spec.config, &host);
  if (spec.weights) engine_->stage().load(spec.weights);
  const size_t tokens =
      spec.windows ? size_t(spec.config.micro_batch * window_) : 0;  // a dry run moves no tokens
  batches_.resize(size_t(spec.config.accumulation),
                  {std::vector<int32_t>(tokens), std::vector<int32_t>(tokens)});
}

double RankTraining::run_micro_batch(const MicroBatch& batch, bool train) {
  if (spec_.interrupted && spec_.interrupted()) throw Interrupted();
  memory_.events().set_phase("data");
  const auto upload = [&](const std::vector<int32_t>& tokens) {
    const int64_t rows =
        tokens.empty() ? spec_.config.micro_batch : int64_t(tokens.size()) / window_;
    Tensor t = Tensor::empty(memory_, MemoryUse::activation, {rows, window_}, Dtype::i32);
    if (!tokens.empty()) kernel::upload<int32_t>(tokens, t);
    return t;
  };
  const Tensor ids = upload(batch.ids), targets = upload(batch.targets);
  const Engine::Forward build = [&](Tape* tape, UnitObserver& stage) {
    return model_.loss(tape, stage, ids, targets);
  };
  if (!train) return engine_->evaluate(build);
  Var loss = engine_->forward(build);
  engine_->backward(loss);
  return 0;
}

StepRecord RankTraining::step() {
  const int64_t A = spec_.config.accumulation, B = spec_.config.micro_batch, N = comm_.size();
  const MicroBatches order{A, N};
  for (int64_t a = 0; a < A && spec_.windows; ++a) {
    MicroBatch& batch = batches_[size_t(a)];
    spec_.windows->fill(order.index(steps_, a, comm_.rank()), batch.ids, batch.targets);
  }
  StepRecord record{
      .step = ++steps_, .lr = engine_->learning_rate(), .tokens = A * B * N * window_};
  if (spec_.config.precision == Dtype::f16) record.loss_scale = engine_->loss_scale();
  const auto begin = std::chrono::steady_clock::now();
  StepResult result;
  for (const MicroBatch& batch : batches_) {
    run_micro_batch(batch, true);
    if (const auto stepped = engine_->step()) result = *stepped;
  }
  memory_.backend().synchronize();  // a GPU may still be at work
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.loss = engine_->loss_of_step();
  record.grad_norm = result.grad_norm;
  record.skipped = result.skipped;
  record.culprit = result.culprit;
  return record;
}

double RankTraining::evaluate() {
  // Held-out windows are taken B at a time, in turn over the ranks. All ranks make the same number
  // of passes, since a pass is collective in stage 3; a rank that has nothing left repeats the
  // first and does not count it.
  const int64_t B = spec_.config.micro_batch, W = spec_.windows->held_out(), N = comm_.size();
  double sum = 0;
  for (int64_t round = 0; round * N * B < W; ++round) {
    const int64_t first = (round * N + comm_.rank()) * B,
                  rows = first < W ? std::min(B, W - first) : B;
    const size_t tokens = size_t(std::min(rows, W) * window_);
    MicroBatch batch{std::vector<int32_t>(tokens), std::vector<int32_t>(tokens)};
    spec_.windows->fill_held_out(first < W ? first : 0, batch.ids, batch.targets);
    const double loss = run_micro_batch(batch, false);
    if (first < W) sum += loss * double(rows);
  }
  return engine_->stage().mean_over_ranks(sum) * double(N) / double(W);
}

namespace {

RankReport report(RankTraining& training, int64_t init_peak_total) {
  return {.rest = training.memory().ledger(),
          .host = training.host().ledger(),
          .init_peak_total = init_peak_total,
          .log = training.comm().log()};
}

// Everything of the construction apart: peaks and traffic are those of the steps.
int64_t begin_counting(RankTraining& training) {
  const int64_t init_peak = training.memory().ledger().peak_total();
  training.memory().ledger().reset_peak();
  training.host().ledger().reset_peak();
  training.comm().log().clear();
  return init_peak;
}

// An evaluation stands outside the count of a step's memory and traffic.
void evaluate_uncounted(RankTraining& training, StepRecord& record) {
  const MemoryLedger ledger = training.memory().ledger();
  const CommunicationLog log = training.comm().log();
  record.eval_loss = training.evaluate();
  training.memory().ledger() = ledger;
  training.comm().log() = log;
}

}  // namespace

std::function<RankBackends(int rank)> on_gpus(std::vector<int> gpus, GpuOptions options) {
  return [gpus = std::move(gpus), options](int rank) {
    return RankBackends{make_gpu_backend(gpus[size_t(rank) % gpus.size()], options),
                        make_pinned_backend()};
  };
}

TrainingResult run_training(const TrainingSpec& spec, const TrainingCallbacks& callbacks) {
  constexpr int kCheckedSteps = 2;  // a program whose ranks call different things does so early
  TrainingResult result;
  const auto& run = spec.run_ranks ? spec.run_ranks : RunRanks(run_ranks);
  run(
      spec.ranks,
      [&](Communicator& comm) {
        if (spec.device == DeviceKind::cuda) annotate_for_profilers(comm.events());
        const RankBackends backends = spec.backends ? spec.backends(comm.rank()) : RankBackends{};
        Memory memory({spec.device}, backends.device ? *backends.device : cpu_backend(),
                      comm.events(), {.limit = spec.device_memory, .poison = spec.poison});
        Memory host({DeviceKind::cpu}, backends.host ? *backends.host : cpu_backend(),
                    comm.events(),
                    {.limit = spec.host_memory, .poison = spec.poison, .pool = Pool::host});
        RankTraining training(spec, comm, memory, host);
        const int64_t init_peak = begin_counting(training);
        if (callbacks.at_start) callbacks.at_start(training);
        for (int64_t step = 1; step <= spec.config.steps; ++step) {
          StepRecord record = training.step();
          if (step == kCheckedSteps && !spec.check_calls) comm.trust_calls();
          if (spec.eval_every > 0 && step % spec.eval_every == 0)
            evaluate_uncounted(training, record);
          if (comm.rank() != 0) continue;
          result.steps.push_back(record);
          if (callbacks.on_step) callbacks.on_step(record);
        }
        const std::vector<std::string> reports =
            comm.exchange(encode(report(training, init_peak)), "report");
        if (comm.rank() == 0)
          for (const std::string& bytes : reports) result.ranks.push_back(decode_report(bytes));
        if (callbacks.at_end) callbacks.at_end(training);
      },
      spec.rank_options);
  return result;
}

RankReport dry_run(const TrainingSpec& whole, int rank) {
  // The first, one in the middle and the last: more micro-batches change no peak.
  TrainingSpec spec = whole;
  spec.config.accumulation = std::min<int64_t>(spec.config.accumulation, 3);
  EventStream events(rank, 256);
  const auto comm = meta_communicator(rank, spec.ranks, events, spec.uses_scratch());
  Memory memory({DeviceKind::meta}, meta_backend(spec.device), events,
                {.limit = spec.device_memory});
  Memory host({DeviceKind::meta}, memory.backend(), events,
              {.limit = spec.host_memory, .pool = Pool::host});
  RankTraining training(spec, *comm, memory, host);
  const int64_t init_peak = begin_counting(training);
  constexpr int steps = 3;
  for (int step = 0; step < steps; ++step) {
    if (step == steps - 1) comm->log().clear();  // the traffic of one step
    training.step();
  }
  return report(training, init_peak);
}

std::vector<float> collect_weights(RankTraining& training) {
  std::map<std::string, std::vector<float>> by_name;
  const bool keeps = training.comm().rank() == 0;
  training.engine().stage().visit_weights([&](const Parameter& p, const Tensor& data) {
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
