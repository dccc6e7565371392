#include "stages/stage.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "nn/model.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

namespace {

Grouping grouped(const std::vector<Unit>& units, const MakeGrouping& make) {
  check_units(units);
  return make ? make(units) : group_by_unit(units);
}

}  // namespace

Stage::Stage(std::vector<Unit>& units, Communicator& comm, Memory& memory, StageOptions options)
    : comm_(comm),
      device_(memory),
      options_(std::move(options)),
      grouping_(grouped(units, options_.grouping)),
      units_(grouping_.units.size()) {
  require(!options_.reproducible || !options_.communication_dtype ||
              *options_.communication_dtype == gradient_type(),
          "reproducible sums are communicated in ", name(gradient_type()));
  if (const int X = options_.ranks_per_node; X > 0) {
    std::vector<int> node, place;
    for (int r = 0; r < comm_.size(); ++r) node.push_back(r / X), place.push_back(r % X);
    intra_ = comm_.split(node, "intra");
    inter_ = comm_.split(place, "inter");
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = grouping_.units[i];
    units_[i].unit = &unit;
    units_[i].partition = Partition(
        unit, comm_.size(), options_.reproducible ? kernel::kSquaresBlock : Partition::kAlignment,
        comm_.size() / replicas());
    units_[i].first_parameter = int64_t(parameters_.size());
    for (Parameter* p : unit.parameters) {
      require(!p->data.defined(), "parameter '", p->name,
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
  device_.events().set_phase("initialize");
  for (UnitState& u : units_) {
    announce(u, "allocate");
    for (Parameter* p : u.unit->parameters) p->usable = false;  // from now on only inside the unit
    allocate(u);
    require(u.kept_parameter().defined(), "allocate: unit ", u.name(),
            " has no full_parameter and no parameter_shard");
    require(!keeps_gradient() || u.full_gradient.defined() || u.gradient_shard.defined(),
            "allocate: unit ", u.name(), " has no full_gradient and no gradient_shard");
    require(u.optimizer != nullptr, "allocate: unit ", u.name(), " has no optimizer");
    initialize(u);
    const bool replicated = u.full_parameter.defined();
    u.parameters = replicated ? ParameterState::unsharded : ParameterState::sharded;
    if (replicated) u.bind_parameters(u.full_parameter);
  }
  device_.events().set_unit("");
}

// Initial values depend on (seed, name, element) alone, so they are the same in every stage. The
// master weights get them in fp32; the parameters are their rounding.
void Stage::initialize(UnitState& u) {
  kernel::fill(0, u.kept_parameter());  // padding
  u.visit_weights(shard_group().rank(), [&](const Partition::Piece& piece, const Tensor& values) {
    const Parameter& p = *piece.parameter;
    if (p.initial_deviation == 0)
      kernel::fill(p.initial_mean, values);
    else
      kernel::normal({options_.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation},
                     piece.first, values);
  });
}

// ---- memory ----------------------------------------------------------------------------------

Tensor Stage::new_full_tensor(const UnitState& u, MemoryUse use) {
  const int64_t n = u.partition.full();
  if (use != MemoryUse::gradient) return Tensor::empty(device_, use, {n}, options_.dtype);
  const Dtype type = reduces_every_micro_batch() ? options_.dtype : gradient_type();
  return Tensor::zeros(device_, use, {n}, type);
}

Tensor Stage::new_shard_tensor(const UnitState& u, MemoryUse use) {
  return new_shard_tensor(u, use, shard_group());
}

Tensor Stage::new_shard_tensor(const UnitState& u, MemoryUse use, const Communicator& group) {
  const bool secondary = &group != &shard_group();
  const auto in = [&](Memory* placed) -> Memory& {
    return placed && !secondary ? *placed : device_;
  };
  const int64_t n = u.partition.full() / group.size();
  if (use != MemoryUse::gradient)
    return Tensor::empty(in(options_.placement.parameter), use, {n}, options_.dtype);
  return Tensor::zeros(in(options_.placement.gradient), use, {n}, gradient_type());
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
  Memory& memory = options_.placement.optimizer ? *options_.placement.optimizer : device_;
  return make_optimizer(memory, n, options_.dtype, options_.optimizer, std::move(groups),
                        options_.placement.swap);
}

Tensor Stage::local_shard(const Tensor& full) const { return local_shard(full, shard_group()); }

Tensor Stage::local_shard(const Tensor& full, const Communicator& group) const {
  const int64_t n = full.numel() / group.size();
  return full.slice(group.rank() * n, {n});
}

Tensor Stage::gradient_shard(const UnitState& u) const {
  return u.gradient_shard.defined() ? u.gradient_shard : local_shard(u.full_gradient);
}

void Stage::clear_gradient(UnitState& u) {
  if (!keeps_gradient()) {
    u.full_gradient = u.gradient_shard = {};
    return;
  }
  kernel::fill(0, u.full_gradient.defined() ? u.full_gradient : u.gradient_shard);
}

// ---- gradients -------------------------------------------------------------------------------

void Stage::begin_backward(UnitState& u) {
  const bool apart = u.full_gradient.dtype() != options_.dtype ||
                     (options_.reproducible && !reduces_every_micro_batch());
  if (apart)
    u.backward_gradient =
        Tensor::zeros(device_, MemoryUse::gradient, {u.partition.full()}, options_.dtype);
  u.bind_gradients(apart ? u.backward_gradient : u.full_gradient);
}

void Stage::end_backward(UnitState& u) {
  u.bind_gradients({});
  if (!u.backward_gradient.defined() || options_.reproducible) return;
  kernel::accumulate(u.backward_gradient, u.full_gradient);
  u.backward_gradient = {};
}

bool Stage::reduces_now(bool last_micro_batch) const {
  return last_micro_batch || reduces_every_micro_batch() || options_.reproducible;
}

int64_t Stage::gradients_added(int64_t micro_batches) const {
  return options_.reproducible ? micro_batches * comm_.size() : micro_batches;
}

Dtype Stage::gradient_type() const {
  if (options_.reproducible) return compute_type(options_.dtype);
  return options_.gradient_dtype.value_or(options_.dtype);
}

Dtype Stage::communication_type() const {
  return options_.communication_dtype.value_or(gradient_type());
}

// ---- communication ---------------------------------------------------------------------------

Work Stage::all_reduce(UnitState& u, Tensor& full_gradient) {
  const std::string text = u.name() + " gradient";
  const CallName name{text, Purpose::gradient};
  const Tensor gradient = gradient_to_reduce(u, full_gradient);
  if (!options_.reproducible) return comm_.all_reduce(gradient, Reduction::mean, name);
  require(!u.gradient_shard.defined(), "all_reduce: unit ", u.name(),
          " keeps a gradient shard; reproducible sums continue from it, so reduce-scatter them");
  return comm_.all_reduce(gradient, Reduction::sum, name, initial_sum(u, u.full_gradient));
}

Work Stage::reduce_scatter(UnitState& u, Tensor& full_gradient) {
  const std::string text = u.name() + " gradient";
  const CallName name{text, Purpose::gradient};
  const Tensor gradient = gradient_to_reduce(u, full_gradient);
  if (!options_.reproducible) return comm_.reduce_scatter(gradient, Reduction::mean, name);
  return comm_.reduce_scatter(gradient, Reduction::sum, name, initial_sum(u, gradient_shard(u)));
}

Work Stage::all_gather(UnitState& u, const Tensor& full_parameter) {
  return all_gather(u, full_parameter, shard_group());
}

Work Stage::all_gather(UnitState& u, const Tensor& full_parameter, Communicator& group) {
  return group.all_gather(full_parameter, {u.name() + " parameter", Purpose::parameter});
}

Reduction Stage::group_reduction() const {
  const bool f16 = gradient_type() == Dtype::f16 || options_.communication_dtype == Dtype::f16;
  return f16 ? Reduction::mean : Reduction::sum;
}

Work Stage::sum_scatter(UnitState& u, Tensor& full_gradient, Communicator& group) {
  return group.reduce_scatter(gradient_to_reduce(u, full_gradient), group_reduction(),
                              {u.name() + " gradient", Purpose::gradient});
}

Work Stage::sum_shards(UnitState& u, const Tensor& gradient_shard, Communicator& group) {
  const Dtype type = options_.communication_dtype.value_or(gradient_type());
  Tensor summed = gradient_shard;
  const bool copied = gradient_shard.dtype() != type || &gradient_shard.memory() != &device_;
  if (copied) {
    summed = Tensor::empty(device_, MemoryUse::communication, gradient_shard.shape(), type);
    kernel::copy(gradient_shard, summed);
  }
  const auto work = std::make_shared<Work>(
      group.all_reduce(summed, group_reduction(), {u.name() + " gradient", Purpose::gradient}));
  return Work([work, summed, gradient_shard, copied]() mutable {
    work->wait();
    if (copied) kernel::copy(summed, gradient_shard);
    summed = {};
  });
}

Tensor Stage::gradient_to_reduce(UnitState& u, Tensor& full_gradient) {
  const bool apart = u.backward_gradient.defined();
  if (apart) u.communicated_gradient = std::exchange(u.backward_gradient, {});
  const Tensor gradient = apart ? u.communicated_gradient : full_gradient;
  const Dtype type = communication_type();
  if (gradient.dtype() == type) return gradient;
  const Tensor copy = Tensor::empty(device_, MemoryUse::communication, {gradient.numel()}, type);
  kernel::copy(gradient, copy);
  (reduces_every_micro_batch() ? full_gradient : u.communicated_gradient) = copy;
  return copy;
}

// The sum begins with what earlier micro-batches left, so all gradients are added one after
// another.
const Tensor& Stage::initial_sum(UnitState& u, const Tensor& accumulator) {
  u.initial_sum = u.accumulator = accumulator;
  if (&accumulator.memory() != &device_) {  // offloaded
    u.initial_sum =
        Tensor::empty(device_, MemoryUse::communication, accumulator.shape(), accumulator.dtype());
    kernel::copy(accumulator, u.initial_sum);
  }
  return u.initial_sum;
}

void Stage::finish_reduction(UnitState& u) {
  if (options_.reproducible) {
    finish_sum(u);
  } else if (u.communicated_gradient.defined()) {
    kernel::copy(u.communicated_gradient, u.full_gradient);
    u.communicated_gradient = {};
  }
  after_reduce(u);
}

// The sum includes the accumulated gradient. So the accumulator is cleared, and adding the sum
// replaces it: here where the gradient is kept in full, in after_reduce() where it is sharded.
void Stage::finish_sum(UnitState& u) {
  kernel::fill(0, u.accumulator);
  if (const Tensor sum = std::exchange(u.communicated_gradient, {}); sum.defined()) {
    const bool all_reduced = sum.numel() == u.accumulator.numel();
    kernel::accumulate(all_reduced ? sum : local_shard(sum), u.accumulator);
  }
  u.accumulator = u.initial_sum = {};
}

void Stage::wait_for_parameters() {
  for (UnitState& u : units_) {
    u.unshard_work.wait();
    if (u.parameters == ParameterState::unsharding && !u.parameter_shard.defined())
      u.parameters = ParameterState::unsharded;
  }
}

void Stage::announce(const UnitState& u, const char* event) {
  device_.events().set_unit(u.name());
  device_.events().append(EventKind::unit, event);
}

}  // namespace zl
