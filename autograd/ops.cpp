#include "autograd/ops.h"

#include <initializer_list>

#include "tensor/kernels.h"

namespace zl {
namespace {

using Inputs = std::initializer_list<const Var*>;

// Runs the kernels of an op's forward pass. If shapes do not fit, the message also names the
// parameters among the inputs.
template <class F>
void run_kernels(Inputs inputs, F&& kernels) {
  try {
    kernels();
  } catch (const std::invalid_argument& error) {
    std::string names;
    for (const Var* v : inputs)
      if (const Parameter* p = v->target().parameter)
        names += str(names.empty() ? "" : ", ", "'", p->name, "' ", to_string(p->shape));
    if (names.empty()) throw;
    throw std::invalid_argument(str(error.what(), "; parameters: ", names));
  }
}

// The Var of an op's value. Records `backward` and `again` if a tape records and any input needs a
// gradient; otherwise the value is a constant.
template <class F>
Var record_op(Inputs inputs, Tensor y, F&& backward, Kept again = {}) {
  Tape* tape = nullptr;
  bool needed = false;
  for (const Var* v : inputs) {
    if (v->tape()) tape = v->tape();
    needed = needed || v->needs_gradient();
  }
  if (!tape || !needed) return Var::constant(tape, std::move(y));
  return tape->record(std::move(y), std::forward<F>(backward), std::move(again));
}

Shape with_last(Shape shape, int64_t last) {
  shape.back() = last;
  return shape;
}

// An activation for statistics of the rows of `t`.
Tensor statistics(const Tensor& t, Shape shape) {
  return Tensor::empty(t.memory(), MemoryUse::activation, std::move(shape),
                       compute_type(t.dtype()));
}

// The gradient buffer of `target`, for kernels that compute all gradients; scratch without one.
GradientSlot slot_or_scratch(const GradientTarget& target, const Shape& shape,
                             const Tensor& beside) {
  if (target) return Tape::slot(target, shape, beside);
  return {activation_like(beside, shape), Write::set};
}

// The same for kernels that only add. A parameter's buffer exists and holds a sum; a new one is
// cleared.
Tensor accumulation_buffer(const GradientTarget& target, const Shape& shape, const Tensor& beside) {
  GradientSlot slot = slot_or_scratch(target, shape, beside);
  if (slot.write == Write::set) kernel::fill(0, slot.tensor);
  return slot.tensor;
}

// x times the weight, plus the bias; an empty Var is none. Transpose::yes: the weight is (O, I).
Var times_weight(const Var& x, const Var& weight, const Var& bias, Transpose transpose) {
  const bool t = transpose == Transpose::yes;
  const int64_t columns = weight.value().dim(t ? 0 : 1);
  const int64_t row = t ? x.value().backend().padded_columns(columns) : columns;
  Tensor y = activation_like(x.value(), with_last(x.value().shape(), row));
  run_kernels({&x, &weight, &bias}, [&] {
    // A kernel would also take rows of x that are padded (Backend::padded_columns).
    if (x.value().dim(-1) != weight.value().dim(t ? 1 : 0))
      refuse("matmul: ", to_string(x.value().shape()), " times ", to_string(weight.value().shape()),
             t ? " transposed" : "", ": the inner sizes must be equal");
    kernel::matmul({x.value()}, {weight.value(), transpose}, bias.value(), y);
  });
  const auto backward = [kept_x = x.keep(), to_x = x.target(), x_shape = x.value().shape(), weight,
                         to_bias = bias.target(), t](Tensor dy) {
    if (weight.needs_gradient()) {
      GradientSlot dw = Tape::slot(weight.target(), weight.value().shape(), dy);
      const Tensor x = kept_x();  // a recomputed x is freed at the end of this block
      kernel::matmul({t ? dy : x, Transpose::yes}, {t ? x : dy}, {}, dw.tensor, dw.write);
    }
    if (to_bias) kernel::sum_rows(dy, accumulation_buffer(to_bias, {dy.dim(-1)}, dy));
    if (to_x) {
      GradientSlot dx = Tape::slot(to_x, x_shape, dy);
      kernel::matmul({dy}, {weight.value(), t ? Transpose::no : Transpose::yes}, {}, dx.tensor,
                     dx.write);
    }
  };
  return record_op({&x, &weight, &bias}, y, backward);
}

}  // namespace

Var linear(const Var& x, const Var& weight, const Var& bias) {
  if (!bias.value().defined())
    refuse("linear: the bias is undefined; matmul() is linear without one");
  return times_weight(x, weight, bias, Transpose::no);
}

Var matmul(const Var& x, const Var& weight) { return times_weight(x, weight, {}, Transpose::no); }

Var project(const Var& x, const Var& weight) { return times_weight(x, weight, {}, Transpose::yes); }

Var reshape(const Var& x, Shape shape) {
  Tensor y = x.value().view(std::move(shape));
  return record_op({&x}, y, [to_x = x.target(), before = x.value().shape()](Tensor dy) {
    Tape::accumulate(to_x, dy.view(before));
  });
}

Var add(const Var& a, const Var& b) {
  Tensor y = activation_like(a.value(), a.value().shape());
  run_kernels({&a, &b}, [&] { kernel::add(a.value(), b.value(), y); });
  return record_op({&a, &b}, y, [to_a = a.target(), to_b = b.target()](Tensor dy) {
    Tape::accumulate(to_a, dy);
    Tape::accumulate(to_b, std::move(dy));
  });
}

Var gelu(const Var& x, Output output) {
  const auto compute = [x = x.value()] {
    Tensor y = activation_like(x, x.shape());
    kernel::gelu(x, y);
    return y;
  };
  const auto backward = [x = x.value(), to_x = x.target()](Tensor dy) {
    if (!dy.unique()) {
      GradientSlot dx = Tape::slot(to_x, x.shape(), x);
      kernel::gelu_backward(x, dy, dx.tensor, dx.write);
      return;
    }
    // This is the only handle to dy, so dx overwrites it: no second buffer is allocated.
    kernel::gelu_backward(x, dy, dy, Write::set);
    Tape::accumulate(to_x, std::move(dy));
  };
  return record_op({&x}, compute(), backward,
                   output == Output::recomputed ? Kept(compute) : Kept());
}

Var layer_norm(const Var& x, const Var& weight, const Var& bias, Output output, double eps) {
  const int64_t R = x.value().rows();
  const Tensor mean = statistics(x.value(), {R}), rstd = statistics(x.value(), {R});
  const auto compute = [x, weight, bias, mean, rstd, eps] {  // run again, it writes the same bits
    Tensor y = activation_like(x.value(), x.value().shape());
    run_kernels({&x, &weight, &bias}, [&] {
      kernel::layer_norm({x.value(), weight.value(), mean, rstd}, bias.value(), eps, y);
    });
    return y;
  };
  const auto backward = [x, weight, to_bias = bias.target(), mean, rstd](Tensor dy) {
    const Tensor dweight = accumulation_buffer(weight.target(), {dy.dim(-1)}, dy),
                 dbias = accumulation_buffer(to_bias, {dy.dim(-1)}, dy);
    const GradientSlot dx = slot_or_scratch(x.target(), x.value().shape(), dy);
    kernel::layer_norm_backward({x.value(), weight.value(), mean, rstd}, dy,
                                {dx.tensor, dx.write, dweight, dbias});
  };
  return record_op({&x, &weight, &bias}, compute(), backward,
                   output == Output::recomputed ? Kept(compute) : Kept());
}

Var attention(const Var& qkv, int64_t heads) {
  const Tensor& in = qkv.value();
  if (in.shape().size() != 3 || heads <= 0)
    refuse("attention: qkv must be (B, T, 3C), not ", to_string(in.shape()));
  Tensor y = activation_like(in, with_last(in.shape(), in.dim(2) / 3));
  const AttentionSaved saved{in, y, statistics(in, {in.dim(0), heads, in.dim(1)}), heads};
  kernel::attention(saved);
  return record_op({&qkv}, y, [saved, to_qkv = qkv.target()](Tensor dy) {
    Tensor dqkv = activation_like(saved.qkv, saved.qkv.shape());
    kernel::attention_backward(saved, dy, dqkv);
    Tape::accumulate(to_qkv, std::move(dqkv));
  });
}

Var embedding(const Tensor& ids, const Var& table) {
  Shape shape = ids.shape();
  shape.push_back(table.value().dim(1));
  Tensor y = activation_like(table.value(), shape);
  run_kernels({&table}, [&] { kernel::embedding(ids, table.value(), y); });
  return record_op({&table}, y,
                   [ids, to_table = table.target(), rows = table.value().shape()](Tensor dy) {
                     kernel::embedding_backward(ids, dy, accumulation_buffer(to_table, rows, dy));
                   });
}

Var add_positions(const Var& x, const Var& table) {
  Tensor y = activation_like(x.value(), x.value().shape());
  run_kernels({&x, &table}, [&] { kernel::add_positions(x.value(), table.value(), y); });
  return record_op(
      {&x, &table}, y,
      [to_x = x.target(), to_table = table.target(), rows = table.value().shape()](Tensor dy) {
        if (to_table) kernel::add_positions_backward(dy, accumulation_buffer(to_table, rows, dy));
        Tape::accumulate(to_x, std::move(dy));
      });
}

Var cross_entropy(const Var& logits, const Tensor& targets) {
  Tensor loss = statistics(logits.value(), {1});
  kernel::cross_entropy(logits.value(), targets, loss);
  return record_op(
      {&logits}, loss,
      [x = logits.value(), targets, to_logits = logits.target()](Tensor dloss) mutable {
        // If this is the only handle to the logits, their gradient overwrites them.
        Tensor dx = x.unique() ? x : activation_like(x, x.shape());
        kernel::cross_entropy_backward(x, targets, dloss, dx);
        x = {};  // frees the logits if dx is another tensor
        Tape::accumulate(to_logits, std::move(dx));
      });
}

}  // namespace zl
