#include "stages/stage.h"

#include <cmath>

#include "optim/clip.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

const char* name(StageKind kind) {
  static constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3"};
  return names[size_t(kind)];
}

Stage::Stage(std::vector<Unit>& units, Communicator& comm, Memory& memory, StageOptions options)
    : units_(units), comm_(comm), device_(memory), options_(std::move(options)), memory_(units.size()) {}

Stage::~Stage() {
  for (Unit& u : units_) {  // the parameters outlive the memory that they point into
    point_data(u, {});
    point_grad(u, {});
  }
}

void Stage::start() {
  device_.events().set_phase("initialize");
  for (Unit& u : units_) {
    announce(u, "place");
    for (Parameter* p : u.parameters) p->open = false;  // from now on only while the unit runs
    memory(u).layout = Partition(u, comm_.size());
    place(u);
  }
  device_.events().set_unit("");
}

// ---- the schedule -------------------------------------------------------------------------------------------------

void Stage::announce(Unit& u, const char* event) {
  device_.events().set_unit(u.name);
  device_.events().append(EventKind::unit, event);
}

void Stage::ensure_gathered(Unit& u) {
  const bool released = !u.parameters.empty() && !u.parameters[0]->data.defined();  // in stage 3 only
  if (released) gather(u).wait();
}

void Stage::enter(Unit& u) { ++memory(u).passes; }

void Stage::before_forward(Unit& u) {
  announce(u, "before_forward");
  ensure_gathered(u);
}

void Stage::after_forward(Unit& u) {
  announce(u, "after_forward");
  // Root is needed again at once: its head is the first that backward walks. A unit that runs inside itself stays.
  const bool stays = (u.index == 0 && memory(u).passes > 0) || u.running > 0;
  if (!stays) release(u);
  device_.events().set_unit(u.index == 0 ? "" : units_[0].name);
}

void Stage::before_backward(Unit& u) {
  announce(u, "before_backward");
  ensure_gathered(u);
  ++memory(u).walking;
  prepare_gradient(u);
}

void Stage::leave(Unit& u) {
  if (--memory(u).passes > 0) return;
  finished_.units.push_back(&u);
  finished_.elements += memory(u).layout.whole();
  if (finished_.elements >= options_.reduce_bucket_size) flush_reduce();
}

void Stage::after_backward(Unit& u) {
  announce(u, "after_backward");
  if (--memory(u).walking == 0) release(u);
  device_.events().set_unit(u.index == 0 ? "" : units_[0].name);
}

// One group of communications. There is no overlap yet: it would wait at the next flush.
void Stage::flush_reduce() {
  const Bucket bucket = std::exchange(finished_, {});
  std::vector<Work> works;
  comm_.begin_group();
  for (Unit* u : bucket.units) {
    announce(*u, "reduce");
    works.push_back(reduce(*u));
  }
  comm_.end_group();
  for (size_t i = 0; i < works.size(); ++i) {
    works[i].wait();
    reduced(*bucket.units[i]);
  }
}

void Stage::flush_share() {
  const Bucket bucket = std::exchange(updated_, {});
  std::vector<Work> works;
  comm_.begin_group();
  for (Unit* u : bucket.units) works.push_back(share(*u));
  comm_.end_group();
  for (Work& work : works) work.wait();
}

void Stage::backward(Tape& tape, const Var& loss, double scale, bool last) {
  last_micro_batch_ = last;
  device_.events().set_phase("backward");
  Tensor seed = like(loss.value(), {1});
  kernel::fill(scale, seed);
  tape.backward(loss, std::move(seed));
  if (!finished_.units.empty()) flush_reduce();
  device_.events().set_unit("");
}

StepResult Stage::step(const StepInput& input) {
  device_.events().set_phase("step");
  StepResult result;
  const double divisor = input.micro_batches * input.scale;
  result.grad_norm = std::sqrt(squared_norm()) / divisor;
  result.skipped = !std::isfinite(result.grad_norm);
  const float gradient_scale = float(clip_factor(result.grad_norm, input.max_norm) / divisor);
  for (Unit& u : units_) {
    announce(u, "update");
    if (!result.skipped) {
      update(u, input.lr, gradient_scale);
      updated_.units.push_back(&u);
      updated_.elements += memory(u).layout.whole();
      if (updated_.elements >= options_.allgather_bucket_size) flush_share();
    }
    kernel::fill(0, memory(u).gradient);
  }
  if (!updated_.units.empty()) flush_share();
  device_.events().set_unit("");
  return result;
}

// ---- numbers that every rank agrees on ------------------------------------------------------------------------------

double Stage::squared_norm() {
  double mine = 0;
  for (Unit& u : units_) {
    const Tensor square = Tensor::empty(device_, MemoryUse::workspace, {1}, Dtype::f64);
    kernel::sum_of_squares(reduced_gradient(u), square);
    mine += kernel::read(square, u.index == 0 ? 1.0 / comm_.size() : 0.0);  // a dry run's norm is 1
  }
  return sum_over_ranks(mine, {"gradient norm", Purpose::norm});
}

double Stage::mean_over_ranks(double mine) { return sum_over_ranks(mine, {"loss", Purpose::loss}) / comm_.size(); }

double Stage::sum_over_ranks(double mine, CallName name) {
  const Tensor all = Tensor::empty(device_, MemoryUse::communication, {comm_.size()}, Dtype::f64);
  kernel::upload<double>({&mine, 1}, own(all));
  comm_.all_gather(all, name).wait();
  if (!device_.backend().holds_data()) return mine * comm_.size();
  double sum = 0;
  for (const double part : kernel::download<double>(all)) sum += part;
  return sum;
}

// ---- memory -----------------------------------------------------------------------------------------------------

Tensor Stage::own(const Tensor& whole) const {
  const int64_t n = whole.numel() / comm_.size();
  return whole.slice(comm_.rank() * n, {n});
}

int64_t Stage::first_element(const Unit& u, int64_t n) const {
  const Partition& layout = memory_[size_t(u.index)].layout;
  require(n == layout.whole() || n == layout.shard(), "unit ", u.name, ": ", n, " elements are neither its whole (", layout.whole(),
          ") nor its shard (", layout.shard(), ")");
  return n == layout.whole() ? 0 : comm_.rank() * layout.shard();
}

void Stage::point(Unit& u, Tensor Parameter::*member, const Tensor& flat) {
  for (size_t i = 0; i < u.parameters.size(); ++i) {
    Parameter& p = *u.parameters[i];
    p.*member = flat.defined() ? flat.slice(memory(u).layout.offset(i), p.shape) : Tensor{};
  }
}

std::unique_ptr<FlatOptimizer> Stage::make_optimizer(Unit& u, int64_t n) {
  // One range per parameter that lies in ours; padding before it belongs to it, since padding stays zero either way.
  std::vector<DecayRange> decay;
  for (const Partition::Piece& piece : memory(u).layout.pieces(first_element(u, n), n)) {
    bool exempt = false;
    for (const std::string& glob : options_.optimizer.no_weight_decay) exempt = exempt || matches_glob(glob, piece.parameter->name);
    decay.push_back({decay.empty() ? 0 : decay.back().end, piece.at + piece.count, exempt ? 0 : options_.optimizer.weight_decay});
  }
  if (!decay.empty()) decay.back().end = n;
  return zl::make_optimizer(device_, n, options_.dtype, options_.optimizer, std::move(decay));
}

void Stage::initialize(Unit& u) {
  UnitMemory& m = memory(u);
  const int64_t n = m.parameter.numel();
  for (const Partition::Piece& piece : m.layout.pieces(first_element(u, n), n)) {
    const Parameter& p = *piece.parameter;
    const Tensor part = m.parameter.slice(piece.at, {piece.count});
    if (p.initial_deviation == 0) kernel::fill(p.initial_mean, part);
    else kernel::normal({options_.seed, fnv1a(p.name), p.initial_mean, p.initial_deviation}, piece.first, part);
  }
  m.optimizer->take_master(m.optimizer->numel() == n ? m.parameter : own(m.parameter));
}

void Stage::load(const std::function<std::vector<float>(const Parameter&)>& values) {
  for (Unit& u : units_) {
    UnitMemory& m = memory(u);
    const int64_t n = m.parameter.numel();
    for (const Partition::Piece& piece : m.layout.pieces(first_element(u, n), n)) {
      const std::vector<float> whole = values(*piece.parameter);
      require(int64_t(whole.size()) == piece.parameter->numel(), "parameter '", piece.parameter->name, "' has ",
              piece.parameter->numel(), " elements, but ", whole.size(), " were given");
      kernel::upload_floats(std::span(whole).subspan(size_t(piece.first), size_t(piece.count)), m.parameter.slice(piece.at, {piece.count}));
    }
    m.optimizer->take_master(m.optimizer->numel() == n ? m.parameter : own(m.parameter));
  }
}

void Stage::visit_parameters(const std::function<void(const Parameter&, const Tensor& data)>& visit) {
  for (Unit& u : units_) {
    ensure_gathered(u);
    for (const Parameter* p : u.parameters) visit(*p, p->data);
    release(u);
  }
}

std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm, Memory& memory,
                                  const StageOptions& options) {
  constexpr decltype(&make_ddp) make[] = {make_ddp, make_zero1, make_zero2, make_zero3};
  std::unique_ptr<Stage> stage = make[size_t(kind)](units, comm, memory, options);
  stage->start();
  return stage;
}

}  // namespace zl
