#include "nn/gpt.h"

#include <cmath>

#include "autograd/ops.h"
#include "tensor/kernels.h"

namespace zl {

int64_t GptConfig::parameters() const {
  const int64_t C = width;
  const int64_t block = 12 * C * C + 13 * C;  // norms 4C; attention 4C^2 + 4C; mlp 8C^2 + 5C
  return vocab * C + block_size * C + 2 * C + layers * block;
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
                ". Use a width that is a multiple of n-head");
}

namespace {
struct NamedGpt {
  const char* name;
  GptConfig config;
};
constexpr NamedGpt kNamed[] = {
    {"tiny", {2, 2, 32, 32, 256}},
    {"small", {4, 4, 128, 128, 256}},
    {"gpt2", {12, 12, 768, 1024, 50257}},
    {"gpt2-medium", {24, 16, 1024, 1024, 50257}},
    {"gpt2-large", {36, 20, 1280, 1024, 50257}},
    {"gpt2-xl", {48, 25, 1600, 1024, 50257}},
};
}  // namespace

const std::vector<std::string>& gpt_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const NamedGpt& n : kNamed) list.emplace_back(n.name);
    return list;
  }();
  return names;
}

GptConfig named_gpt(const std::string& name) {
  std::string known;
  for (const NamedGpt& n : kNamed) {
    if (name == n.name) return n.config;
    known += str(known.empty() ? "" : ", ", n.name);
  }
  throw InputError(str("there is no model '", name, "'; known are ", known));
}

Gpt::Gpt(GptConfig config, bool recompute) : config_(config), recompute_(recompute) {
  config_.check();
  const int64_t C = config_.width;
  const double deviation = 0.02, residual = deviation / std::sqrt(2.0 * double(config_.layers));
  Unit& root = add_unit("root");
  own(root, "wte.weight", {config_.vocab, C}, 0, deviation);
  own(root, "wpe.weight", {config_.block_size, C}, 0, deviation);
  own(root, "ln_f.weight", {C}, 1, 0);
  own(root, "ln_f.bias", {C}, 0, 0);
  for (int64_t i = 0; i < config_.layers; ++i) {
    const std::string h = str("h.", i);
    Unit& unit = add_unit(h);
    own(unit, h + ".ln_1.weight", {C}, 1, 0);
    own(unit, h + ".ln_1.bias", {C}, 0, 0);
    own(unit, h + ".attn.c_attn.weight", {C, 3 * C}, 0, deviation);
    own(unit, h + ".attn.c_attn.bias", {3 * C}, 0, 0);
    own(unit, h + ".attn.c_proj.weight", {C, C}, 0, residual);
    own(unit, h + ".attn.c_proj.bias", {C}, 0, 0);
    own(unit, h + ".ln_2.weight", {C}, 1, 0);
    own(unit, h + ".ln_2.bias", {C}, 0, 0);
    own(unit, h + ".mlp.c_fc.weight", {C, 4 * C}, 0, deviation);
    own(unit, h + ".mlp.c_fc.bias", {4 * C}, 0, 0);
    own(unit, h + ".mlp.c_proj.weight", {4 * C, C}, 0, residual);
    own(unit, h + ".mlp.c_proj.bias", {C}, 0, 0);
  }
}

Unit& Gpt::add_unit(std::string name) {
  units_.push_back({.name = std::move(name), .parameters = {}, .index = int(units_.size())});
  return units_.back();
}

void Gpt::own(Unit& unit, const std::string& name, Shape shape, double mean, double deviation) {
  parameters_.push_back({.name = name,
                         .shape = std::move(shape),
                         .initial_mean = mean,
                         .initial_deviation = deviation});
  parameters_.back().open = false;
  unit.parameters.push_back(&parameters_.back());
}

Var Gpt::block(Tape* tape, Unit& unit, const Var& x) const {
  const auto p = [&](int i) { return Var::parameter(tape, *unit.parameters[size_t(i)]); };
  Var attended =
      attention(linear(layer_norm(x, p(0), p(1)), p(2), p(3)), config_.heads);  // (B, T, C)
  const Var y = add(x, linear(attended, p(4), p(5)));
  attended = {};
  const Var up = gelu(linear(layer_norm(y, p(6), p(7)), p(8), p(9)));  // (B, T, 4C)
  return add(y, linear(up, p(10), p(11)));
}

Var Gpt::hidden(Tape* tape, UnitObserver& observer, const Tensor& ids) {
  require(ids.shape().size() == 2 && ids.dim(1) <= config_.block_size, "a window of shape ",
          to_string(ids.shape()), " does not fit block-size ", config_.block_size);
  const auto p = [&](int i) { return Var::parameter(tape, *units_[0].parameters[size_t(i)]); };
  Var x = add_positions(embedding(ids, p(0)), p(1));
  for (size_t i = 1; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    if (recompute_)
      x = run_unit_recomputed(tape, observer, unit, x,
                              [this, &unit](Tape* t, const Var& in) { return block(t, unit, in); });
    else
      x = run_unit(tape, observer, unit, [&] { return block(tape, unit, std::exchange(x, {})); });
  }
  return layer_norm(x, p(2), p(3));
}

Var Gpt::loss(Tape* tape, UnitObserver& observer, const Tensor& ids, const Tensor& targets) {
  return run_unit(tape, observer, units_[0], [&] {
    return cross_entropy(
        project(hidden(tape, observer, ids), Var::parameter(tape, *units_[0].parameters[0])),
        targets);
  });
}

Tensor Gpt::next_token_logits(UnitObserver& observer, const Tensor& ids) {
  require(ids.shape().size() == 2 && ids.dim(0) == 1,
          "next_token_logits takes one window (1, T), not ", to_string(ids.shape()));
  return run_unit(
             nullptr, observer, units_[0],
             [&] {
               const Tensor all = hidden(nullptr, observer, ids).value();  // (1, T, C)
               const int64_t C = all.dim(2);
               const Var last = Var::constant(nullptr, all.slice((ids.dim(1) - 1) * C, {1, C}));
               return project(last, Var::parameter(nullptr, *units_[0].parameters[0]));
             })
      .value();
}

}  // namespace zl
