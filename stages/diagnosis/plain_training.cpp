#include "stages/diagnosis/plain_training.h"

#include <algorithm>
#include <cmath>

#include "optim/clip.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

// One unit, laid out as the design says: parameters at multiples of 16 elements, the unit padded to
// a multiple of 16 per rank.
struct PlainTraining::FlatUnit {
  Unit* unit = nullptr;
  std::vector<int64_t> offsets;
  int64_t size = 0;
  Tensor weights, gradient, sum;  // backward fills `gradient`; `sum` is the step's
  std::unique_ptr<FlatOptimizer> optimizer;
};

namespace {

int64_t padded(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void append(FlatValues& to, const FlatValues& values) {
  to.insert(to.end(), values.begin(), values.end());
}

double weight_decay(const OptimizerConfig& config, const std::string& parameter) {
  for (const std::string& glob : config.no_weight_decay)
    if (matches_glob(glob, parameter)) return 0;
  return config.weight_decay;
}

}  // namespace

AddFirst adds_first(StageKind stage) {
  return shards_gradient(stage) ? AddFirst::ranks : AddFirst::micro_batches;
}

PlainTraining::PlainTraining(const TrainingSpec& spec)
    : spec_(spec),
      backends_(spec.backends ? spec.backends(0) : RankBackends{}),
      memory_({spec.device}, backends_.device ? *backends_.device : cpu_backend(), events_),
      model_(spec.new_model()) {
  const Options& o = spec.engine;
  require_input(o.precision != Dtype::f16 && !o.grad_accum_dtype && !o.communication_data_type,
                "the plain loop has no loss scale and no gradients of another type");
  for (Unit& unit : model_->units()) {
    FlatUnit& u = units_.emplace_back();
    u.unit = &unit;
    std::vector<ParameterGroup> groups;
    for (const Parameter* p : unit.parameters) {
      u.offsets.push_back(padded(u.size, 16));
      u.size = u.offsets.back() + p->numel();
      groups.push_back({.begin = groups.empty() ? 0 : groups.back().end,
                        .end = u.size,
                        .weight_decay = weight_decay(o.optimizer, p->name),
                        .frozen = !p->requires_grad});
    }
    u.size = padded(u.size, 16 * spec.ranks);
    if (!groups.empty()) groups.back().end = u.size;
    u.weights = Tensor::zeros(memory_, MemoryUse::parameter, {u.size}, o.precision);
    u.gradient = Tensor::zeros(memory_, MemoryUse::gradient, {u.size}, o.precision);
    u.sum = Tensor::zeros(memory_, MemoryUse::gradient, {u.size}, o.precision);
    u.optimizer = make_optimizer(memory_, u.size, o.precision, o.optimizer, std::move(groups));
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      Parameter& p = *unit.parameters[i];
      const auto view = [&](const Tensor& flat) { return flat.slice(u.offsets[i], {p.numel()}); };
      for (const Tensor& flat : {u.weights, u.optimizer->master()}) {
        if (!flat.defined()) continue;
        if (p.initial_deviation == 0)
          kernel::fill(p.initial_mean, view(flat));
        else
          kernel::normal({o.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation}, 0,
                         view(flat));
      }
      p.data = view(u.weights).view(p.shape);
      p.grad = view(u.gradient).view(p.shape);
      p.usable = false;
    }
  }
}

PlainTraining::~PlainTraining() {
  for (FlatUnit& u : units_)
    for (Parameter* p : u.unit->parameters) p->data = p->grad = {};
}

// Adds the gradient of micro-batch j to every unit's. Returns its loss.
double PlainTraining::backward(int64_t j) {
  const int64_t rows = spec_.micro_batch;
  std::vector<int32_t> inputs(size_t(rows * numel(spec_.row_of_inputs())));
  std::vector<int32_t> targets(size_t(rows * numel(spec_.row_of_targets())));
  spec_.data->fill_rows(j * rows, inputs, targets);
  const auto upload = [&](const std::vector<int32_t>& from, Shape row) {
    row.insert(row.begin(), rows);
    const Tensor t = Tensor::empty(memory_, MemoryUse::activation, row, Dtype::i32);
    kernel::upload<int32_t>(from, t);
    return t;
  };
  Tape tape;
  UnitObserver none;
  const Var loss = model_->loss(
      &tape, none,
      {upload(inputs, spec_.row_of_inputs()), upload(targets, spec_.row_of_targets())});
  const double value = kernel::read(loss.value(), 0);
  Tensor seed = Tensor::empty(memory_, MemoryUse::activation, {1}, loss.value().dtype());
  kernel::fill(1, seed);
  tape.backward(loss, seed);
  return value;
}

// The gradient since the last call; clears it.
FlatValues PlainTraining::take_gradient() {
  FlatValues all;
  for (FlatUnit& u : units_) {
    append(all, kernel::download_floats(u.gradient));
    kernel::fill(0, u.gradient);
  }
  return all;
}

// Sums in fp32 in rank order, divided once, rounded to the gradient's type: as a collective does.
void PlainTraining::add_mean(const std::vector<FlatValues>& of_ranks) {
  FlatValues mean(of_ranks[0].size(), 0.0f);
  for (size_t i = 0; i < mean.size(); ++i) {
    for (const FlatValues& rank : of_ranks) mean[i] += rank[i];
    mean[i] /= float(spec_.ranks);
  }
  int64_t begin = 0;
  for (FlatUnit& u : units_) {
    const Tensor rounded = Tensor::empty(memory_, MemoryUse::gradient, {u.size}, u.sum.dtype());
    kernel::upload_floats(std::span(mean).subspan(size_t(begin), size_t(u.size)), rounded);
    kernel::accumulate(rounded, u.sum);
    begin += u.size;
  }
}

// All micro-batches of a step. Returns the mean loss.
double PlainTraining::add_gradients() {
  const int64_t A = spec_.engine.accumulation, N = spec_.ranks;
  for (FlatUnit& u : units_) kernel::fill(0, u.sum);
  std::vector<double> losses(size_t(N), 0);
  const auto run = [&](int64_t a, int64_t r) {
    losses[size_t(r)] += backward((steps_ * A + a) * N + r);
  };
  std::vector<FlatValues> of_ranks(static_cast<size_t>(N));
  if (adds_first(spec_.engine.stage) == AddFirst::micro_batches) {
    for (int64_t r = 0; r < N; ++r) {
      for (int64_t a = 0; a < A; ++a) run(a, r);
      of_ranks[size_t(r)] = take_gradient();
    }
    add_mean(of_ranks);
  } else {
    for (int64_t a = 0; a < A; ++a) {
      for (int64_t r = 0; r < N; ++r) run(a, r), of_ranks[size_t(r)] = take_gradient();
      add_mean(of_ranks);
    }
  }
  double sum = 0;
  for (const double loss : losses) sum += loss / double(A);
  return sum / double(N);
}

std::vector<std::vector<FlatValues>> PlainTraining::gradients_alone() {
  const int64_t A = spec_.engine.accumulation, N = spec_.ranks;
  std::vector<std::vector<FlatValues>> alone;
  for (int64_t a = 0; a < A; ++a) {
    std::vector<FlatValues>& of_ranks = alone.emplace_back();
    for (int64_t r = 0; r < N; ++r) {
      backward((steps_ * A + a) * N + r);
      of_ranks.push_back(take_gradient());
    }
  }
  return alone;
}

// By rank, then unit; in blocks of 1,024 elements from the start of each shard.
double PlainTraining::squared_norm() const {
  double sum = 0;
  for (int64_t r = 0; r < spec_.ranks; ++r) {
    double of_rank = 0;
    for (const FlatUnit& u : units_) {
      const int64_t shard = u.size / spec_.ranks;
      const Tensor square = Tensor::empty(u.sum.memory(), MemoryUse::workspace, {1}, Dtype::f64);
      kernel::sum_of_squares(u.sum.slice(r * shard, {shard}), square);
      of_rank += kernel::read(square, 0);
    }
    sum += of_rank;
  }
  return sum;
}

void PlainTraining::update(double norm, double lr) {
  const double divisor = double(spec_.engine.accumulation);
  const float scale = float(clip_factor(norm, spec_.engine.gradient_clipping) / divisor);
  for (FlatUnit& u : units_) u.optimizer->update(u.weights, u.sum, lr, scale);
}

PlainStep PlainTraining::step(double lr) {
  PlainStep result;
  result.loss = add_gradients();
  result.grad_norm = std::sqrt(squared_norm()) / double(spec_.engine.accumulation);
  for (const FlatUnit& u : units_) append(result.gradient, kernel::download_floats(u.sum));
  update(result.grad_norm, lr);
  ++steps_;
  return result;
}

FlatValues PlainTraining::weights() const {
  FlatValues all;
  for (const FlatUnit& u : units_) append(all, kernel::download_floats(u.weights));
  return all;
}

FlatValues PlainTraining::master() const {
  FlatValues all;
  for (const FlatUnit& u : units_)
    append(all, kernel::download_floats(u.optimizer->master().defined() ? u.optimizer->master()
                                                                        : u.weights));
  return all;
}

}  // namespace zl
