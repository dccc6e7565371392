#include "nn/gpt.h"

#include <array>
#include <cmath>

#include "autograd/ops.h"
#include "tensor/kernels.h"

namespace zl {

int64_t GptConfig::parameters() const {
  const int64_t C = width;
  const int64_t block = 12 * C * C + 13 * C;  // norms 4C; attention 4C^2 + 4C; mlp 8C^2 + 5C
  return vocab * C + block_size * C + 2 * C + layers * block;
}

std::map<std::string, std::string> Gpt::metadata() const {
  return {{"format", "pt"}, {"n_head", str(config_.heads)}};
}

void GptConfig::check() const {
  require_input(
      layers > 0 && heads > 0 && width > 0 && block_size > 0 && vocab > 1,
      "a model needs at least 1 layer, 1 head, width 1, block size 1 and 2 tokens; got n-layer ",
      layers, ", n-head ", heads, ", n-embd ", width, ", block-size ", block_size, ", vocab-size ",
      vocab);
  const double C = double(width), size = double(vocab) * C + double(block_size) * C +
                                         double(layers) * (12 * C * C + 13 * C);
  require_input(
      size <= 1e15 && layers <= 1'000'000, "a model of ", size, " parameters in ", layers,
      " layers is more than is counted here; the bounds are 1e15 parameters and 1000000 layers");
  require_input(width % heads == 0, "n-embd ", width, " cannot be split into ", heads,
                " heads: ", width, " / ", heads, " leaves ", width % heads,
                ". Use a number of heads that divides the width, or a width that is a multiple");
}

const char* name(Recompute recompute) {
  constexpr const char* kNames[] = {"none", "selective", "full"};
  return kNames[int(recompute)];
}

Gpt::Gpt(GptConfig config, Recompute recompute, int64_t checkpoints)
    : config_(config),
      recompute_(recompute),
      checkpoints_(checkpoints > 0 ? checkpoints : config.layers) {
  config_.check();
  require_input(checkpoints_ <= config_.layers, "number_checkpoints is ", checkpoints,
                ", but a model of ", config_.layers, " blocks has at most ", config_.layers,
                " checkpoints, one for each; write at most that many");
  const int64_t C = config_.width;
  const double deviation = 0.02, residual = deviation / std::sqrt(2.0 * double(config_.layers));
  Unit& root = add_unit("root");
  add_parameter(root, "wte.weight", {config_.vocab, C}, 0, deviation);
  add_parameter(root, "wpe.weight", {config_.block_size, C}, 0, deviation);
  add_parameter(root, "ln_f.weight", {C}, 1, 0);
  add_parameter(root, "ln_f.bias", {C}, 0, 0);
  for (int64_t i = 0; i < config_.layers; ++i) {
    const std::string h = str("h.", i);
    Unit& unit = add_unit(h);
    add_parameter(unit, h + ".ln_1.weight", {C}, 1, 0);
    add_parameter(unit, h + ".ln_1.bias", {C}, 0, 0);
    add_parameter(unit, h + ".attn.c_attn.weight", {C, 3 * C}, 0, deviation);
    add_parameter(unit, h + ".attn.c_attn.bias", {3 * C}, 0, 0);
    add_parameter(unit, h + ".attn.c_proj.weight", {C, C}, 0, residual);
    add_parameter(unit, h + ".attn.c_proj.bias", {C}, 0, 0);
    add_parameter(unit, h + ".ln_2.weight", {C}, 1, 0);
    add_parameter(unit, h + ".ln_2.bias", {C}, 0, 0);
    add_parameter(unit, h + ".mlp.c_fc.weight", {C, 4 * C}, 0, deviation);
    add_parameter(unit, h + ".mlp.c_fc.bias", {4 * C}, 0, 0);
    add_parameter(unit, h + ".mlp.c_proj.weight", {4 * C, C}, 0, residual);
    add_parameter(unit, h + ".mlp.c_proj.bias", {C}, 0, 0);
  }
}

Unit& Gpt::add_unit(std::string name) {
  units_.push_back({.name = std::move(name), .parameters = {}, .index = int(units_.size())});
  return units_.back();
}

void Gpt::add_parameter(Unit& unit, const std::string& name, Shape shape, double mean,
                        double deviation) {
  parameters_.push_back({.name = name,
                         .shape = std::move(shape),
                         .initial_mean = mean,
                         .initial_deviation = deviation});
  parameters_.back().usable = false;
  unit.parameters.push_back(&parameters_.back());
}

namespace {

// The parameters of a unit as Vars, in the order in which the constructor added them.
template <size_t kCount>
std::array<Var, kCount> parameters_of(Tape* tape, const Unit& unit) {
  std::array<Var, kCount> vars;
  for (size_t i = 0; i < kCount; ++i) vars[i] = Var::parameter(tape, *unit.parameters[i]);
  return vars;
}

Output of_norms_and_gelu(Recompute recompute) {
  return recompute == Recompute::selective ? Output::recomputed : Output::kept;
}

}  // namespace

Var Gpt::block(Tape* tape, Unit& unit, const Var& x) const {
  const auto [ln_1, ln_1_bias, c_attn, c_attn_bias, c_proj, c_proj_bias, ln_2, ln_2_bias, c_fc,
              c_fc_bias, c_out, c_out_bias] = parameters_of<12>(tape, unit);
  const Output output = of_norms_and_gelu(recompute_);
  Var attended = attention(  // (B, T, C)
      linear(layer_norm(x, ln_1, ln_1_bias, output), c_attn, c_attn_bias), config_.heads);
  const Var y = add(x, linear(attended, c_proj, c_proj_bias));
  attended = {};  // without a tape the last handle: frees (B, T, C) before the MLP takes (B, T, 4C)
  Var up = gelu(linear(layer_norm(y, ln_2, ln_2_bias, output), c_fc, c_fc_bias), output);
  // Gives up the last handle, so that GELU's output is freed before add allocates.
  const Var down = linear(std::exchange(up, {}), c_out, c_out_bias);
  return add(y, down);
}

// A block takes x over, so that without a tape its input is freed with the block.
Var Gpt::blocks(Tape* tape, UnitObserver& observer, int64_t begin, int64_t end, Var x) {
  for (int64_t i = begin; i < end; ++i) {
    Unit& unit = units_[size_t(i + 1)];
    x = run_unit(tape, observer, unit, [&] { return block(tape, unit, std::exchange(x, {})); });
  }
  return x;
}

Var Gpt::hidden(Tape* tape, UnitObserver& observer, const Tensor& ids) {
  if (ids.shape().size() != 2 || ids.dim(1) > config_.block_size)
    refuse("a sequence of shape ", to_string(ids.shape()), " does not fit block-size ",
           config_.block_size);
  const auto [wte, wpe, ln_f, ln_f_bias] = parameters_of<4>(tape, units_[0]);
  Var x = add_positions(embedding(ids, wte), wpe);
  if (recompute_ != Recompute::full)
    x = blocks(tape, observer, 0, config_.layers, std::exchange(x, {}));
  for (int64_t i = 0; i < checkpoints_ && recompute_ == Recompute::full; ++i) {
    const int64_t begin = i * config_.layers / checkpoints_,
                  end = (i + 1) * config_.layers / checkpoints_;
    if (end - begin == 1) {  // inside its unit, which stage 3 then unshards once for both passes
      Unit& unit = units_[size_t(end)];
      const auto again = [this, &unit](Tape* t, const Var& in) { return block(t, unit, in); };
      x = run_unit(tape, observer, unit, [&] { return checkpointed(tape, observer, x, again); });
    } else {
      x = checkpointed(tape, observer, x, [&, begin, end](Tape* t, const Var& in) {
        return blocks(t, observer, begin, end, in);
      });
    }
  }
  return layer_norm(x, ln_f, ln_f_bias, of_norms_and_gelu(recompute_));
}

Var Gpt::loss(Tape* tape, UnitObserver& observer, const Batch& batch) {
  return run_unit(tape, observer, units_[0], [&] {
    const Var wte = Var::parameter(tape, *units_[0].parameters[0]);  // tied: also the output head
    return cross_entropy(project(hidden(tape, observer, batch.inputs), wte), batch.targets);
  });
}

Tensor Gpt::next_token_logits(UnitObserver& observer, const Tensor& ids) {
  if (ids.shape().size() != 2 || ids.dim(0) != 1)
    refuse("next_token_logits takes one sequence (1, T), not ", to_string(ids.shape()));
  const auto forward = [&] {
    const Tensor all = hidden(nullptr, observer, ids).value();  // (1, T, C)
    const int64_t C = all.dim(2);
    const Var last = Var::constant(nullptr, all.slice((ids.dim(1) - 1) * C, {1, C}));
    return project(last, Var::parameter(nullptr, *units_[0].parameters[0]));
  };
  return run_unit(nullptr, observer, units_[0], forward).value().slice(0, {1, config_.vocab});
}

}  // namespace zl
