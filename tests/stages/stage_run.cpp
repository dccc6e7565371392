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
    values[i] = int32_t(random.uniform(uint64_t(micro_batch) * values.size() + i) *
                        double(spec.model.vocab));
  const Tensor t = Tensor::empty(memory, MemoryUse::activation, {kBatch, kWindow}, Dtype::i32);
  kernel::upload<int32_t>(values, t);
  return t;
}

double train_micro_batch(const StageRunSpec& spec, OddModel& model, Stage& stage, Memory& memory,
                         int64_t j, bool last) {
  const Tensor ids = tokens(memory, spec, j, 0), targets = tokens(memory, spec, j, 1);
  Tape tape;
  memory.events().set_phase("forward");
  const Var loss = model.loss(&tape, stage, ids, targets);
  const double value = kernel::read(loss.value(), 0);
  stage.backward(tape, loss, spec.scale, last);
  return value;
}

void train(const StageRunSpec& spec, Communicator& comm, Memory& memory, Memory& host,
           StageRun& run) {
  OddModel model(spec.model);
  StageOptions options = spec.options;
  if (spec.offload) options.host = &host;
  const auto call = [&](const auto& hook, Stage& stage) {
    if (hook) hook(stage, model, comm, memory);
  };
  const auto stage = spec.make ? spec.make(model.units(), comm, memory, options)
                               : make_stage(spec.stage, model.units(), comm, memory, options);
  call(spec.at_start, *stage);
  memory.ledger().reset_peak();
  host.ledger().reset_peak();
  comm.log().clear();
  for (int64_t step = 0; step < spec.steps; ++step) {
    double sum = 0;
    for (int64_t a = 0; a < spec.micro_batches; ++a) {
      const int64_t j =
          spec.first_micro_batch + (step * spec.micro_batches + a) * comm.size() + comm.rank();
      sum += train_micro_batch(spec, model, *stage, memory, j, a + 1 == spec.micro_batches);
      call(spec.after_backward, *stage);
    }
    const StepResult result = stage->step({.lr = spec.lr,
                                           .max_norm = spec.max_norm,
                                           .scale = spec.scale,
                                           .micro_batches = spec.micro_batches});
    const double loss = stage->mean_over_ranks(sum / spec.micro_batches);
    call(spec.after_step, *stage);
    if (comm.rank() != 0) continue;
    run.losses.push_back(loss);
    run.norms.push_back(result.grad_norm);
    run.skipped.push_back(result.skipped);
    run.culprits.push_back(result.culprit);
  }
  run.ledgers[size_t(comm.rank())] = memory.ledger();
  run.host_ledgers[size_t(comm.rank())] = host.ledger();
  run.logs[size_t(comm.rank())] = comm.log();
  const auto append_to = [&](std::vector<float>& all) {
    return [&](const Parameter&, const Tensor& data) {
      if (comm.rank() == 0)
        std::ranges::copy(kernel::download_floats(data), std::back_inserter(all));
    };
  };
  stage->visit_parameters(append_to(run.weights));
  stage->visit_weights(append_to(run.master));
}

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

bool StageRun::same_bits(const StageRun& other) const {
  return equal_bits(losses, other.losses) && equal_bits(norms, other.norms) &&
         equal_bits(weights, other.weights) && equal_bits(master, other.master);
}

StageRun run_stage(const StageRunSpec& spec) {
  StageRun run;
  run.ledgers.resize(size_t(spec.ranks));
  run.host_ledgers.resize(size_t(spec.ranks));
  run.logs.resize(size_t(spec.ranks));
  run.live_at_end.resize(size_t(spec.ranks));
  spec.run(
      spec.ranks,
      [&](Communicator& comm) {
        const RankBackends backends =
            spec.backends ? spec.backends(comm.rank()) : backends_of_rank();
        Memory memory({}, device_of(backends), comm.events(),
                      {.limit = spec.limit, .poison = true});
        Memory host({}, host_of(backends), comm.events(),
                    {.limit = spec.host_limit, .poison = true, .pool = Pool::host});
        train(spec, comm, memory, host, run);
        run.live_at_end[size_t(comm.rank())] = memory.ledger().live_total();
      },
      spec.rank_options);
  return run;
}

Prediction predicted(const StageRunSpec& spec) {
  OddModel model(spec.model);
  return predict({.stage = spec.stage,
                  .ranks = spec.ranks,
                  .micro_batches = spec.micro_batches,
                  .reduce_bucket_size = spec.options.reduce_bucket_size,
                  .dtype = spec.options.dtype,
                  .gradient_dtype = spec.options.gradient_dtype,
                  .communication_dtype = spec.options.communication_dtype,
                  .optimizer = optimizer_bytes(spec.options.optimizer, spec.options.dtype),
                  .scratch = spec.scratch,
                  .offload_optimizer = spec.offload,
                  .units = padded_unit_sizes(model.units(), spec.ranks)});
}

std::string off_the_prediction(const StageRunSpec& spec, const StageRun& run) {
  const Prediction p = predicted(spec);
  std::string differences;
  for (int rank = 0; rank < spec.ranks; ++rank)
    for (const Pool pool : {Pool::device, Pool::host})
      for (int i = 0; i < kMemoryUses; ++i) {
        const MemoryUse use = MemoryUse(i);
        if (!has_closed_formula(use)) continue;
        const MemoryLedger& ledger =
            (pool == Pool::host ? run.host_ledgers : run.ledgers)[size_t(rank)];
        const Prediction::PoolBytes& formula = pool == Pool::host ? p.host : p.device;
        const auto compare = [&](const char* when, int64_t measured, int64_t expected) {
          if (measured != expected)
            differences += str("rank ", rank, ", ", name(pool), " ", name(use), " ", when, ": ",
                               measured, " B, not ", expected, " B; ");
        };
        compare("at rest", ledger.live(use), formula.rest_of(use));
        compare("at its peak", ledger.peak(use), formula.peak_of(use));
      }
  return differences;
}

}  // namespace zl::test
