// Loss, all gradients and three steps of AdamW against PyTorch: golden/make_golden.py made
// golden/gpt2.txt.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <map>

#include "optim/flat_optimizer.h"
#include "tests/nn/flat_gpt.h"

namespace zl {
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
  const auto optimizer = make_optimizer(bench.memory, model.data.numel(), type, config);
  if (optimizer->master().defined()) kernel::copy(model.data, optimizer->master());
  for (double loss : expected) {
    model.loss_and_gradients(model.ids, model.targets);
    optimizer->update(model.data, model.grad, config.lr, 1);
    CAPTURE(name(type));
    CHECK(std::abs(model.loss(model.ids, model.targets) - loss) <= tolerance * loss);
  }
}

}  // namespace zl
