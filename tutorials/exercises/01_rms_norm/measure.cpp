#include "tutorials/exercises/judge/measure.h"

#include <malloc.h>

#include <cmath>
#include <optional>

#include "tensor/kernels.h"
#include "tutorials/exercises/01_rms_norm/rms_norm.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

namespace zl::exercises {
namespace {

using rms_norm_checks::Case;

Values values_of(const Tensor& t) {
  if (!t.defined()) return {};
  if (t.dtype() == Dtype::f64) return kernel::download<double>(t);
  const std::vector<float> floats = kernel::download_floats(t);
  return {floats.begin(), floats.end()};
}

// The memory, the inputs, the tape and the record of one check. Fresh memory is filled with NaN.
class Bench {
 public:
  explicit Bench(const Case& c) : c_(c) {
    weight_.data = tensor(MemoryUse::parameter, {c.C()}, c.weight);
    weight_.grad = tensor(MemoryUse::gradient, {c.C()}, c.before);
    weight_.requires_grad = c.weight_needs;
  }

  Record record;

  // Whether weights of wrong shapes throw std::invalid_argument.
  void try_shapes() {
    for (const Shape& shape : {Shape{c_.C(), 1}, Shape{c_.C() - 1}}) {
      const Tensor wrong = tensor(MemoryUse::activation, shape, Values(size_t(numel(shape)), 1));
      bool refused = false;
      try {
        rms_norm(Var::constant(nullptr, x_), Var::constant(nullptr, wrong), c_.eps);
      } catch (const std::invalid_argument&) {
        refused = true;
      }
      record.numbers["refused"].push_back(refused);
    }
  }

  // What is left of a call whose input and result nothing else holds.
  void try_what_is_kept() {
    std::optional<Var> x = input(), y;
    const double before = live(MemoryUse::activation), heap = heap_live();
    y = rms_norm(*x, weight(), c_.eps);
    record.put("recorded", y->needs_gradient());
    Tensor value = y->value();
    x.reset(), y.reset();
    record.put("keeps y", !value.unique());
    value = {};
    record.put("heap", heap_live() - heap);
    record.put("kept", live(MemoryUse::activation) - before);
    record.put("keeps x", !x_.unique());
  }

  void run() {
    const Var x = input();
    const double before = live(MemoryUse::activation);
    Var y = rms_norm(x, weight(), c_.eps);
    record.put("kept", live(MemoryUse::activation) - before);
    if (c_.twice) y = rms_norm(y, weight(), c_.eps);
    record.put("y", values_of(y.value()));
    record.put("y shape", y.value().shape());
    record.put("y is f64", y.value().dtype() == Dtype::f64);
    record.put("has a tape", y.tape() != nullptr);
    record.put("entries", double(tape_.entries()));
    record.put("recorded", y.needs_gradient());
    if (c_.backward && y.needs_gradient()) backward(x, y);
  }

 private:
  double live(MemoryUse use) const { return double(memory_.ledger().live(use)); }
  // [B] of small allocations; large ones, such as segments of tensors, are elsewhere.
  static double heap_live() { return double(mallinfo2().uordblks); }

  Tensor tensor(MemoryUse use, Shape shape, const Values& values) {
    const Tensor t = Tensor::empty(memory_, use, std::move(shape), c_.dtype);
    if (c_.dtype == Dtype::f64)
      kernel::upload<double>(values, t);
    else
      kernel::upload_floats(std::vector<float>(values.begin(), values.end()), t);
    return t;
  }
  Var input() {
    if (!c_.x_needs) return Var::constant(c_.tape_of_x ? &tape_ : nullptr, x_);
    return tape_.record(x_, [this](Tensor grad) { dx_ = std::move(grad); });
  }
  Var weight() { return Var::parameter(c_.tape_of_weight ? &tape_ : nullptr, weight_); }

  void backward(const Var& x, Var y) {
    if (c_.residual) {
      const Tensor sum = activation_like(y.value(), y.value().shape());
      kernel::add(x.value(), y.value(), sum);
      y = tape_.record(sum, [to_x = x.target(), to_y = y.target()](Tensor grad) {
        Tape::accumulate(to_x, grad);
        Tape::accumulate(to_y, std::move(grad));
      });
    }
    Tensor elsewhere;
    if (c_.resharded) {  // as ZeRO-3 does
      weight_.data = {};
      record.put("kept of weight", live(MemoryUse::parameter));
      elsewhere = tensor(MemoryUse::workspace, {c_.C()}, Values(size_t(c_.C()), NAN));
      weight_.data = tensor(MemoryUse::parameter, {c_.C()}, c_.weight);
    }
    try {
      tape_.backward(y, tensor(MemoryUse::activation, c_.shape, c_.dy));
    } catch (const std::invalid_argument& e) {  // a contract of the library's was broken
      record.texts["backward"] = e.what();
    }
    record.put("dx", values_of(dx_));
    record.put("dweight", values_of(weight_.grad));
  }

  const Case& c_;
  EventStream events_;
  Memory memory_{{}, cpu_backend(), events_, {.poison = true}};
  Parameter weight_{.name = "weight", .shape = {c_.C()}};
  Tensor x_ = tensor(MemoryUse::activation, c_.shape, c_.x), dx_;
  Tape tape_;
};

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const Case c = rms_norm_checks::make_case(check, options);
  Bench bench(c);
  if (check == "shapes that do not fit")
    bench.try_shapes();
  else if (check == "bytes kept for backward")
    bench.try_what_is_kept();
  else
    bench.run();
  return bench.record;
}

}  // namespace zl::exercises
