#include "tests/stages/stage_run.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <iterator>
#include <map>

#include "stages/predict/plan.h"
#include "stages/train/weights.h"
#include "stages/variants/groups.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tests/tensor/io/swap_case.h"

namespace zl::test {
namespace {

constexpr int64_t kBatch = 2, kSequence = 5;

// Tokens that depend on everything that identifies a micro-batch.
class OddData final : public BatchSource {
 public:
  explicit OddData(const StageRunSpec& spec) : spec_(spec) {}
  Shape input_row() const override { return {kSequence}; }
  Shape target_row() const override { return {kSequence}; }
  void fill_rows(int64_t first, std::span<int32_t> inputs,
                 std::span<int32_t> targets) const override {
    fill_from(0, first, inputs);
    fill_from(1, first, targets);
  }

 private:
  void fill_from(uint64_t stream, int64_t row, std::span<int32_t> values) const {
    const PhiloxStream random{spec_.data_seed, stream};
    const auto first = uint64_t((spec_.first_micro_batch * kBatch + row) * kSequence);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = int32_t(random.uniform(first + i) * double(spec_.model.vocab));
  }

  const StageRunSpec& spec_;
};

Options options_of(const StageRunSpec& spec) {
  Options o = spec.options;
  o.stage = spec.stage;
  o.accumulation = spec.micro_batches;
  o.gradient_clipping = spec.max_norm;
  o.optimizer.lr = spec.lr;
  o.loss_scale = {.static_scale = spec.scale};
  o.cpu_checkpointing = spec.cpu_checkpointing;
  o.nvme_path = fast_folder();
  o.swap = spec.swap;
  if (spec.offload) o.offload_optimizer = OffloadDevice::cpu;
  if (spec.nvme) o.offload_optimizer = OffloadDevice::nvme;
  if (spec.offload_param) o.offload_param = OffloadDevice::cpu;
  if (spec.nvme_param) o.offload_param = OffloadDevice::nvme;
  return o;
}

// The first element whose bits differ, in words, or "".
template <class T>
std::string first_difference(const std::vector<T>& a, const std::vector<T>& b,
                             const std::function<std::string(size_t)>& name_of) {
  if (a.size() != b.size()) return str(name_of(0), ": there are ", a.size(), ", not ", b.size());
  size_t first = a.size(), count = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && count++ == 0) first = i;
  if (count == 0) return "";
  return str(name_of(first), " is ", a[first], ", not ", b[first], " (ratio ", a[first] / b[first],
             "); ", count, " of ", a.size(), " differ");
}

}  // namespace

void set_gradients(Stage& stage, OddModel& model, Communicator& comm, double value) {
  for (const Unit& u : model.units()) {
    const UnitState& m = stage.state(u);
    const int64_t n = kept_gradient(m).numel(),
                  begin = n == m.partition.full() ? 0 : comm.rank() * n;
    kernel::fill(0, kept_gradient(m));
    for (const Partition::Piece& piece : m.partition.pieces(begin, n))
      kernel::fill(value, kept_gradient(m).slice(piece.at, {piece.count}));
  }
}

std::string StageRun::difference(const StageRun& other) const {
  const auto of_step = [](const char* what) {
    return [what](size_t i) { return str(what, " of step ", i + 1); };
  };
  const auto of_weight = [this](const char* what) {
    return [this, what](size_t i) {
      int64_t element = int64_t(i);
      for (const auto& [name, numel] : parameters) {
        if (element < numel) return str(what, " ", name, ", element ", element);
        element -= numel;
      }
      return str(what, " ", i);
    };
  };
  for (const std::string& d : {first_difference(losses, other.losses, of_step("loss")),
                               first_difference(norms, other.norms, of_step("norm")),
                               first_difference(weights, other.weights, of_weight("weight")),
                               first_difference(master, other.master, of_weight("master weight"))})
    if (!d.empty()) return d;
  return "";
}

bool StageRun::same_bits(const StageRun& other) const {
  const std::string d = difference(other);
  if (!d.empty()) UNSCOPED_INFO(d);
  return d.empty();
}

TrainingSpec training_spec(const StageRunSpec& spec, const BatchSource& data) {
  TrainingSpec training{.make_model = [&spec] { return std::make_unique<OddModel>(spec.model); },
                        .input_row = data.input_row(),
                        .target_row = data.target_row(),
                        .engine = options_of(spec),
                        .micro_batch = kBatch,
                        .steps = spec.steps,
                        .ranks = spec.ranks,
                        .device_memory = spec.limit,
                        .host_memory = spec.host_limit,
                        .poison = true,
                        .rank_options = spec.rank_options,
                        .run_ranks = spec.run};
  training.backends = [&spec](int rank) {
    return spec.backends ? spec.backends(rank) : backends_of_rank();
  };
  training.data = &data;
  if (spec.model.recompute == Recompute::full)
    training.checkpointed_rows.assign(size_t(spec.model.blocks + spec.model.block_twice),
                                      kSequence * spec.model.channels);
  training.check_calls = true;
  training.make_stage = spec.make;
  return training;
}

std::unique_ptr<BatchSource> odd_data(const StageRunSpec& spec) {
  return std::make_unique<OddData>(spec);
}

StageRun run_stage(const StageRunSpec& spec) {
  StageRun run;
  run.live_at_end.resize(size_t(spec.ranks));
  const OddData data(spec);
  const auto hook = [](const StageHook& hook) {
    return [&hook](Trainer& t) {
      if (hook) hook(t.engine().stage(), static_cast<OddModel&>(t.model()), t.comm(), t.memory());
    };
  };
  // In the model's order, whatever units the stage makes of it.
  const auto read = [&](Trainer& t) {
    std::map<std::string, std::vector<float>> weights, master;
    const auto keep_in = [&](auto& by_name) {
      return [&](const Parameter& p, const Tensor& full) {
        if (t.comm().rank() == 0) by_name[p.name] = kernel::download_floats(full);
      };
    };
    Stage& stage = t.engine().stage();
    for (UnitState& u : stage.units()) {
      unshard(stage, u);
      for (const Parameter* p : u.unit->parameters) keep_in(weights)(*p, p->data);
      reshard(stage, u);
    }
    visit_weights(stage, keep_in(master));
    if (t.comm().rank() != 0) return;
    for (Unit& u : t.model().units())
      for (const Parameter* p : u.parameters) {
        std::ranges::copy(weights[p->name], std::back_inserter(run.weights));
        std::ranges::copy(master[p->name], std::back_inserter(run.master));
      }
  };
  OddModel model(spec.model);
  for (const Unit& u : model.units())
    for (const Parameter* p : u.parameters)
      run.parameters.emplace_back(str(p->name, " of unit ", u.name), p->numel());
  const auto freed = [&](int rank, const Memory& memory) {
    run.live_at_end[size_t(rank)] = memory.ledger().live_total();
  };
  const TrainingResult result =
      run_training(training_spec(spec, data), {.at_start = hook(spec.at_start),
                                               .after_backward = hook(spec.after_backward),
                                               .after_step = hook(spec.after_step),
                                               .on_step = {},
                                               .at_end = read,
                                               .freed = freed});
  for (const StepRecord& step : result.steps) {
    run.losses.push_back(step.loss);
    run.norms.push_back(step.grad_norm);
    run.skipped.push_back(step.skipped);
    run.nonfinite.push_back(step.nonfinite);
  }
  for (const RankReport& rank : result.ranks) {
    run.ledgers.push_back(rank.rest);
    run.host_ledgers.push_back(rank.host);
    run.disk_ledgers.push_back(rank.disk);
    run.logs.push_back(rank.log);
    run.moves.push_back(rank.moves);
  }
  return run;
}

Prediction predicted(const StageRunSpec& spec) {
  const OddData data(spec);
  PredictionInput in = prediction_input(training_spec(spec, data));
  in.scratch = spec.scratch;
  return predict(in);
}

std::string off_the_prediction(const StageRunSpec& spec, const StageRun& run) {
  const Prediction p = predicted(spec);
  std::string differences;
  for (int rank = 0; rank < spec.ranks; ++rank)
    for (const Pool pool : {Pool::device, Pool::host, Pool::disk})
      for (int i = 0; i < kMemoryUses; ++i) {
        const MemoryUse use = MemoryUse(i);
        if (!has_closed_formula(use, pool)) continue;
        const MemoryLedger& ledger = (pool == Pool::disk   ? run.disk_ledgers
                                      : pool == Pool::host ? run.host_ledgers
                                                           : run.ledgers)[size_t(rank)];
        const Prediction::PoolBytes& formula = p.of(pool);
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

std::string off_the_traffic(const StageRunSpec& spec, const StageRun& run) {
  std::string differences;
  for (const CommunicationLog& log : run.logs) {
    CommunicationLog::Rows expected = predicted(spec).traffic.rows();
    std::erase_if(expected, [](const auto& row) { return row.first.purpose == Purpose::check; });
    for (auto& [key, t] : expected) {
      t.calls *= spec.steps, t.elements *= spec.steps, t.sent_bytes_times_n *= spec.steps;
      const auto row = log.rows().find(key);
      const Traffic seen = row == log.rows().end() ? Traffic{} : row->second;
      if (seen != t)
        differences +=
            str(name(key.collective), " ", name(key.purpose), " ", key.group, ": ", seen.calls,
                " calls, ", seen.elements, " elements, ", seen.sent_bytes_times_n, " B * N, not ",
                t.calls, ", ", t.elements, ", ", t.sent_bytes_times_n, "; ");
    }
    if (log.rows().size() != expected.size())
      differences += str(log.rows().size(), " rows, not ", expected.size(), "; ");
  }
  return differences;
}

std::string off_the_moves(const StageRunSpec& spec, const StageRun& run) {
  std::string differences;
  const StepCount count{.steps = spec.steps, .skipped = std::ranges::count(run.skipped, true)};
  for (int rank = 0; rank < spec.ranks; ++rank)
    for (const MoveRow& row : move_rows(rank, run.moves[size_t(rank)], predicted(spec), count))
      if (!row.exact())
        differences +=
            str("rank ", rank, ", ", name(row.move), ": ", row.number, " moves, ", row.bytes,
                " B, not ", row.predicted_number, ", ", row.predicted_bytes, " B; ");
  return differences;
}

}  // namespace zl::test
