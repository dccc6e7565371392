// The memory that stages are made of, and what fills it: the tools with which a stage file places a
// unit.
#include "stages/stage.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

Tensor Stage::own(const Tensor& whole) const {
  const int64_t n = whole.numel() / comm_.size();
  return whole.slice(comm_.rank() * n, {n});
}

int64_t Stage::first_element(const Unit& u, int64_t n) const {
  const Partition& layout = memory_[size_t(u.index)].layout;
  require(n == layout.full() || n == layout.shard(), "unit ", u.name, ": ", n,
          " elements are neither its whole (", layout.full(), ") nor its shard (", layout.shard(),
          ")");
  return n == layout.full() ? 0 : comm_.rank() * layout.shard();
}

void Stage::point(Unit& u, Tensor Parameter::*member, const Tensor& flat) {
  for (size_t i = 0; i < u.parameters.size(); ++i) {
    Parameter& p = *u.parameters[i];
    p.*member = flat.defined() ? flat.slice(memory(u).layout.offset(i), p.shape) : Tensor{};
  }
}

std::unique_ptr<FlatOptimizer> Stage::make_optimizer(Unit& u, int64_t n) {
  // One group per parameter that lies in our range; padding before it belongs to it, since padding
  // stays zero either way.
  std::vector<ParameterGroup> groups;
  for (const Partition::Piece& piece : memory(u).layout.pieces(first_element(u, n), n)) {
    bool exempt = false;
    for (const std::string& glob : options_.optimizer.no_weight_decay)
      exempt = exempt || matches_glob(glob, piece.parameter->name);
    groups.push_back({.begin = groups.empty() ? 0 : groups.back().end,
                      .end = piece.at + piece.count,
                      .weight_decay = exempt ? 0 : options_.optimizer.weight_decay,
                      .frozen = !piece.parameter->requires_grad});
  }
  if (!groups.empty()) groups.back().end = n;
  Memory& memory = options_.host ? *options_.host : device_;
  return zl::make_optimizer(memory, n, options_.dtype, options_.optimizer, std::move(groups));
}

Tensor Stage::make_gradient(int64_t n) {
  return Tensor::zeros(device_, MemoryUse::gradient, {n}, gradient_type());
}

Tensor Stage::make_gradient_shard(int64_t n) {
  return Tensor::zeros(options_.host ? *options_.host : device_, MemoryUse::gradient, {n},
                       gradient_type());
}

// Backward's kernels add in the parameters' type only. A whole gradient of another type takes each
// micro-batch at once.
void Stage::prepare_gradient(Unit& u) {
  UnitMemory& m = memory(u);
  if (m.gradient.dtype() == options_.dtype || m.micro_batch.defined()) return;
  m.micro_batch = make(MemoryUse::gradient, m.layout.full());
  point_grad(u, m.micro_batch);
}

Tensor Stage::outgoing(Unit& u) {
  UnitMemory& m = memory(u);
  const Tensor source = m.unreduced.defined() ? m.unreduced : m.gradient;
  const Dtype type = options_.communication_dtype.value_or(gradient_type());
  if (source.dtype() == type) return source;
  if (m.unreduced.defined()) point_grad(u, {});  // complete: only the copy is needed
  m.unreduced = Tensor::empty(device_, MemoryUse::communication, {source.numel()}, type);
  kernel::copy(source, m.unreduced);
  return m.unreduced;
}

void Stage::reduced(Unit& u) {
  UnitMemory& m = memory(u);
  if (!m.unreduced.defined()) return;  // the gradient itself travelled
  kernel::copy(m.unreduced, m.gradient);
  m.unreduced = {};
}

// The master copy gets the values in its own precision: the parameters are then its rounding.
void Stage::set_values(Unit& u, const SetPiece& set) {
  UnitMemory& m = memory(u);
  for (const Tensor& flat : {m.parameter, m.optimizer->master()}) {
    if (!flat.defined()) continue;
    for (const Partition::Piece& piece :
         m.layout.pieces(first_element(u, flat.numel()), flat.numel()))
      set(piece, flat.slice(piece.at, {piece.count}));
  }
}

void Stage::initialize(Unit& u) {
  set_values(u, [&](const Partition::Piece& piece, const Tensor& part) {
    const Parameter& p = *piece.parameter;
    if (p.initial_deviation == 0)
      kernel::fill(p.initial_mean, part);
    else
      kernel::normal({options_.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation},
                     piece.first, part);
  });
}

void Stage::load(const std::function<std::vector<float>(const Parameter&)>& values) {
  for (Unit& u : units_)
    set_values(u, [&](const Partition::Piece& piece, const Tensor& part) {
      const std::vector<float> whole = values(*piece.parameter);
      require(int64_t(whole.size()) == piece.parameter->numel(), "parameter '",
              piece.parameter->name, "' has ", piece.parameter->numel(), " elements, but ",
              whole.size(), " were given");
      kernel::upload_floats(std::span(whole).subspan(size_t(piece.first), size_t(piece.count)),
                            part);
    });
}

void Stage::visit_weights(const Visit& visit) {
  for (Unit& u : units_) {
    const Partition& layout = memory(u).layout;
    const Tensor& master = memory(u).optimizer->master();
    Tensor whole = master;
    if (!master.defined()) {
      ensure_gathered(u);
    } else if (master.numel() != layout.full()) {
      whole = Tensor::empty(device_, MemoryUse::communication, {layout.full()}, master.dtype());
      kernel::copy(master, own(whole));
      comm_.all_gather(whole, {u.name + " master weights", Purpose::parameter}).wait();
    }
    for (size_t i = 0; i < u.parameters.size(); ++i) {
      const Parameter& p = *u.parameters[i];
      visit(p, master.defined() ? whole.slice(layout.offset(i), p.shape) : p.data);
    }
    if (!master.defined()) release(u);
  }
}

void Stage::visit_parameters(const Visit& visit) {
  for (Unit& u : units_) {
    ensure_gathered(u);
    for (const Parameter* p : u.parameters) visit(*p, p->data);
    release(u);
  }
}

}  // namespace zl
