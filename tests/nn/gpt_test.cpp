// The model: sizes, gradients, edge cases.
// Loss, all gradients and three steps of AdamW against PyTorch: golden/make_golden.py made
// golden/gpt2.txt.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include "autograd/ops.h"
#include "optim/flat_optimizer.h"
#include "tests/nn/flat_gpt.h"
#include "tests/paths.h"

namespace zl {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr GptConfig kMini = {.layers = 2, .heads = 2, .width = 6, .block_size = 5, .vocab = 11};
constexpr GptConfig kOdd = {.layers = 3, .heads = 3, .width = 21, .block_size = 19, .vocab = 53};

// All rows of logits of one window, op by op, all parameters open: the formula of GPT-2 once more.
Tensor full_logits(Gpt& gpt, const Tensor& ids) {
  std::vector<std::shared_ptr<void>> open;
  for (Unit& u : gpt.units()) open.push_back(make_usable(u));
  const auto p = [&](size_t unit, size_t i) {
    return Var::parameter(nullptr, *gpt.units()[unit].parameters[i]);
  };
  Var x = add_positions(embedding(ids, p(0, 0)), p(0, 1));
  for (size_t u = 1; u < gpt.units().size(); ++u) {
    x = add(x, linear(attention(linear(layer_norm(x, p(u, 0), p(u, 1)), p(u, 2), p(u, 3)),
                                gpt.config().heads),
                      p(u, 4), p(u, 5)));
    x = add(x, linear(gelu(linear(layer_norm(x, p(u, 6), p(u, 7)), p(u, 8), p(u, 9))), p(u, 10),
                      p(u, 11)));
  }
  return project(layer_norm(x, p(0, 2), p(0, 3)), p(0, 0)).value();
}

struct Outcome {
  double loss;
  std::vector<double> gradients;
  int64_t peak;  // [B] of activations
};

Outcome outcome(Workbench& bench, FlatGpt model, const Batch& batch) {
  bench.memory.ledger().reset_peak();
  const double loss = model.loss_and_gradients(batch.inputs, batch.targets);
  return {loss, values(model.grad), bench.memory.ledger().peak(MemoryUse::activation)};
}

}  // namespace

TEST_CASE("a model has as many parameters as published, and as its tensors", "[nn]") {
  const std::vector<std::pair<std::string, int64_t>> published = {{"gpt2", 124'439'808},
                                                                  {"gpt2-medium", 354'823'168},
                                                                  {"gpt2-large", 774'030'080},
                                                                  {"gpt2-xl", 1'557'611'200}};
  for (const auto& [model, n] : published) CHECK(named_gpt(model).parameters() == n);
  CHECK(named_gpt("tiny").parameters() == 34'688);
  CHECK(named_gpt("small").parameters() == 842'496);
  for (const std::string& model : gpt_names()) {
    CAPTURE(model);
    Gpt gpt(named_gpt(model));  // allocates nothing
    int64_t n = 0, in_units = 0;
    for (const Parameter& p : gpt.parameters()) n += p.numel();
    for (const Unit& u : gpt.units()) in_units += u.numel();
    CHECK(n == gpt.config().parameters());
    CHECK(in_units == n);
    CHECK(int64_t(gpt.units().size()) == 1 + gpt.config().layers);
    GptConfig deeper = gpt.config();
    ++deeper.layers;
    CHECK(deeper.parameters() != n);
  }
}

TEST_CASE("parameters carry the names, shapes and initial values of GPT-2", "[nn]") {
  Gpt gpt(kMini);
  std::vector<std::string> lines;
  for (const Parameter& p : gpt.parameters())
    if (p.name[0] != 'h' || p.name[2] == '1') lines.push_back(p.name + " " + to_string(p.shape));
  CHECK(lines == std::vector<std::string>{
                     "wte.weight (11, 6)", "wpe.weight (5, 6)", "ln_f.weight (6)", "ln_f.bias (6)",
                     "h.1.ln_1.weight (6)", "h.1.ln_1.bias (6)", "h.1.attn.c_attn.weight (6, 18)",
                     "h.1.attn.c_attn.bias (18)", "h.1.attn.c_proj.weight (6, 6)",
                     "h.1.attn.c_proj.bias (6)", "h.1.ln_2.weight (6)", "h.1.ln_2.bias (6)",
                     "h.1.mlp.c_fc.weight (6, 24)", "h.1.mlp.c_fc.bias (24)",
                     "h.1.mlp.c_proj.weight (24, 6)", "h.1.mlp.c_proj.bias (6)"});
  for (const Parameter& p : gpt.parameters()) {
    CAPTURE(p.name);
    const bool bias = p.name.ends_with(".bias"), norm = p.name.find("ln_") != std::string::npos;
    CHECK(p.initial_mean == (norm && !bias ? 1 : 0));
    CHECK(p.initial_deviation == (norm || bias ? 0
                                  : p.name.ends_with("c_proj.weight")
                                      ? 0.02 / 2
                                      : 0.02));  // sqrt(2 * 2 layers)
  }
}

TEST_CASE("a model that cannot be is refused with its numbers", "[nn]") {
  GptConfig c = kMini;
  c.heads = 4;
  CHECK_THROWS_WITH(Gpt(c), ContainsSubstring("n-embd 6 cannot be split into 4 heads"));
  c = kMini;
  c.layers = 0;
  CHECK_THROWS_AS(Gpt(c), InputError);
  c = kMini;
  c.vocab = -3;
  CHECK_THROWS_AS(Gpt(c), InputError);
  CHECK_THROWS_WITH(named_gpt("gpt3"), ContainsSubstring("'gpt3'") && ContainsSubstring("gpt2-xl"));
}

TEST_CASE("a fresh model's loss is near ln V", "[nn]") {
  Workbench bench;
  const auto type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16);
  for (const char* size : {"tiny", "small"}) {
    FlatGpt model(bench, named_gpt(size), type);
    const Tensor ids = bench.ids({2, 32}, 256), targets = bench.ids({2, 32}, 256);
    CHECK(std::abs(model.loss(ids, targets) - std::log(256.0)) < 0.15);
    FlatGpt sure(bench, named_gpt(size), type, Recompute::none, 20);
    CHECK(std::abs(sure.loss(ids, targets) - std::log(256.0)) > 0.15);
  }
}

// By hand, in tensors of (B, T, C) that live at the peak. A block keeps its input 1, ln_1's output
// 1, qkv 3, the result of attention 1, the sum 1, ln_2's output 1, GELU's input 4 and output 4: 16.
// Selective recomputation keeps 1 + 1 + 4 of them not. The peak is at one of two places of
// backward, which one depends on the vocabulary:
//   head: the blocks, ln_f's input 1 and output 1, the gradient of the logits, ln_f's dy 1. If
//         ln_f's output is recomputed, it is freed before dy is allocated: 1 less.
//   last block's last linear: the blocks, dy 1, dx 4. GELU's output, 4, is freed before dx.
TEST_CASE("recomputation has the same bits, and if selective frees 6 of 16 tensors of a block",
          "[nn]") {
  Workbench bench;
  const auto type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  const int64_t vocab = GENERATE(17, 53, 211), layers = GENERATE(1, 3), B = 3, T = 17;
  GptConfig config = kOdd;
  config.vocab = vocab;
  config.layers = layers;
  const Tensor ids = bench.ids({B, T}, 17), targets = bench.ids({B, T}, 17);
  const int64_t before = bench.activation_bytes();
  const int64_t BTC = B * T * config.width * size_of(type);
  const int64_t exact = size_of(type == Dtype::f64 ? Dtype::f64 : Dtype::f32);  // of a statistic
  const auto peak = [&](int64_t of_block, int64_t head) {
    // Mean and 1/std of a block's two norms, log-sum-exp of its heads; the loss.
    const int64_t blocks = layers * (of_block * BTC + (4 + config.heads) * B * T * exact) + exact;
    const int64_t logits = B * T * vocab * size_of(type), ln_f = 2 * B * T * exact;
    return std::max(blocks + head * BTC + logits + ln_f, blocks + 5 * BTC);
  };
  const auto run = [&](Recompute recompute) {
    return outcome(bench, FlatGpt(bench, config, type, recompute, 3), {ids, targets});
  };
  const Outcome kept = run(Recompute::none), recomputed = run(Recompute::selective),
                full = run(Recompute::full);
  for (const Outcome* other : {&recomputed, &full}) {
    CHECK(other->loss == kept.loss);
    CHECK(other->gradients == kept.gradients);
  }
  if (layers == 3 && vocab == 53) CHECK(double(full.peak) < 0.6 * double(kept.peak));
  CHECK(kept.peak - before == peak(16, 3));
  CHECK(recomputed.peak - before == peak(10, 2));
  CHECK(peak(16, 3) - peak(10, 2) >= layers * 6 * BTC);
}

TEST_CASE("a loss without a tape has the bits of one with it and leaves nothing behind", "[nn]") {
  Workbench bench;
  FlatGpt model(bench, kOdd, Dtype::f32,
                GENERATE(Recompute::none, Recompute::selective, Recompute::full));
  const Tensor ids = bench.ids({3, 17}, 53), targets = bench.ids({3, 17}, 53);
  const int64_t before = bench.activation_bytes();
  const double trained = model.loss_and_gradients(ids, targets);
  CHECK(bench.activation_bytes() == before);
  bench.memory.ledger().reset_peak();
  const Var loss = model.gpt.loss(nullptr, model.no_observer, {ids, targets});
  CHECK(values(loss.value())[0] == trained);
  CHECK(bench.activation_bytes() == before + 4);
  // The peak of evaluation: the residual stream, the norm's statistics, the MLP's input and output.
  CHECK(bench.memory.ledger().peak(MemoryUse::activation) - before < 12 * 3 * 17 * 21 * 4);
}

TEST_CASE("the gradients of two micro-batches add up", "[nn]") {
  Workbench bench;
  FlatGpt model(bench, kOdd, Dtype::f64);
  const Tensor ids = bench.ids({4, 7}, 53), targets = bench.ids({4, 7}, 53);
  model.loss_and_gradients(ids, targets);
  const auto whole = values(model.grad);
  std::vector<double> sum(whole.size(), 0.0);
  for (int64_t half : {0, 1}) {
    model.loss_and_gradients(ids.slice(half * 14, {2, 7}), targets.slice(half * 14, {2, 7}));
    const auto part = values(model.grad);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i] / 2;
  }
  CHECK(largest_difference(whole, sum) < 1e-15);
  CHECK(largest_difference(whole, values(model.grad)) > 1e-3);
}

TEST_CASE("next_token_logits are the last row of all logits, bit for bit, at any length", "[nn]") {
  Workbench bench;
  const auto type = GENERATE(Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64);
  FlatGpt model(bench, kOdd, type, Recompute::none, 3);
  for (int64_t T = 1; T <= kOdd.block_size; ++T) {
    CAPTURE(T, name(type));
    const Tensor ids = bench.ids({1, T}, 53), all = full_logits(model.gpt, ids),
                 last = model.gpt.next_token_logits(model.no_observer, ids);
    REQUIRE(last.shape() == Shape{1, 53});
    CHECK(values(last) == values(all.slice((T - 1) * 53, {53})));
    if (T > 1) CHECK(values(last) != values(all.slice((T - 2) * 53, {53})));
  }
}

TEST_CASE("later tokens do not change earlier predictions", "[nn]") {
  Workbench bench;
  FlatGpt model(bench, kOdd, Dtype::f32, Recompute::none, 3);
  const Tensor ids = bench.ids({1, 9}, 53);
  const auto before = values(full_logits(model.gpt, ids));
  ids.data<int32_t>()[6] = (ids.data<int32_t>()[6] + 1) % 53;
  const auto after = values(full_logits(model.gpt, ids));
  for (int64_t t = 0; t < 9; ++t) {
    CAPTURE(t);
    const auto row = [&](const std::vector<double>& v) {
      return std::vector<double>(v.begin() + t * 53, v.begin() + (t + 1) * 53);
    };
    CHECK((row(before) == row(after)) == (t < 6));
  }
}

TEST_CASE("a window that does not fit is refused", "[nn]") {
  Workbench bench;
  FlatGpt model(bench, kMini, Dtype::f32);
  CHECK_THROWS_WITH(model.loss(bench.ids({1, 6}, 11), bench.ids({1, 6}, 11)),
                    ContainsSubstring("block-size 5"));
  CHECK_THROWS_AS(model.loss(bench.ids({1, 5}, 11), bench.ids({1, 4}, 11)), std::invalid_argument);
  for (const Shape& shape : {Shape{2, 5}, Shape{1, 6}})
    CHECK_THROWS_AS(model.gpt.next_token_logits(model.no_observer, bench.ids(shape, 11)),
                    std::invalid_argument);
}

namespace {

constexpr GptConfig kGolden = {.layers = 2, .heads = 3, .width = 6, .block_size = 6, .vocab = 13};
constexpr int64_t B = 3, T = 5;

using Golden = std::map<std::string, std::vector<double>>;

Golden read_golden() {
  std::ifstream in(ZEROLAB_SOURCE_DIR "/tests/nn/golden/gpt2.txt");
  Golden golden;
  std::string name;
  for (size_t n = 0; in >> name >> n;) {
    std::vector<double>& v = golden[name];
    v.resize(n);
    for (double& x : v) in >> x;
  }
  return golden;
}

uint32_t mix(uint32_t k, uint32_t i) {  // as in make_golden.py
  uint32_t h = i * 2654435761u + k * 2246822519u + 374761393u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h = (h ^ (h >> 13)) * 3266489917u;
  return h ^ (h >> 16);
}

struct GoldenModel : FlatGpt {
  Tensor ids, targets;
  GoldenModel(Workbench& bench, Dtype type) : FlatGpt(bench, kGolden, type) {
    uint32_t k = 0;
    for (const Parameter& p : gpt.parameters()) {
      const bool norm_weight = p.initial_mean == 1;
      std::vector<double> v;
      for (uint32_t i = 0; i < uint32_t(p.numel()); ++i)
        v.push_back(norm_weight ? 1 + (double(mix(k, i) % 64) - 32) / 128
                                : (double(mix(k, i) % 256) - 128) / 256);
      assign(p.data, v);
      ++k;
    }
    std::vector<double> in, out;
    for (uint32_t b = 0; b < B; ++b)
      for (uint32_t t = 0; t < T; ++t) {
        in.push_back(mix(1000, b * (T + 1) + t) % uint32_t(kGolden.vocab));
        out.push_back(mix(1000, b * (T + 1) + t + 1) % uint32_t(kGolden.vocab));
      }
    ids = bench.tensor({B, T}, in, Dtype::i32);
    targets = bench.tensor({B, T}, out, Dtype::i32);
  }
};

struct Tolerance {
  Dtype type;
  double loss, gradient;  // relative to the loss, and to the largest gradient of the same tensor
};

}  // namespace

TEST_CASE("loss and all gradients of a GPT are those of PyTorch", "[nn]") {
  const Golden golden = read_golden();
  REQUIRE(golden.size() == 4 + 2 * 12 + 2);
  const auto tolerance =
      GENERATE(Tolerance{Dtype::f64, 1e-14, 1e-11}, Tolerance{Dtype::f32, 1e-6, 1e-5},
               Tolerance{Dtype::bf16, 0.02, 0.1}, Tolerance{Dtype::f16, 0.002, 0.02});
  Workbench bench;
  GoldenModel model(bench, tolerance.type);
  const double loss = golden.at("loss")[0];
  CHECK(std::abs(model.loss_and_gradients(model.ids, model.targets) - loss) <=
        tolerance.loss * loss);
  for (const Parameter& p : model.gpt.parameters()) {
    CAPTURE(p.name, name(tolerance.type));
    const auto& expected = golden.at(p.name);
    CHECK(largest_difference(values(p.grad), expected) <= tolerance.gradient * largest(expected));
  }
}

TEST_CASE("the golden gradients notice one weight that is off by a thousandth", "[nn]") {
  const Golden golden = read_golden();
  Workbench bench;
  GoldenModel model(bench, Dtype::f64);
  for (Parameter& changed : model.gpt.parameters()) {
    if (changed.name == "wpe.weight") continue;  // its last row is not used
    const double before = changed.data.data<double>().back();
    changed.data.data<double>().back() += 0.001;
    model.loss_and_gradients(model.ids, model.targets);
    double worst = 0;
    for (const Parameter& p : model.gpt.parameters()) {
      const auto& expected = golden.at(p.name);
      worst = std::max(worst, largest_difference(values(p.grad), expected) / largest(expected));
    }
    CAPTURE(changed.name);
    CHECK(worst > 1e-6);
    changed.data.data<double>().back() = before;
  }
}

TEST_CASE("three steps of AdamW lead where PyTorch's lead", "[nn]") {
  const auto expected = read_golden().at("after_adamw_steps");
  const auto [type, tolerance] = GENERATE(std::pair{Dtype::f64, 1e-11}, std::pair{Dtype::f32, 1e-4},
                                          std::pair{Dtype::bf16, 0.05});
  const OptimizerConfig config{
      .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
  Workbench bench;
  GoldenModel model(bench, type);
  FlatOptimizer optimizer(bench.memory, model.data.numel(), type, config);
  if (optimizer.master().defined()) kernel::copy(model.data, optimizer.master());
  for (double loss : expected) {
    model.loss_and_gradients(model.ids, model.targets);
    optimizer.update(model.data, model.grad, config.lr, 1);
    CAPTURE(name(type));
    CHECK(std::abs(model.loss(model.ids, model.targets) - loss) <= tolerance * loss);
  }
}

}  // namespace zl
