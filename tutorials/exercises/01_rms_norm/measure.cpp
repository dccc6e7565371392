#include "tutorials/exercises/judge/measure.h"

#include <malloc.h>

#include <cmath>
#include <optional>

#include "autograd/ops.h"
#include "tensor/kernels.h"
#include "tutorials/exercises/01_rms_norm/rms_norm.h"
#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

namespace zl::exercises {
namespace {

Tensor tensor(Memory& memory, MemoryUse use, const Shape& shape, const std::vector<float>& values) {
  const Tensor t = Tensor::empty(memory, use, shape);
  kernel::upload_floats(values, t);
  return t;
}

// Whether a weight of this shape, which does not fit, is no error.
bool accepts(const Var& x, const Shape& shape) try {
  const Tensor wrong = Tensor::zeros(x.value().memory(), MemoryUse::parameter, shape);
  rms_norm(x, Var::constant(nullptr, wrong), 0.01);
  return true;
} catch (const std::invalid_argument&) {
  return false;
}

}  // namespace

// "kept": [B] of activations after the call; "dx", "dweight": after backward.
Record measure(const CheckOptions& options) {
  const rms_norm_checks::Case c = rms_norm_checks::make_case(options);
  Record record;
  EventStream events;
  Memory memory{{}, cpu_backend(), events, {.poison = true}};  // fresh memory is NaN
  const auto live = [&](MemoryUse use) { return double(memory.ledger().live(use)); };
  Parameter parameter{.name = "weight", .shape = {c.C()}};
  parameter.data = tensor(memory, MemoryUse::parameter, {c.C()}, c.weight);
  parameter.grad = tensor(memory, MemoryUse::gradient, {c.C()}, c.before);
  parameter.requires_grad = c.weight_needs;
  const Tensor in = tensor(memory, MemoryUse::activation, c.shape, c.x);
  Tensor dx;
  Tape tape;
  const Var weight = Var::parameter(c.tape_of_weight ? &tape : nullptr, parameter);
  std::optional<Var> x = c.x_needs ? tape.record(in, [&](Tensor grad) { dx = std::move(grad); })
                                   : Var::constant(c.tape_of_x ? &tape : nullptr, in);

  if (options.is("shapes that do not fit"))
    return record.put("accepted", accepts(*x, {c.C(), 1}) || accepts(*x, {c.C() - 1})), record;

  // mallinfo2: [B] of small allocations; large ones, such as segments of tensors, are elsewhere.
  const double before = live(MemoryUse::activation), heap = double(mallinfo2().uordblks);
  std::optional<Var> y = rms_norm(*x, weight, c.eps);
  record.put("kept", live(MemoryUse::activation) - before);
  if (c.twice) y = rms_norm(*y, weight, c.eps);
  record.put("has a tape", y->tape() != nullptr);
  record.put("recorded", y->needs_gradient());
  record.put("entries", double(tape.entries()));
  if (options.is("bytes kept for backward")) {  // where nothing else holds the input and the result
    Tensor value = y->value();
    x.reset(), y.reset();
    record.put("keeps y", !value.unique());
    value = {};
    record.put("heap", double(mallinfo2().uordblks) - heap);
    record.put("kept", live(MemoryUse::activation) - before);
    record.put("keeps x", !in.unique());
    return record;
  }
  record.put("y", kernel::download_floats(y->value()));
  record.put("y shape", y->value().shape());
  if (!c.backward || !y->needs_gradient()) return record;

  if (c.residual) y = add(*x, *y);
  Tensor elsewhere;
  if (c.resharded) {  // as ZeRO-3 does
    parameter.data = {};
    record.put("kept of weight", live(MemoryUse::parameter));
    elsewhere = Tensor::empty(memory, MemoryUse::workspace, {c.C()});
    parameter.data = tensor(memory, MemoryUse::parameter, {c.C()}, c.weight);
  }
  try {
    tape.backward(*y, tensor(memory, MemoryUse::activation, c.shape, c.dy));
  } catch (const std::invalid_argument& e) {  // a contract of the library's was broken
    record.texts["backward"] = e.what();
  }
  record.put("dx", dx.defined() ? kernel::download_floats(dx) : std::vector<float>());
  record.put("dweight", kernel::download_floats(parameter.grad));
  return record;
}

}  // namespace zl::exercises
