#include "stages/stage.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "nn/model.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

// ---- what a rank holds of a unit -------------------------------------------------------------

namespace {

void bind(const UnitState& u, Tensor Parameter::*member, const Tensor& full) {
  for (size_t i = 0; i < u.unit->parameters.size(); ++i) {
    Parameter& p = *u.unit->parameters[i];
    p.*member = full.defined() ? full.slice(u.partition.offset(i), p.shape) : Tensor{};
  }
}

}  // namespace

void UnitState::bind_parameters(const Tensor& full) { bind(*this, &Parameter::data, full); }
void UnitState::bind_gradients(const Tensor& full) { bind(*this, &Parameter::grad, full); }

void UnitState::visit_weights(int rank, const Visit& visit) const {
  for (const Tensor& flat : {kept_parameter(), optimizer->master()}) {
    if (!flat.defined()) continue;
    const int64_t first = flat.numel() == partition.full() ? 0 : rank * partition.shard();
    for (const Partition::Piece& piece : partition.pieces(first, flat.numel()))
      visit(piece, flat.slice(piece.at, {piece.count}));
  }
}

// ---- start -----------------------------------------------------------------------------------

Stage::Stage(std::vector<Unit>& units, Communicator& comm, Memories memories,
             const Options& options, Communicator* shard_group)
    : comm_(comm),
      shard_group_(shard_group ? *shard_group : comm),
      memories_(memories),
      options_(options),
      units_(units.size()) {
  check_units(units);
  check(options_, memories_);
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units[i];
    units_[i].unit = &unit;
    units_[i].partition = Partition(
        unit, comm_.size(), options_.reproducible ? kernel::kSquaresBlock : Partition::kAlignment,
        shard_group_.size());
    units_[i].first_parameter = int64_t(parameters_.size());
    for (Parameter* p : unit.parameters) {
      if (p->data.defined())
        refuse("parameter '", p->name,
               "' already has memory: only one stage at a time may hold a model");
      parameters_.push_back(p);
    }
  }
}

Stage::~Stage() {
  try {
    if (std::uncaught_exceptions() == 0) wait_for_parameters();
  } catch (const std::exception&) {  // the next call of the communicator throws it again
  }
  for (UnitState& u : units_) {  // the parameters outlive the memory that they point into
    u.bind_parameters({});
    u.bind_gradients({});
  }
}

void Stage::start() {
  memory().events().set_phase("initialize");
  for (UnitState& u : units_) {
    memory().events().set_unit(u.name(), "allocate");
    for (Parameter* p : u.unit->parameters) p->usable = false;  // from now on only inside the unit
    allocate(u);
    if (!u.kept_parameter().defined())
      refuse("allocate: unit ", u.name(), " has no full_parameter and no parameter_shard");
    if (!u.full_gradient.defined() && !u.gradient_shard.defined())
      refuse("allocate: unit ", u.name(), " has no full_gradient and no gradient_shard");
    if (!u.optimizer) refuse("allocate: unit ", u.name(), " has no optimizer");
    initialize(u);
    const bool replicated = u.full_parameter.defined();
    u.parameters = replicated ? ParameterState::unsharded : ParameterState::sharded;
    if (replicated) u.bind_parameters(u.full_parameter);
  }
  memory().events().set_unit("");
}

// Initial values depend on (seed, name, element) alone, so they are the same in every stage. The
// master weights get them in fp32; the parameters are their rounding.
void Stage::initialize(UnitState& u) {
  kernel::fill(0, u.kept_parameter());  // padding
  u.visit_weights(shard_group().rank(), [&](const Partition::Piece& piece, const Tensor& values) {
    const Parameter& p = *piece.parameter;
    kernel::normal({options_.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation}, piece.first,
                   values);
  });
}

// ---- memory ----------------------------------------------------------------------------------

Memory& Stage::memory_of(MemoryUse use) const {
  if (use == MemoryUse::activation)
    return options_.cpu_checkpointing ? *memories_.host : memories_.device;
  if (use != MemoryUse::parameter)
    return offloads_optimizer(options_) ? *memories_.host : memories_.device;
  if (!offloads_parameter(options_)) return memories_.device;
  return options_.offload_param == OffloadDevice::nvme ? *memories_.disk : *memories_.host;
}

Tensor Stage::new_full_tensor(const UnitState& u, MemoryUse use) {
  const int64_t n = u.partition.full();
  if (use != MemoryUse::gradient) return Tensor::empty(memory(), use, {n}, options_.precision);
  const Dtype type = reduces_every_micro_batch() ? options_.precision : gradient_type(options_);
  return Tensor::zeros(memory(), use, {n}, type);
}

Tensor Stage::new_shard_tensor(const UnitState& u, MemoryUse use) {
  const int64_t n = u.partition.shard();
  if (use != MemoryUse::gradient)
    return Tensor::empty(memory_of(use), use, {n}, options_.precision);
  return Tensor::zeros(memory_of(use), use, {n}, gradient_type(options_));
}

std::unique_ptr<FlatOptimizer> Stage::new_full_optimizer(const UnitState& u) {
  return new_optimizer(u, 0, u.partition.full());
}

std::unique_ptr<FlatOptimizer> Stage::new_shard_optimizer(const UnitState& u) {
  return new_optimizer(u, shard_group().rank() * u.partition.shard(), u.partition.shard());
}

// One group per parameter in the range. Padding belongs to the group behind it; it stays zero.
// Where a parameter of the unit is frozen, an empty frozen group ends the range: all ranks treat it
// alike.
std::unique_ptr<FlatOptimizer> Stage::new_optimizer(const UnitState& u, int64_t first, int64_t n) {
  std::vector<ParameterGroup> groups;
  for (const Partition::Piece& piece : u.partition.pieces(first, n)) {
    const bool exempt = std::ranges::any_of(
        options_.optimizer.no_weight_decay,
        [&](const std::string& glob) { return matches_glob(glob, piece.parameter->name); });
    groups.push_back({.begin = groups.empty() ? 0 : groups.back().end,
                      .end = piece.at + piece.count,
                      .weight_decay = exempt ? 0 : options_.optimizer.weight_decay,
                      .frozen = !piece.parameter->requires_grad});
  }
  if (!groups.empty()) groups.back().end = n;
  if (!std::ranges::all_of(u.unit->parameters, &Parameter::requires_grad)) {
    if (groups.empty()) groups.push_back({0, n, options_.optimizer.weight_decay});
    groups.push_back({n, n, 0, true});
  }
  Swap swap;
  if (offloads_optimizer(options_) && options_.offload_optimizer == OffloadDevice::nvme) {
    swap = options_.swap;
    swap.disk = memories_.disk;
  }
  return std::make_unique<FlatOptimizer>(memory_of(MemoryUse::optimizer_state), n,
                                         options_.precision, options_.optimizer, std::move(groups),
                                         swap);
}

Tensor Stage::local_shard(const Tensor& full) const {
  const int64_t n = full.numel() / shard_group_.size();
  return full.slice(shard_group_.rank() * n, {n});
}

Tensor Stage::gradient_shard(const UnitState& u) const {
  return u.gradient_shard.defined() ? u.gradient_shard : local_shard(u.full_gradient);
}

// ---- gradients -------------------------------------------------------------------------------

void Stage::begin_backward(UnitState& u) {
  const bool apart = u.full_gradient.dtype() != options_.precision ||
                     (options_.reproducible && !reduces_every_micro_batch());
  if (apart)
    u.backward_gradient =
        Tensor::zeros(memory(), MemoryUse::gradient, {u.partition.full()}, options_.precision);
  u.bind_gradients(apart ? u.backward_gradient : u.full_gradient);
}

void Stage::end_backward(UnitState& u) {
  u.bind_gradients({});
  if (!u.backward_gradient.defined() || options_.reproducible) return;
  kernel::accumulate(u.backward_gradient, u.full_gradient);
  u.backward_gradient = {};
}

// ---- communication ---------------------------------------------------------------------------

Work Stage::all_reduce(UnitState& u, Tensor& full_gradient) {
  if (options_.reproducible && u.gradient_shard.defined())
    refuse("all_reduce: unit ", u.name(),
           " keeps a gradient shard; reproducible sums continue from it, so reduce-scatter them");
  return reduce(u, full_gradient, &Communicator::all_reduce);
}

Work Stage::reduce_scatter(UnitState& u, Tensor& full_gradient) {
  return reduce(u, full_gradient, &Communicator::reduce_scatter);
}

Work Stage::all_gather(UnitState& u, const Tensor& full_parameter) {
  return shard_group_.all_gather(full_parameter, {u.name() + " parameter", Purpose::parameter});
}

Tensor Stage::gradient_to_reduce(UnitState& u, Tensor& full_gradient) {
  const bool apart = u.backward_gradient.defined();
  const Tensor gradient = apart ? std::exchange(u.backward_gradient, {}) : full_gradient;
  const Dtype type = communication_type(options_);
  if (gradient.dtype() == type) return gradient;
  const Tensor copy = Tensor::empty(memory(), MemoryUse::communication, {gradient.numel()}, type);
  kernel::copy(gradient, copy);
  if (reduces_every_micro_batch()) full_gradient = copy;
  return copy;
}

Work Stage::reduce(UnitState& u, Tensor& full_gradient, Reduce reduction) {
  const std::string text = u.name() + " gradient";
  const CallName name{text, Purpose::gradient};
  const Tensor gradient = gradient_to_reduce(u, full_gradient);
  const bool apart = gradient.address() != full_gradient.address();
  if (!options_.reproducible) {
    Work mean = (comm_.*reduction)(gradient, Reduction::mean, name, {});
    if (!apart) return mean;
    return and_then(std::move(mean), [gradient, &u] { kernel::copy(gradient, u.full_gradient); });
  }
  // The sum begins with what earlier micro-batches left, so that all gradients are added one after
  // another. It replaces what they left: that is cleared, and the sum is added to it, here if the
  // gradient is kept in full, in after_reduce() if it is sharded.
  const bool scatters = reduction == &Communicator::reduce_scatter;
  const Tensor kept = scatters ? gradient_shard(u) : u.full_gradient,
               added = scatters ? local_shard(gradient) : gradient;
  Tensor start = kept;
  if (&kept.memory() != &memory()) {  // offloaded
    start = Tensor::empty(memory(), MemoryUse::communication, kept.shape(), kept.dtype());
    kernel::copy(kept, start);
  }
  return and_then((comm_.*reduction)(gradient, Reduction::sum, name, start),
                  [kept, start, sum = apart ? added : Tensor{}] {
                    kernel::fill(0, kept);
                    if (sum.defined()) kernel::accumulate(sum, kept);
                  });
}

void Stage::wait_for_parameters() {
  for (UnitState& u : units_) {
    u.unshard_work.wait();
    if (u.parameters == ParameterState::unsharding && !u.parameter_shard.defined())
      u.parameters = ParameterState::unsharded;
  }
}

std::unique_ptr<Stage> make_stage(std::vector<Unit>& units, Communicator& comm, Memories memories,
                                  const Options& options) {
  std::unique_ptr<Stage> stage = file_of(options.stage).make(units, comm, memories, options);
  stage->start();
  return stage;
}

}  // namespace zl
