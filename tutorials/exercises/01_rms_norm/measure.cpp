#include "tutorials/exercises/judge/measure.h"

#include <malloc.h>

#include "autograd/ops.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/01_rms_norm/rms_norm.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

namespace zl::exercises {
namespace {

// Whether a weight of this shape, which does not fit, is no error.
bool accepts(const Var& x, const Shape& shape) try {
  const Tensor wrong = Tensor::zeros(x.value().memory(), MemoryUse::parameter, shape);
  rms_norm(x, Var::constant(nullptr, wrong), 0.01);
  return true;
} catch (const std::invalid_argument&) {
  return false;
}

}  // namespace

// "kept": [B] of activations after the call, y too; "dx", "dweight": after backward.
Record measure(const CheckOptions& options) {
  const rms_norm_checks::Case c = rms_norm_checks::make_case(options);
  const int64_t C = c.shape.back();
  Record record;
  EventStream events;
  Memory memory{{}, cpu_backend(), events, {.poison = true}};  // fresh memory is NaN
  const auto tensor = [&](MemoryUse use, const Shape& shape, const Values& values) {
    const Tensor t = Tensor::empty(memory, use, shape);
    kernel::upload_floats(std::vector<float>(values.begin(), values.end()), t);
    return t;
  };
  const auto live = [&](MemoryUse use) { return double(memory.ledger().live(use)); };
  const bool constants = options.is("no input needs a gradient"), no_tape = options.is("no tape");
  Parameter parameter{.name = "weight", .shape = {C}};
  parameter.data = tensor(MemoryUse::parameter, {C}, c.weight);
  parameter.grad = tensor(MemoryUse::gradient, {C}, c.before);
  parameter.requires_grad = !constants && !options.is("frozen weight");
  const Tensor in = tensor(MemoryUse::activation, c.shape, c.x);
  Tensor dx;
  Tape tape;
  const Var weight = Var::parameter(no_tape ? nullptr : &tape, parameter),
            x = constants ? Var::constant(&tape, in)
                : no_tape || options.is("constant x")
                    ? Var::constant(nullptr, in)
                    : tape.record(in, [&](Tensor grad) { dx = std::move(grad); });

  if (options.is("shapes that do not fit"))
    return record.put("accepted", accepts(x, {C, 1}) || accepts(x, {C - 1})), record;
  // mallinfo2: [B] of small allocations; large ones, such as segments of tensors, are elsewhere.
  const double before = live(MemoryUse::activation), heap = double(mallinfo2().uordblks);
  Var y = rms_norm(x, weight, c.eps);
  record.put("heap", double(mallinfo2().uordblks) - heap);
  record.put("kept", live(MemoryUse::activation) - before);
  record.put("entries", tape.entries());
  if (c.twice) y = rms_norm(y, weight, c.eps);
  record.put("recorded", y.needs_gradient());
  record.put("y", kernel::download_floats(y.value()));
  record.put("y shape", y.value().shape());
  if (options.is("bytes kept for backward")) {
    const Tensor value = y.value();
    y = x;
    record.put("keeps y", !value.unique());
    return record;
  }
  // Backward may not be written yet.
  if (options.check.starts_with("value of") || !y.needs_gradient()) return record;

  if (c.residual) y = add(x, y);
  Tensor elsewhere;
  if (options.is("weight resharded before backward")) {  // as ZeRO-3 does
    parameter.data = {};
    record.put("kept of weight", live(MemoryUse::parameter));
    elsewhere = Tensor::empty(memory, MemoryUse::workspace, {C});
    parameter.data = tensor(MemoryUse::parameter, {C}, c.weight);
  }
  tape.backward(y, tensor(MemoryUse::activation, c.shape, c.dy));
  record.put("dx", dx.defined() ? kernel::download_floats(dx) : std::vector<float>());
  record.put("dweight", kernel::download_floats(parameter.grad));
  return record;
}

}  // namespace zl::exercises
