#include "tutorials/exercises/judge/measure.h"

#include <malloc.h>

#include <cmath>
#include <optional>

#include "tensor/kernels.h"
#include "tutorials/exercises/01_rms_norm/rms_norm.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

namespace zl::exercises {
namespace {

using namespace rms_norm_checks;

// The memory, the inputs and the tape of one check. Fresh memory is filled with NaN.
class Bench {
 public:
  explicit Bench(const Case& c) : c_(c) {
    weight_.data = tensor(MemoryUse::parameter, {c.C()}, c.weight);
    weight_.grad = tensor(MemoryUse::gradient, {c.C()}, c.before);
  }

  Parameter& weight() { return weight_; }
  Tape& tape() { return tape_; }
  const MemoryLedger& ledger() const { return memory_.ledger(); }
  Tensor tensor(MemoryUse use, Shape shape, const std::vector<double>& values) {
    const Tensor t = Tensor::empty(memory_, use, std::move(shape), c_.dtype);
    if (c_.dtype == Dtype::f64)
      kernel::upload<double>(values, t);
    else
      kernel::upload_floats(std::vector<float>(values.begin(), values.end()), t);
    return t;
  }
  Tensor x() { return tensor(MemoryUse::activation, c_.shape, c_.x); }
  // x as a value of the tape that needs a gradient; backward puts it into dx().
  Var recorded(Tensor x) {
    return tape_.record(std::move(x), [this](Tensor grad) { dx_ = std::move(grad); });
  }
  Var weight_on(Tape* tape) { return Var::parameter(tape, weight_); }
  const Tensor& dx() const { return dx_; }
  Tensor dy() { return tensor(MemoryUse::activation, c_.shape, c_.dy); }

 private:
  const Case& c_;
  EventStream events_;
  Memory memory_{{}, cpu_backend(), events_, {.poison = true}};
  Parameter weight_{.name = "weight", .shape = {c_.C()}};
  Tensor dx_;
  Tape tape_;
};

// [B] of small allocations that are live: large ones, such as segments of tensors, are elsewhere.
double heap_live() { return double(mallinfo2().uordblks); }

std::vector<double> values(const Tensor& t) {
  if (!t.defined()) return {};
  if (t.dtype() == Dtype::f64) return kernel::download<double>(t);
  const std::vector<float> floats = kernel::download_floats(t);
  return {floats.begin(), floats.end()};
}

void put_value(Record& record, const Var& y) {
  record.numbers["y"] = values(y.value());
  record.numbers["y shape"].assign(y.value().shape().begin(), y.value().shape().end());
  record.numbers["y is f64"] = {double(y.value().dtype() == Dtype::f64)};
}

// Runs backward from y if it is on the tape, and puts the gradients that came out.
void put_gradients(Record& record, Bench& bench, const Var& y) {
  record.numbers["recorded"] = {double(y.needs_gradient())};
  if (!y.needs_gradient()) return;
  try {
    bench.tape().backward(y, bench.dy());
  } catch (const std::invalid_argument& e) {  // a contract of the library's was broken
    record.texts["backward"] = e.what();
  }
  record.numbers["dx"] = values(bench.dx());
  record.numbers["dweight"] = values(bench.weight().grad);
}

Record values_and_gradients(const std::string& check, const Case& c) {
  Bench bench(c);
  Record record;
  if (check == kFrozen) bench.weight().requires_grad = false;
  const Var x = check == kConstant ? Var::constant(nullptr, bench.x()) : bench.recorded(bench.x()),
            weight = bench.weight_on(&bench.tape());
  Var y = rms_norm(x, weight, c.eps);
  if (check == kTwice) y = rms_norm(y, weight, c.eps);
  put_value(record, y);
  if (check == kOneRow || check == kRows) return record;  // backward may not be written yet
  if (check == kResidual && y.needs_gradient()) {
    const Tensor sum = activation_like(y.value(), y.value().shape());
    kernel::add(x.value(), y.value(), sum);
    y = bench.tape().record(sum, [to_x = x.target(), to_y = y.target()](Tensor grad) {
      Tape::accumulate(to_x, grad);
      Tape::accumulate(to_y, std::move(grad));
    });
  }
  put_gradients(record, bench, y);
  return record;
}

// 0: accepted, 1: std::invalid_argument.
double refused(Bench& bench, const Tensor& weight, double eps) {
  const Var x = Var::constant(nullptr, bench.x());
  try {
    rms_norm(x, Var::constant(nullptr, weight), eps);
    return 0;
  } catch (const std::invalid_argument&) {
    return 1;
  }
}

Record shapes(const Case& c) {
  Bench bench(c);
  const auto weight = [&](const Shape& shape) {
    return bench.tensor(MemoryUse::activation, shape,
                        std::vector<double>(size_t(numel(shape)), 1.0));
  };
  Record record;
  record.numbers["refused"] = {refused(bench, weight({c.C(), 1}), c.eps),
                               refused(bench, weight({c.C() - 1}), c.eps)};
  return record;
}

Record no_tape(const Case& c) {
  Bench bench(c);
  Record record;
  const Tensor x = bench.x();
  const int64_t before = bench.ledger().live(MemoryUse::activation);
  const Var y = rms_norm(Var::constant(nullptr, x), bench.weight_on(nullptr), c.eps);
  put_value(record, y);
  record.numbers["kept"] = {double(bench.ledger().live(MemoryUse::activation) - before)};
  record.numbers["has a tape"] = {double(y.tape() != nullptr)};
  return record;
}

Record constants(const Case& c) {
  Bench bench(c);
  Record record;
  bench.weight().requires_grad = false;
  const Var y =
      rms_norm(Var::constant(&bench.tape(), bench.x()), bench.weight_on(&bench.tape()), c.eps);
  put_value(record, y);
  record.numbers["entries"] = {double(bench.tape().entries())};
  return record;
}

Record kept(const Case& c) {
  Bench bench(c);
  Record record;
  const Tensor x = bench.x();
  std::optional<Var> in = bench.recorded(x);
  const int64_t before = bench.ledger().live(MemoryUse::activation);
  const double heap_before = heap_live();
  Tensor value;
  {
    const Var y = rms_norm(*in, bench.weight_on(&bench.tape()), c.eps);
    record.numbers["recorded"] = {double(y.needs_gradient())};
    value = y.value();
  }
  in.reset();
  record.numbers["keeps y"] = {double(!value.unique())};
  value = {};
  record.numbers["heap"] = {heap_live() - heap_before};
  record.numbers["kept"] = {double(bench.ledger().live(MemoryUse::activation) - before)};
  record.numbers["keeps x"] = {double(!x.unique())};
  return record;
}

// As ZeRO-3 does: frees the weight after the forward pass, and allocates it again before backward.
Record resharded(const Case& c) {
  Bench bench(c);
  Record record;
  const Var y = rms_norm(bench.recorded(bench.x()), bench.weight_on(&bench.tape()), c.eps);
  bench.weight().data = {};
  record.numbers["kept of weight"] = {double(bench.ledger().live(MemoryUse::parameter))};
  const Tensor elsewhere =
      bench.tensor(MemoryUse::workspace, {c.C()}, std::vector<double>(size_t(c.C()), NAN));
  bench.weight().data = bench.tensor(MemoryUse::parameter, {c.C()}, c.weight);
  put_gradients(record, bench, y);
  return record;
}

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const Case c = make_case(check, options);
  if (check == kShapes) return shapes(c);
  if (check == kConstants) return constants(c);
  if (check == kNoTape) return no_tape(c);
  if (check == kKept) return kept(c);
  if (check == kResharded) return resharded(c);
  return values_and_gradients(check, c);
}

}  // namespace zl::exercises
