#include "tutorials/lesson/trial.h"

#include <cmath>
#include <set>

#include "tensor/kernels.h"

namespace zl::lesson {
namespace {

Tensor upload(Memory& memory, const std::vector<int32_t>& tokens) {
  const int64_t T = text_m().block_size();
  Tensor t =
      Tensor::empty(memory, MemoryUse::activation, {int64_t(tokens.size()) / T, T}, Dtype::i32);
  kernel::upload<int32_t>(tokens, t);
  return t;
}

// The mean loss of these rows, with its graph on `tape`.
Var loss_of(Rows rows, Gpt& model, Tape& tape, Stage& stage, Memory& memory) {
  const size_t T = size_t(text_m().block_size());
  std::vector<int32_t> ids(size_t(rows.count) * T), targets(ids.size());
  for (size_t row = 0; row < size_t(rows.count); ++row)
    text_m().fill(rows.first + int64_t(row), {ids.data() + row * T, T},
                  {targets.data() + row * T, T});
  return model.loss(&tape, stage, upload(memory, ids), upload(memory, targets));
}

// The elements of a flat whole that belong to parameters.
void append_unpadded(const Partition& layout, const Tensor& whole, std::vector<float>& to) {
  const std::vector<float> all = kernel::download_floats(whole);
  for (const Partition::Piece& piece : layout.pieces(0, layout.full()))
    to.insert(to.end(), all.begin() + piece.at, all.begin() + piece.at + piece.count);
}

void run_rank(Lesson& lesson, const Trial& trial, Communicator& comm, TrialRank& out) {
  Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
  out.model = std::make_shared<Gpt>(model_m(trial.layers));
  Gpt& model = *out.model;
  StageOptions options = trial.options;
  options.seed = lesson.seed();
  const std::unique_ptr<Stage> stage = trial.make(model.units(), comm, memory, options);
  stage->start();
  for (const Unit& u : model.units()) out.layouts.push_back(stage->unit_memory(u).layout);
  if (trial.watched) lesson.watch(comm, memory, stage.get(), &model.units());
  comm.log().clear();
  const double scale = trial.scale ? trial.scale(comm.rank()) : 1;
  for (int64_t step = 0; step < trial.steps; ++step) {
    double sum = 0;
    for (int64_t i = 0; i < trial.micro_batches; ++i) {
      const int64_t a = step * trial.micro_batches + i;
      const Rows rows = trial.rows ? trial.rows(comm.rank(), a)
                                   : Rows{(a * comm.size() + comm.rank()) * kRowsM, kRowsM};
      comm.events().set_phase("forward");
      Tape tape;
      const Var loss = loss_of(rows, model, tape, *stage, memory);
      sum += kernel::read(loss.value(), 0);
      stage->backward(tape, loss, scale, i == trial.micro_batches - 1);
    }
    for (const Unit& u : model.units()) {
      const UnitMemory& m = stage->unit_memory(u);
      if (step == 0 && m.gradient.numel() == m.layout.full())
        append_unpadded(m.layout, m.gradient, out.gradient);
    }
    out.norms.push_back(stage
                            ->step({.lr = options.optimizer.lr,
                                    .max_norm = trial.max_norm,
                                    .micro_batches = int(trial.micro_batches)})
                            .grad_norm);
    out.losses.push_back(stage->mean_over_ranks(sum / double(trial.micro_batches)));
  }
  lesson.unwatch(comm);
  out.rest = memory.ledger();
  out.log = comm.log();
  stage->visit_parameters([&](const Parameter&, const Tensor& data) {
    const std::vector<float> values = kernel::download_floats(data);
    out.weights.insert(out.weights.end(), values.begin(), values.end());
  });
}

}  // namespace

std::vector<TrialRank> run_trial(Lesson& lesson, const Trial& trial) {
  std::vector<TrialRank> ranks(size_t(trial.ranks));
  lesson.run_ranks(trial.ranks, [&](Communicator& comm) {
    run_rank(lesson, trial, comm, ranks[size_t(comm.rank())]);
  });
  return ranks;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

int64_t different_weights(const std::vector<TrialRank>& ranks) {
  std::set<uint64_t> hashes;
  for (const TrialRank& rank : ranks) hashes.insert(weights_hash(rank.weights));
  return int64_t(hashes.size());
}

}  // namespace zl::lesson
