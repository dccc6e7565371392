// A small model with everything that makes sharding go wrong: odd sizes, a tied weight, a unit that
// runs twice, a parameter that is never used, a unit that is never run.
#pragma once

#include <deque>
#include <limits>
#include <utility>

#include "autograd/ops.h"
#include "nn/gpt.h"
#include "tensor/kernels.h"

namespace zl::test {

struct OddModelOptions {
  int64_t vocab = 11, channels = 7, hidden = 13, blocks = 2;
  bool tied = true;               // the head is the token embedding
  bool block_twice = false;       // block 0 runs again after the last
  bool unused_parameter = false;  // in root and in the last block
  bool unused_unit = false;       // one more unit, never run
  Recompute recompute = Recompute::none;
  std::string frozen;  // the name of a parameter; empty: none
};

class OddModel final : public Model {
 public:
  explicit OddModel(OddModelOptions o) : o_(o) {
    const int64_t C = o.channels;
    Unit& root = unit("root");
    add_parameter(root, "wte", {o.vocab, C}, 0, 0.3);
    add_parameter(root, "norm.weight", {C}, 1, 0);
    add_parameter(root, "norm.bias", {C}, 0, 0);
    if (!o.tied) add_parameter(root, "head", {o.vocab, C}, 0, 0.3);
    if (o.unused_parameter) add_parameter(root, "unused", {5}, 0, 1);
    for (int64_t b = 0; b < o.blocks; ++b) {
      const std::string name = str("block", b);
      Unit& u = unit(name);
      const int64_t H = o.hidden + 2 * b;  // no two blocks are of one size
      add_parameter(u, name + ".up", {C, H}, 0, 0.3);
      add_parameter(u, name + ".up_bias", {H}, 0, 0.1);
      add_parameter(u, name + ".down", {H, C}, 0, 0.3);
      add_parameter(u, name + ".down_bias", {C}, 0, 0.1);
      if (o.unused_parameter && b + 1 == o.blocks) add_parameter(u, name + ".unused", {3}, 0, 1);
    }
    if (o.unused_unit) add_parameter(unit("idle"), "idle.weight", {17}, 0, 1);
    for (Parameter& p : parameters_) p.requires_grad = p.name != o.frozen;
  }

  std::string name() const override { return "odd"; }
  std::vector<Unit>& units() override { return units_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  // The name of a block's parameter whose next gradients get an infinity; empty: none.
  std::string spoiled;
  // The last block is left out of the next forward passes.
  bool shallow = false;

  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {
    const Tensor &ids = batch.inputs, &targets = batch.targets;
    return run_unit(tape, observer, units_[0], [&] {
      Var x = embedding(ids, parameter(tape, 0, 0));
      for (int64_t b = 0; b < o_.blocks - shallow; ++b) x = block(tape, observer, b, x);
      if (o_.block_twice) x = block(tape, observer, 0, x);
      x = layer_norm(x, parameter(tape, 0, 1), parameter(tape, 0, 2), output());
      return cross_entropy(project(x, parameter(tape, 0, o_.tied ? 0 : 3)), targets);
    });
  }

 private:
  Var parameter(Tape* tape, size_t unit, size_t i) {
    return Var::parameter(tape, *units_[unit].parameters[i]);
  }

  Output output() const {
    return o_.recompute == Recompute::selective ? Output::recomputed : Output::kept;
  }

  Var block(Tape* tape, UnitObserver& observer, int64_t b, const Var& x) {
    Unit& u = units_[size_t(b + 1)];
    const auto forward = [this, b](Tape* t, const Var& in) {
      const size_t i = size_t(b + 1);
      Var up = gelu(linear(in, parameter(t, i, 0), parameter(t, i, 1)), output());
      const Var down = linear(std::exchange(up, {}), parameter(t, i, 2), parameter(t, i, 3));
      return spoil(t, i, add(in, down));
    };
    return run_unit(tape, observer, u, [&] {
      return o_.recompute == Recompute::full ? checkpointed(tape, observer, x, forward)
                                             : forward(tape, x);
    });
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
  void add_parameter(Unit& u, std::string name, Shape shape, double mean, double deviation) {
    parameters_.push_back({.name = std::move(name),
                           .shape = std::move(shape),
                           .initial_mean = mean,
                           .initial_deviation = deviation});
    parameters_.back().usable = false;
    u.parameters.push_back(&parameters_.back());
  }

  OddModelOptions o_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

}  // namespace zl::test
