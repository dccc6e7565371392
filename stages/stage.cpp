#include "stages/stage.h"

#include <algorithm>
#include <unordered_set>

#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

const char* name(StageKind kind) {
  static constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3"};
  return names[size_t(kind)];
}

Stage::Stage(std::vector<Unit>& units, Communicator& comm, Memory& memory, StageOptions options)
    : comm_(comm), device_(memory), options_(std::move(options)), units_(units.size()) {
  require(!units.empty(), "a stage needs at least one unit");
  std::unordered_set<const Parameter*> seen;
  for (size_t i = 0; i < units.size(); ++i) {
    Unit& unit = units[i];
    require(unit.index == int(i), "unit ", unit.name, " is number ", i,
            " of the model's list, but its index is ", unit.index);
    units_[i].unit = &unit;
    units_[i].partition = Partition(unit, comm_.size());
    units_[i].first_parameter = int64_t(parameters_.size());
    for (Parameter* p : unit.parameters) {
      require(seen.insert(p).second, "parameter '", p->name, "' is in more than one unit");
      require(!p->data.defined(), "parameter '", p->name,
              "' already has memory: only one stage at a time may hold a model");
      parameters_.push_back(p);
    }
  }
}

Stage::~Stage() {
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
    require(u.full_gradient.defined() || u.gradient_shard.defined(), "allocate: unit ", u.name(),
            " has no full_gradient and no gradient_shard");
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
  u.visit_weights(comm_.rank(), [&](const Partition::Piece& piece, const Tensor& values) {
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
  const auto in = [&](Memory* placed) -> Memory& { return placed ? *placed : device_; };
  const int64_t n = u.partition.shard();
  if (use != MemoryUse::gradient)
    return Tensor::empty(in(options_.placement.parameter), use, {n}, options_.dtype);
  return Tensor::zeros(in(options_.placement.gradient), use, {n}, gradient_type());
}

std::unique_ptr<FlatOptimizer> Stage::new_full_optimizer(const UnitState& u) {
  return new_optimizer(u, 0, u.partition.full());
}

std::unique_ptr<FlatOptimizer> Stage::new_shard_optimizer(const UnitState& u) {
  return new_optimizer(u, comm_.rank() * u.partition.shard(), u.partition.shard());
}

// One group per parameter in the range. Padding belongs to the group behind it; it stays zero.
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
  Memory& memory = options_.placement.optimizer ? *options_.placement.optimizer : device_;
  return make_optimizer(memory, n, options_.dtype, options_.optimizer, std::move(groups));
}

Tensor Stage::local_shard(const Tensor& full) const {
  const int64_t n = full.numel() / comm_.size();
  return full.slice(comm_.rank() * n, {n});
}

Tensor Stage::gradient_shard(const UnitState& u) const {
  return u.gradient_shard.defined() ? u.gradient_shard : local_shard(u.full_gradient);
}

void Stage::clear_gradient(UnitState& u) {
  kernel::fill(0, u.full_gradient.defined() ? u.full_gradient : u.gradient_shard);
}

// ---- communication ---------------------------------------------------------------------------

Work Stage::all_reduce(UnitState& u, Tensor& full_gradient) {
  return comm_.all_reduce(in_communication_type(u, full_gradient), Reduction::mean,
                          {u.name() + " gradient", Purpose::gradient});
}

Work Stage::reduce_scatter(UnitState& u, Tensor& full_gradient) {
  return comm_.reduce_scatter(in_communication_type(u, full_gradient), Reduction::mean,
                              {u.name() + " gradient", Purpose::gradient});
}

Work Stage::all_gather(UnitState& u, const Tensor& full_parameter) {
  return comm_.all_gather(full_parameter, {u.name() + " parameter", Purpose::parameter});
}

Tensor Stage::in_communication_type(UnitState& u, Tensor& full_gradient) {
  const Dtype type = options_.communication_dtype.value_or(gradient_type());
  if (full_gradient.dtype() == type) return full_gradient;
  const Tensor copy =
      Tensor::empty(device_, MemoryUse::communication, {full_gradient.numel()}, type);
  kernel::copy(full_gradient, copy);
  (reduces_every_micro_batch() ? full_gradient : u.communicated_gradient) = copy;
  return copy;
}

void Stage::finish_reduction(UnitState& u) {
  if (u.communicated_gradient.defined()) {
    kernel::copy(u.communicated_gradient, u.full_gradient);
    u.communicated_gradient = {};
  }
  after_reduce(u);
}

void Stage::announce(const UnitState& u, const char* event) {
  device_.events().set_unit(u.name());
  device_.events().append(EventKind::unit, event);
}

std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm,
                                  Memory& memory, const StageOptions& options) {
  require(kind != StageKind::ddp || !options.placement.optimizer,
          "ddp keeps its optimizer state on the device");
  constexpr MakeStage* make[] = {make_ddp, make_zero1, make_zero2, make_zero3};
  std::unique_ptr<Stage> stage = make[size_t(kind)](units, comm, memory, options);
  stage->start();
  return stage;
}

}  // namespace zl
