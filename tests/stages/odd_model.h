// A small model with everything that makes sharding go wrong: odd sizes, a tied weight, a unit that
// runs twice, a parameter that nobody uses, a unit that is never run.
#pragma once

#include <deque>
#include <limits>

#include "autograd/ops.h"
#include "nn/unit.h"
#include "tensor/kernels.h"

namespace zl::test {

struct OddModelOptions {
  int64_t vocab = 11, channels = 7, hidden = 13, blocks = 2;
  bool tied = true;               // the head is the token embedding
  bool block_twice = false;       // block 0 runs again after the last
  bool unused_parameter = false;  // in root and in the last block
  bool unused_unit = false;       // one more unit, never run
  bool recompute = false;
};

class OddModel {
 public:
  explicit OddModel(OddModelOptions o) : o_(o) {
    const int64_t C = o.channels;
    Unit& root = unit("root");
    own(root, "wte", {o.vocab, C}, 0, 0.3);
    own(root, "norm.gain", {C}, 1, 0);
    own(root, "norm.bias", {C}, 0, 0);
    if (!o.tied) own(root, "head", {o.vocab, C}, 0, 0.3);
    if (o.unused_parameter) own(root, "unused", {5}, 0, 1);
    for (int64_t b = 0; b < o.blocks; ++b) {
      const std::string name = str("block", b);
      Unit& u = unit(name);
      const int64_t H = o.hidden + 2 * b;  // no two blocks are of one size
      own(u, name + ".up", {C, H}, 0, 0.3);
      own(u, name + ".up_bias", {H}, 0, 0.1);
      own(u, name + ".down", {H, C}, 0, 0.3);
      own(u, name + ".down_bias", {C}, 0, 0.1);
      if (o.unused_parameter && b + 1 == o.blocks) own(u, name + ".unused", {3}, 0, 1);
    }
    if (o.unused_unit) own(unit("idle"), "idle.weight", {17}, 0, 1);
  }
  OddModel(const OddModel&) = delete;

  std::vector<Unit>& units() { return units_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  // The name of a block's parameter whose next gradients get an infinity; empty: none.
  std::string spoiled;
  // The last block is left out of the next forward passes.
  bool shallow = false;

  Var loss(Tape* tape, UnitObserver& observer, const Tensor& ids, const Tensor& targets) {
    return run_unit(tape, observer, units_[0], [&] {
      Var x = embedding(ids, parameter(tape, 0, 0));
      for (int64_t b = 0; b < o_.blocks - shallow; ++b) x = block(tape, observer, b, x);
      if (o_.block_twice) x = block(tape, observer, 0, x);
      x = layer_norm(x, parameter(tape, 0, 1), parameter(tape, 0, 2));
      return cross_entropy(project(x, parameter(tape, 0, o_.tied ? 0 : 3)), targets);
    });
  }

 private:
  Var parameter(Tape* tape, size_t unit, size_t i) {
    return Var::parameter(tape, *units_[unit].parameters[i]);
  }

  Var block(Tape* tape, UnitObserver& observer, int64_t b, const Var& x) {
    Unit& u = units_[size_t(b + 1)];
    const auto forward = [this, b](Tape* t, const Var& in) {
      const size_t i = size_t(b + 1);
      const Var up = gelu(linear(in, parameter(t, i, 0), parameter(t, i, 1)));
      return spoil(t, i, add(in, linear(up, parameter(t, i, 2), parameter(t, i, 3))));
    };
    if (o_.recompute) return run_unit_recomputed(tape, observer, u, x, forward);
    return run_unit(tape, observer, u, [&] { return forward(tape, x); });
  }

  Var spoil(Tape* tape, size_t unit, const Var& x) {
    for (Parameter* p : units_[unit].parameters)
      if (tape != nullptr && p->name == spoiled)
        return tape->record(x.value(), [p, to = x.target()](Tensor dy) {
          kernel::fill(std::numeric_limits<double>::infinity(),
                       p->grad.view({p->numel()}).slice(0, {1}));
          Tape::accumulate(to, std::move(dy));
        });
    return x;
  }

  Unit& unit(std::string name) {
    units_.push_back({.name = std::move(name), .parameters = {}, .index = int(units_.size())});
    return units_.back();
  }
  void own(Unit& u, std::string name, Shape shape, double mean, double deviation) {
    parameters_.push_back({.name = std::move(name),
                           .shape = std::move(shape),
                           .initial_mean = mean,
                           .initial_deviation = deviation});
    parameters_.back().open = false;
    u.parameters.push_back(&parameters_.back());
  }

  OddModelOptions o_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

}  // namespace zl::test
