#include "autograd/ops.h"

#include <initializer_list>

#include "tensor/kernels.h"

namespace zl {
namespace {

// Records `backward` if a tape records and any input needs a gradient; otherwise the value is a
// constant.
template <class F>
Var finish(std::initializer_list<const Var*> inputs, Tensor y, F&& backward) {
  Tape* tape = nullptr;
  bool needed = false;
  for (const Var* v : inputs) {
    if (v->tape()) tape = v->tape();
    needed = needed || v->needs_gradient();
  }
  if (!tape || !needed) return Var::constant(tape, std::move(y));
  return tape->record(std::move(y), std::forward<F>(backward));
}

Shape with_last(Shape shape, int64_t last) {
  shape.back() = last;
  return shape;
}

int64_t rows(const Tensor& t) { return t.numel() / t.dim(-1); }

Tensor statistics(const Tensor& beside, Shape shape) {
  const Dtype type = beside.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  return Tensor::empty(beside.memory(), MemoryUse::activation, std::move(shape), type);
}

// Both products with a weight. `transposed`: the weight is stored as (O, I).
Var multiply(const Var& x, const Var& weight, const Var* bias, Transpose transposed) {
  const bool t = transposed == Transpose::yes;
  Tensor y = like(x.value(), with_last(x.value().shape(), weight.value().dim(t ? 0 : 1)));
  if (bias)
    kernel::matmul_bias(x.value(), weight.value(), transposed, bias->value(), y);
  else
    kernel::matmul(x.value(), Transpose::no, weight.value(), transposed, y);
  const Var b = bias ? *bias : Var();
  return finish({&x, &weight, &b}, y, [x, weight, to_bias = b.target(), t](Tensor dy) {
    if (weight.needs_gradient()) {
      GradientSlot dw = Tape::slot(weight.target(), weight.value().shape(), dy);
      if (t)
        kernel::matmul(dy, Transpose::yes, x.value(), Transpose::no, dw.tensor, dw.write);
      else
        kernel::matmul(x.value(), Transpose::yes, dy, Transpose::no, dw.tensor, dw.write);
    }
    if (to_bias) {
      GradientSlot db = Tape::slot(to_bias, {dy.dim(-1)}, dy);
      if (db.write == Write::set) kernel::fill(0, db.tensor);
      kernel::sum_rows(dy, db.tensor);
    }
    if (x.needs_gradient()) {
      GradientSlot dx = Tape::slot(x.target(), x.value().shape(), dy);
      kernel::matmul(dy, Transpose::no, weight.value(), t ? Transpose::no : Transpose::yes,
                     dx.tensor, dx.write);
    }
  });
}

// A slot that is added to. Only a parameter's buffer exists beforehand; any other starts from zero.
Tensor added_slot(const GradientTarget& target, const Shape& shape, const Tensor& beside) {
  GradientSlot slot = Tape::slot(target, shape, beside);
  if (slot.write == Write::set) kernel::fill(0, slot.tensor);
  return slot.tensor;
}

}  // namespace

Var linear(const Var& x, const Var& weight, const Var& bias) {
  return multiply(x, weight, &bias, Transpose::no);
}

Var project(const Var& x, const Var& weight) {
  return multiply(x, weight, nullptr, Transpose::yes);
}

Var reshape(const Var& x, Shape shape) {
  Tensor y = x.value().view(std::move(shape));
  return finish({&x}, y, [to_x = x.target(), before = x.value().shape()](Tensor dy) {
    Tape::accumulate(to_x, dy.view(before));
  });
}

Var add(const Var& a, const Var& b) {
  Tensor y = like(a.value(), a.value().shape());
  kernel::add(a.value(), b.value(), y);
  return finish({&a, &b}, y, [to_a = a.target(), to_b = b.target()](Tensor dy) {
    Tape::accumulate(to_a, dy);
    Tape::accumulate(to_b, std::move(dy));
  });
}

Var gelu(const Var& x) {
  Tensor y = like(x.value(), x.value().shape());
  kernel::gelu(x.value(), y);
  return finish({&x}, y, [x = x.value(), to_x = x.target()](Tensor dy) {
    if (!dy.unique()) {
      GradientSlot dx = Tape::slot(to_x, x.shape(), x);
      kernel::gelu_backward(x, dy, dx.tensor, dx.write);
      return;
    }
    kernel::gelu_backward(x, dy, dy, Write::set);  // nobody else reads dy: its buffer becomes dx
    Tape::accumulate(to_x, std::move(dy));
  });
}

Var layer_norm(const Var& x, const Var& weight, const Var& bias, double eps) {
  const int64_t R = rows(x.value());
  Tensor y = like(x.value(), x.value().shape());
  const Tensor mean = statistics(y, {R}), rstd = statistics(y, {R});
  kernel::layer_norm({x.value(), weight.value(), mean, rstd}, bias.value(), eps, y);
  return finish(
      {&x, &weight, &bias}, y, [x, weight, to_bias = bias.target(), mean, rstd](Tensor dy) {
        // The kernel makes all three gradients in one pass; those that nobody wants go to scratch.
        const Shape row = {dy.dim(-1)};
        const Tensor dweight =
            weight.needs_gradient() ? added_slot(weight.target(), row, dy) : like(dy, row);
        const Tensor dbias = to_bias ? added_slot(to_bias, row, dy) : like(dy, row);
        if (!weight.needs_gradient()) kernel::fill(0, dweight);
        if (!to_bias) kernel::fill(0, dbias);
        const GradientSlot dx = x.needs_gradient() ? Tape::slot(x.target(), x.value().shape(), dy)
                                                   : GradientSlot{like(dy, dy.shape()), Write::set};
        kernel::layer_norm_backward({x.value(), weight.value(), mean, rstd}, dy,
                                    {dx.tensor, dx.write, dweight, dbias});
      });
}

Var attention(const Var& qkv, int64_t heads) {
  const Tensor& in = qkv.value();
  require(in.shape().size() == 3 && heads > 0, "attention: qkv must be (B, T, 3C), not ",
          to_string(in.shape()));
  Tensor y = like(in, with_last(in.shape(), in.dim(2) / 3));
  const AttentionSaved saved{in, y, statistics(in, {in.dim(0), heads, in.dim(1)}), heads};
  kernel::attention(saved);
  return finish({&qkv}, y, [saved, to_qkv = qkv.target()](Tensor dy) {
    Tensor dqkv = like(saved.qkv, saved.qkv.shape());
    kernel::attention_backward(saved, dy, dqkv);
    Tape::accumulate(to_qkv, std::move(dqkv));
  });
}

Var embedding(const Tensor& ids, const Var& table) {
  Shape shape = ids.shape();
  shape.push_back(table.value().dim(1));
  Tensor y = like(table.value(), shape);
  kernel::embedding(ids, table.value(), y);
  return finish({&table}, y,
                [ids, to_table = table.target(), rows = table.value().shape()](Tensor dy) {
                  kernel::embedding_backward(ids, dy, added_slot(to_table, rows, dy));
                });
}

Var add_positions(const Var& x, const Var& table) {
  Tensor y = like(x.value(), x.value().shape());
  kernel::add_positions(x.value(), table.value(), y);
  return finish(
      {&x, &table}, y,
      [to_x = x.target(), to_table = table.target(), rows = table.value().shape()](Tensor dy) {
        if (to_table) kernel::add_positions_backward(dy, added_slot(to_table, rows, dy));
        Tape::accumulate(to_x, std::move(dy));
      });
}

Var cross_entropy(const Var& logits, const Tensor& targets) {
  Tensor loss = statistics(logits.value(), {1});
  kernel::cross_entropy(logits.value(), targets, loss);
  return finish({&logits}, loss,
                [x = logits.value(), targets, to_logits = logits.target()](Tensor dloss) mutable {
                  Tensor dx = x.unique() ? x : like(x, x.shape());
                  kernel::cross_entropy_backward(x, targets, dloss, dx);
                  x = {};
                  Tape::accumulate(to_logits, std::move(dx));
                });
}

}  // namespace zl
