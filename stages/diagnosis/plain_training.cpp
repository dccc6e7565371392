#include "stages/diagnosis/plain_training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "optim/clip.h"
#include "tensor/kernels.h"
#include "tensor/platform/quantize.h"
#include "tensor/random.h"

namespace zl {

FlatLayout::FlatLayout(const std::vector<Unit>& units, int ranks) : ranks_(ranks) {
  for (const Unit& unit : units) {
    units_.push_back({unit.name, size_, Partition(unit, ranks)});
    const Partition& partition = units_.back().partition;
    for (size_t i = 0; const auto p : unit.parameters)  // also those without elements
      parameters_.push_back({p, 0, size_ + partition.offset(i++), p->numel()});
    size_ += partition.full();
  }
}

std::string FlatLayout::text(int64_t position) const {
  require(0 <= position && position < size_, "element ", position, " of ", size_);
  const auto after = std::ranges::upper_bound(units_, position, {}, &UnitRange::begin);
  const UnitRange& unit = *std::prev(after);
  const auto pieces = unit.partition.pieces(position - unit.begin, 1);
  if (pieces.empty()) return "the padding of unit " + unit.name;
  return str(pieces[0].parameter->name, "[", pieces[0].first, "] of unit ", unit.name);
}

FlatValues FlatLayout::shards(const FlatValues& full, int rank) const {
  FlatValues values;
  for (const UnitRange& unit : units_) {
    const int64_t n = unit.partition.shard(), begin = unit.begin + rank * n;
    values.insert(values.end(), full.begin() + begin, full.begin() + begin + n);
  }
  return values;
}

FlatValues FlatLayout::full(const std::vector<FlatValues>& shards) const {
  FlatValues values;
  for (const UnitRange& unit : units_)
    for (const FlatValues& of_rank : shards) {
      const auto first = of_rank.begin() + unit.begin / ranks_;
      values.insert(values.end(), first, first + unit.partition.shard());
    }
  return values;
}

std::string compared(double is, double must) {
  char numbers[128], ratio[64] = "";
  std::snprintf(numbers, sizeof numbers, " is %.9g, must be %.9g", is, must);
  if (must != 0) std::snprintf(ratio, sizeof ratio, " (ratio %.4g)", is / must);
  return std::string(numbers) + (std::string_view(ratio) == " (ratio 1)" ? "" : ratio);
}

std::string first_difference(const FlatLayout& layout, const FlatValues& values,
                             const FlatValues& expected, int rank) {
  size_t first = 0, count = 0;
  for (size_t i = values.size(); i-- > 0;)
    if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(expected[i]))
      first = i, ++count;
  if (count == 0) return "";
  return str(layout.text(int64_t(first)), " on rank ", rank,
             compared(double(values[first]), double(expected[first])), "; ", count, " of ",
             values.size(), " elements differ");
}

// Says again which parameters decay: what judges the stages shares no rule with them.
std::unique_ptr<FlatOptimizer> PlainTraining::new_optimizer() {
  const Options& o = spec_.engine;
  std::vector<ParameterGroup> groups;
  for (const Partition::Piece& piece : layout_.parameters()) {
    const bool exempt = std::ranges::any_of(
        o.optimizer.no_weight_decay,
        [&](const std::string& glob) { return matches_glob(glob, piece.parameter->name); });
    groups.push_back({.begin = groups.empty() ? 0 : groups.back().end,
                      .end = piece.at + piece.count,
                      .weight_decay = exempt ? 0 : o.optimizer.weight_decay,
                      .frozen = !piece.parameter->requires_grad});
  }
  if (!groups.empty()) groups.back().end = layout_.size();
  return std::make_unique<FlatOptimizer>(memory_, layout_.size(), o.precision, o.optimizer, groups);
}

Tensor PlainTraining::zeros(MemoryUse use, Dtype type) {
  return Tensor::zeros(memory_, use, {layout_.size()}, type);
}

PlainTraining::PlainTraining(const TrainingSpec& spec)
    : spec_(spec),
      loss_scale_(spec.engine.precision == Dtype::f16 || spec.engine.loss_scale.static_scale > 0
                      ? LossScaler(spec.engine.loss_scale).scale()
                      : 1),
      backends_(spec.backends ? spec.backends(0) : RankBackends{}),
      memory_({spec.device}, backends_.device ? *backends_.device : cpu_backend(), events_),
      model_(spec.new_model()),
      layout_(model_->units(), spec.ranks),
      parameters_(zeros(MemoryUse::parameter, spec.engine.precision)),
      of_backward_(zeros(MemoryUse::gradient, spec.engine.precision)),
      optimizer_(new_optimizer()) {
  for (const Partition::Piece& piece : layout_.parameters()) {
    Parameter& p = *piece.parameter;
    p.data = parameters_.slice(piece.at, p.shape);
    p.grad = of_backward_.slice(piece.at, p.shape);
    for (const Tensor& stored : {parameters_, optimizer_->master()}) {
      if (!stored.defined()) continue;
      const Tensor values = stored.slice(piece.at, p.shape);
      if (spec.weights)
        kernel::upload_floats(spec.weights(p), values);
      else
        kernel::normal({spec.engine.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation}, 0,
                       values);
    }
  }
}

// Adds the gradient of a micro-batch. Returns its loss.
double PlainTraining::backward(int64_t a, int r) {
  if (spec_.interrupted && spec_.interrupted()) throw Interrupted();
  const int64_t rows = spec_.micro_batch, in_order = steps_ * spec_.engine.accumulation + a;
  HostBatch batch = host_batch(spec_, rows);
  spec_.data->fill_rows((in_order * spec_.ranks + r) * rows, batch.inputs, batch.targets);
  Tape tape;
  UnitObserver none;
  const Var loss = model_->loss(&tape, none, upload(spec_, batch, rows, memory_));
  const double value = kernel::read(loss.value());
  Tensor seed = Tensor::empty(memory_, MemoryUse::activation, {1}, loss.value().dtype());
  kernel::fill(loss_scale_, seed);
  tape.backward(loss, seed);
  return value;
}

FlatValues PlainTraining::gradient(int64_t a, int r) {
  backward(a, r);
  FlatValues values = kernel::download_floats(of_backward_);
  kernel::fill(0, of_backward_);
  return values;
}

std::vector<std::vector<FlatValues>> PlainTraining::gradients_alone() {
  std::vector<std::vector<FlatValues>> alone(size_t(spec_.engine.accumulation));
  for (size_t a = 0; a < alone.size(); ++a)
    for (int r = 0; r < spec_.ranks; ++r) alone[a].push_back(gradient(int64_t(a), r));
  return alone;
}

// All micro-batches of a step, into gradient_. Returns the mean loss.
double PlainTraining::add_gradients() {
  const int64_t A = spec_.engine.accumulation, N = spec_.ranks;
  const Dtype type = spec_.engine.precision;
  gradient_ = {};
  gradient_ = zeros(MemoryUse::gradient, type);
  const Tensor of_ranks = zeros(MemoryUse::gradient, compute_type(type));
  std::vector<double> losses(size_t(N), 0);
  // The micro-batches that each rank adds before the ranks are added.
  const int64_t together = shards_gradient(spec_.engine.stage) ? 1 : A;
  for (int64_t first = 0; first < A; first += together) {
    for (size_t r = 0; r < losses.size(); ++r) {
      for (int64_t a = first; a < first + together; ++a) losses[r] += backward(a, int(r));
      kernel::accumulate(of_backward_, of_ranks);
      kernel::fill(0, of_backward_);
    }
    // A sum in fp32, divided once, rounded to the gradient's type: as a collective does.
    kernel::divide(double(N), of_ranks);
    kernel::copy(of_ranks, of_backward_);
    kernel::accumulate(of_backward_, gradient_);
    kernel::fill(0, of_ranks), kernel::fill(0, of_backward_);
  }
  double sum = 0;
  for (const double loss : losses) sum += loss / double(A);
  return sum / double(N);
}

// By rank, then unit; in blocks of 1,024 elements from the start of each shard.
double PlainTraining::squared_norm() const {
  const Tensor square = Tensor::empty(gradient_.memory(), MemoryUse::workspace, {1}, Dtype::f64);
  double sum = 0;
  for (int64_t r = 0; r < spec_.ranks; ++r) {
    double of_rank = 0;
    for (const FlatLayout::UnitRange& u : layout_.units()) {
      const int64_t n = u.partition.shard();
      kernel::sum_of_squares(gradient_.slice(u.begin + r * n, {n}), square);
      of_rank += kernel::read(square);
    }
    sum += of_rank;
  }
  return sum;
}

PlainStep PlainTraining::step(double lr) {
  const Options& o = spec_.engine;
  require_input(o.precision != Dtype::f16 && !o.grad_accum_dtype && !o.communication_data_type,
                "the plain loop has no loss scale and no gradients of another type");
  PlainStep result;
  result.loss = add_gradients();
  const double divisor = double(o.accumulation) * loss_scale_;
  result.grad_norm = std::sqrt(squared_norm()) / divisor;
  const float scale = float(clip_factor(result.grad_norm, o.gradient_clipping) / divisor);
  result.gradient = kernel::download_floats(gradient_);
  optimizer_->update(parameters_, gradient_, lr, scale);
  ++steps_;
  return result;
}

FlatValues PlainTraining::weights() const { return kernel::download_floats(parameters_); }

}  // namespace zl
