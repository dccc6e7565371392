// Numbers that record their arithmetic on a Tape, one entry per operation: for lesson 02.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "tensor/kernels.h"
#include "tutorials/lesson/lesson.h"

namespace zl::lesson {

// One expression. Its values are doubles in tensors of one element. Prints each entry when the
// backward pass reaches it.
struct Expression {
  Lesson& lesson;
  Memory& memory;
  Tape tape{};
  int uses = 0, contributions = 0;  // of parameters in the forward pass, to their gradients
  Tensor scalar(double x) const {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, {1}, Dtype::f64);
    kernel::fill(x, t);
    return t;
  }
};

struct Number {
  Number(double constant) : value(constant), name(str(constant)) {}
  Number(Expression& e, Var v, double value, std::string name)
      : on(&e), var(std::move(v)), value(value), name(std::move(name)) {}
  Expression* on = nullptr;
  Var var;
  double value;
  std::string name;
};

inline std::string decimal(double x) { return cli::format(" %10.4f", x); }

// An operation is a value and its derivative by each input: backward needs no more.
inline Number op(const std::string& what, double value,
                 const std::vector<std::pair<Number, double>>& inputs) {
  Expression& on = *(inputs[0].first.on ? inputs[0] : inputs[1]).first.on;
  for (const auto& input : inputs) on.uses += input.first.var.target().parameter != nullptr;
  const std::string name = str("#", on.tape.entries());
  std::string entry = str("  ", name, name.size() < 3 ? "   = " : "  = ", what);
  entry.resize(22, ' ');
  const auto backward = [&on, entry, value, inputs](const Tensor& gradient) {
    const double g = kernel::read(gradient);  // final: all uses of this value came before
    on.lesson.say(entry + decimal(value) + decimal(g));
    for (const auto& [input, derivative] : inputs) {
      Tape::accumulate(input.var.target(), on.scalar(g * derivative));
      const Parameter* p = input.var.target().parameter;
      if (p)
        on.lesson.say(str(std::string(40, ' '), "contribution ", ++on.contributions, ", to ",
                          p->name, ": now", decimal(kernel::read(p->grad))));
    }
  };
  return {on, on.tape.record(on.scalar(value), backward), value, name};
}
inline Number operator+(const Number& x, const Number& y) {
  return op(x.name + " + " + y.name, x.value + y.value, {{x, 1}, {y, 1}});
}
inline Number operator*(const Number& x, const Number& y) {
  return op(x.name + " * " + y.name, x.value * y.value, {{x, y.value}, {y, x.value}});
}
inline Number pow(const Number& x, double k) {
  return op(str(x.name, " ^ ", k), std::pow(x.value, k), {{x, k * std::pow(x.value, k - 1)}});
}
inline Number relu(const Number& x) {
  return op("relu " + x.name, std::max(x.value, 0.0), {{x, x.value > 0}});
}

}  // namespace zl::lesson
