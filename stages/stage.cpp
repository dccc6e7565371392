#include "stages/stage.h"

#include <algorithm>
#include <cmath>

#include "optim/clip.h"
#include "tensor/kernels.h"

namespace zl {

const char* name(StageKind kind) {
  static constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3"};
  return names[size_t(kind)];
}

Stage::Stage(std::vector<Unit>& units, Communicator& comm, Memory& memory, StageOptions options)
    : units_(units),
      comm_(comm),
      device_(memory),
      options_(std::move(options)),
      memory_(units.size()) {
  require(!units_.empty(), "a stage needs at least one unit");
  for (size_t i = 0; i < units_.size(); ++i) {
    const Unit& u = units_[i];
    require(u.index == int(i), "unit ", u.name, " stands at place ", i, ", but its index is ",
            u.index);
    memory_[i].first_parameter = int64_t(parameters_.size());
    for (Parameter* p : u.parameters) {
      require(std::ranges::find(parameters_, p) == parameters_.end(), "parameter '", p->name,
              "' stands in more than one unit");
      require(!p->data.defined(), "parameter '", p->name,
              "' has memory already: one stage at a time may hold a model");
      parameters_.push_back(p);
    }
  }
}

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

// ---- the schedule
// -------------------------------------------------------------------------------------------------

void Stage::announce(Unit& u, const char* event) {
  device_.events().set_unit(u.name);
  device_.events().append(EventKind::unit, event);
}

void Stage::ensure_gathered(Unit& u) {
  const bool released =
      !u.parameters.empty() && !u.parameters[0]->data.defined();  // in stage 3 only
  if (released) gather(u).wait();
}

void Stage::enter(Unit& u) { ++memory(u).passes; }

void Stage::before_forward(Unit& u) {
  announce(u, "before_forward");
  ensure_gathered(u);
}

void Stage::after_forward(Unit& u) {
  announce(u, "after_forward");
  // Root is needed again at once: its head is the first that backward walks. A unit that runs
  // inside itself stays.
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
  UnitMemory& m = memory(u);
  if (--m.passes > 0 || m.layout.full() == 0) return;
  check_gradient(u);
  if (m.micro_batch.defined()) {
    kernel::accumulate(m.micro_batch, m.gradient);
    point_grad(u, {});
    m.micro_batch = {};
  }
  finished_.units.push_back(&u);
  finished_.elements += m.layout.full();
  if (finished_.elements >= options_.reduce_bucket_size) flush_reduce();
}

void Stage::after_backward(Unit& u) {
  announce(u, "after_backward");
  if (--memory(u).walking == 0) release(u);
  device_.events().set_unit(u.index == 0 ? "" : units_[0].name);
}

Work Stage::later(Unit& u) {
  memory(u).waits = true;
  return {};
}

// Units that had gradients in an earlier micro-batch of the step, and none in the last.
void Stage::flush_waiting() {
  for (size_t i = units_.size(); i-- > 0;)
    if (memory_[i].waits) finished_.units.push_back(&units_[i]);
  if (!finished_.units.empty()) flush_reduce();
}

// One group of communications. There is no overlap yet: it would wait at the next flush.
void Stage::flush_reduce() {
  const Bucket bucket = std::exchange(finished_, {});
  std::vector<Work> works;
  comm_.begin_group();
  for (Unit* u : bucket.units) {
    announce(*u, "reduce");
    memory(*u).waits = false;
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
  squares_ =
      Tensor::zeros(device_, MemoryUse::workspace, {int64_t(parameters_.size())}, Dtype::f64);
  Tensor seed = like(loss.value(), {1});
  kernel::fill(scale, seed);
  tape.backward(loss, std::move(seed));
  if (!finished_.units.empty()) flush_reduce();
  if (last) flush_waiting();
  device_.events().set_unit("");
  note_culprit();
}

StepResult Stage::step(const StepInput& input) {
  device_.events().set_phase("step");
  StepResult result;
  const double divisor = input.micro_batches * input.scale;
  result.grad_norm = std::sqrt(squared_norm()) / divisor;
  if (std::isnan(result.grad_norm))
    result.grad_norm = std::nan("");  // one of the many, so that stages can be compared
  const bool finite = std::isfinite(result.grad_norm);
  if (!finite) result.culprit = find_culprit();
  result.skipped = !finite && options_.skip_nonfinite;
  culprit_ = -1;
  const float gradient_scale = float(clip_factor(result.grad_norm, input.max_norm) / divisor);
  for (Unit& u : units_) {
    announce(u, "update");
    if (result.skipped) {
      memory(u).optimizer->skip(device_, reduced_gradient(u));
    } else {
      update(u, input.lr, gradient_scale);
      if (memory(u).layout.full() > 0) updated_.units.push_back(&u);
      updated_.elements += memory(u).layout.full();
      if (updated_.elements >= options_.allgather_bucket_size) flush_share();
    }
    kernel::fill(0, memory(u).gradient);
  }
  if (!updated_.units.empty()) flush_share();
  device_.events().set_unit("");
  return result;
}

// ---- gradients that are not finite
// ------------------------------------------------------------------------------------

// Before any reduction, since a sum over ranks does not tell who was to blame.
void Stage::check_gradient(const Unit& u) {
  for (size_t i = 0; i < u.parameters.size(); ++i)
    kernel::sum_of_squares(u.parameters[i]->grad,
                           squares_.slice(memory(u).first_parameter + int64_t(i), {1}));
}

void Stage::note_culprit() {
  const Tensor squares = std::exchange(squares_, {});
  const Tensor total = Tensor::empty(device_, MemoryUse::workspace, {1}, Dtype::f64);
  kernel::sum_of_squares(
      squares, total);  // one number to wait for; squares of fp32 are far from the end of fp64
  if (std::isfinite(kernel::read(total, 0)) || culprit_ >= 0) return;
  const std::vector<double> all = kernel::download<double>(squares);
  const auto first =
      std::ranges::find_if(all, [](double square) { return !std::isfinite(square); });
  if (first != all.end())
    culprit_ =
        first - all.begin();  // none: fp64 gradients whose squares are too large only together
}

// What a rank tells the others in one number. k > 0: its own gradient of parameter k - 1 is not
// finite; k < 0: that of parameter -k - 1 in its shard of the sums; 0: neither.
double Stage::culprit_code() {
  if (culprit_ >= 0) return double(culprit_ + 1);
  for (Unit& u : units_) {
    const Tensor shard = reduced_gradient(u);
    for (const Partition::Piece& piece :
         memory(u).layout.pieces(comm_.rank() * memory(u).layout.shard(), shard.numel())) {
      const Tensor square = Tensor::empty(shard.memory(), MemoryUse::workspace, {1}, Dtype::f64);
      kernel::sum_of_squares(shard.slice(piece.at, {piece.count}), square);
      if (!std::isfinite(kernel::read(square, 0)))
        return -double(std::find(parameters_.begin(), parameters_.end(), piece.parameter) -
                       parameters_.begin() + 1);
    }
  }
  return 0;
}

std::optional<Culprit> Stage::find_culprit() {
  const std::vector<double> codes =
      gather_from_ranks(culprit_code(), {"gradient that is not finite", Purpose::check});
  for (const double sign : {1.0, -1.0})
    for (size_t rank = 0; rank < codes.size(); ++rank)
      if (const double k = sign * codes[rank]; k > 0)
        return Culprit{int(rank), parameters_[size_t(k) - 1]->name, sign < 0};
  return std::nullopt;
}

// ---- numbers that every rank agrees on
// ------------------------------------------------------------------------------

double Stage::squared_norm() {
  double mine = 0;
  for (Unit& u : units_) {
    const Tensor gradient = reduced_gradient(u);
    const Tensor square = Tensor::empty(gradient.memory(), MemoryUse::workspace, {1}, Dtype::f64);
    kernel::sum_of_squares(gradient, square);
    mine += kernel::read(square, u.index == 0
                                     ? 1.0 / comm_.size()
                                     : 0.0);  // a dry run's is finite, so that the step is made
  }
  return sum_over_ranks(mine, {"gradient norm", Purpose::norm});
}

double Stage::mean_over_ranks(double mine) {
  return sum_over_ranks(mine, {"loss", Purpose::loss}) / comm_.size();
}

std::vector<double> Stage::gather_from_ranks(double mine, CallName name) {
  const Tensor all = Tensor::empty(device_, MemoryUse::communication, {comm_.size()}, Dtype::f64);
  kernel::upload<double>({&mine, 1}, own(all));
  comm_.all_gather(all, name).wait();
  if (!device_.backend().holds_data()) return std::vector<double>(size_t(comm_.size()), mine);
  return kernel::download<double>(all);
}

double Stage::sum_over_ranks(double mine, CallName name) {
  double sum = 0;
  for (const double part : gather_from_ranks(mine, name)) sum += part;
  return sum;
}

std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm,
                                  Memory& memory, const StageOptions& options) {
  require(kind != StageKind::ddp || options.host == nullptr,
          "ddp keeps its optimizer on the device");
  constexpr decltype(&make_ddp) make[] = {make_ddp, make_zero1, make_zero2, make_zero3};
  std::unique_ptr<Stage> stage = make[size_t(kind)](units, comm, memory, options);
  stage->start();
  return stage;
}

}  // namespace zl
