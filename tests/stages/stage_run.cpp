#include "tests/stages/stage_run.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl::test {
namespace {

constexpr int64_t kBatch = 2, kWindow = 5;

// Tokens that depend on everything that says which micro-batch this is.
Tensor tokens(Memory& memory, const StageRunSpec& spec, int64_t micro_batch, uint64_t stream) {
  std::vector<int32_t> values(kBatch * kWindow);
  const PhiloxStream random{spec.data_seed, stream};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = int32_t(random.uniform(uint64_t(micro_batch) * values.size() + i) * double(spec.model.vocab));
  const Tensor t = Tensor::empty(memory, MemoryUse::activation, {kBatch, kWindow}, Dtype::i32);
  kernel::upload<int32_t>(values, t);
  return t;
}

double train_micro_batch(const StageRunSpec& spec, OddModel& model, Stage& stage, Memory& memory, int64_t j, bool last) {
  const Tensor ids = tokens(memory, spec, j, 0), targets = tokens(memory, spec, j, 1);
  Tape tape;
  memory.events().set_phase("forward");
  const Var loss = model.loss(&tape, stage, ids, targets);
  const double value = kernel::read(loss.value(), 0);
  stage.backward(tape, loss, 1.0, last);
  return value;
}

void train(const StageRunSpec& spec, Communicator& comm, Memory& memory, StageRun& run) {
  OddModel model(spec.model);
  const auto call = [&](const auto& hook, Stage& stage) { if (hook) hook(stage, model, comm, memory); };
  const auto stage = spec.make ? spec.make(model.units(), comm, memory, spec.options)
                               : make_stage(spec.stage, model.units(), comm, memory, spec.options);
  call(spec.at_start, *stage);
  memory.ledger().reset_peak();
  comm.log().clear();
  for (int64_t step = 0; step < spec.steps; ++step) {
    double sum = 0;
    for (int64_t a = 0; a < spec.micro_batches; ++a) {
      const int64_t j = spec.first_micro_batch + (step * spec.micro_batches + a) * comm.size() + comm.rank();
      sum += train_micro_batch(spec, model, *stage, memory, j, a + 1 == spec.micro_batches);
      call(spec.after_backward, *stage);
    }
    const StepResult result = stage->step({.lr = spec.lr, .max_norm = spec.max_norm, .scale = 1, .micro_batches = spec.micro_batches});
    const double loss = stage->mean_over_ranks(sum / spec.micro_batches);
    call(spec.after_step, *stage);
    if (comm.rank() != 0) continue;
    run.losses.push_back(loss);
    run.norms.push_back(result.grad_norm);
    run.skipped.push_back(result.skipped);
  }
  run.ledgers[size_t(comm.rank())] = memory.ledger();
  run.logs[size_t(comm.rank())] = comm.log();
  stage->visit_parameters([&](const Parameter&, const Tensor& data) {
    if (comm.rank() == 0) std::ranges::copy(kernel::download_floats(data), std::back_inserter(run.weights));
  });
}

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

bool StageRun::same_bits(const StageRun& other) const {
  return equal_bits(losses, other.losses) && equal_bits(norms, other.norms) && equal_bits(weights, other.weights);
}

StageRun run_stage(const StageRunSpec& spec) {
  StageRun run;
  run.ledgers.resize(size_t(spec.ranks));
  run.logs.resize(size_t(spec.ranks));
  run.live_at_end.resize(size_t(spec.ranks));
  run_ranks(spec.ranks, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events(), {.limit = spec.limit, .poison = true});
    train(spec, comm, memory, run);
    run.live_at_end[size_t(comm.rank())] = memory.ledger().live_total();
  }, spec.rank_options);
  return run;
}

}  // namespace zl::test
