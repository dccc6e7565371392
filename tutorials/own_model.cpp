// Your own model under every stage: an MLP learns the parity of 4 bits, and a small GPT learns
// text. Each is trained, its stages compared bit for bit, and its bytes and traffic predicted. Run
// it as
// ./build/default/tutorials/own_model.
#include <cstdio>
#include <deque>

#include "autograd/ops.h"
#include "nn/data/corpus.h"
#include "nn/data/windows.h"
#include "stages/train/comparison.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

// A model is its units, and a loss in which each unit computes inside run_unit(). Here the unit
// "hidden" runs twice, and the parameter "spare" is never used.
class Mlp final : public Model {
 public:
  std::string name() const override { return "mlp"; }
  std::vector<Unit>& units() override { return units_; }

  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override {  // (B, 4), (B)
    const auto p = [&](int i) { return Var::parameter(tape, parameters_[size_t(i)]); };
    return run_unit(tape, observer, units_[0], [&] {
      const Var e = embedding(batch.inputs, p(0));  // (B, 4, 8)
      Var x = gelu(linear(reshape(e, {batch.inputs.dim(0), 32}), p(1), p(2)));
      for (int twice = 0; twice < 2; ++twice)
        x = run_unit(tape, observer, units_[1],
                     [&] { return add(x, gelu(linear(x, p(4), p(5)))); });
      return cross_entropy(linear(x, p(6), p(7)), batch.targets);
    });
  }

 private:
  std::deque<Parameter> parameters_{{"embed", {2, 8}, 0, 0.5},
                                    {"in", {32, 16}, 0, 0.3},
                                    {"in_bias", {16}},
                                    {"spare", {3}},
                                    {"hidden", {16, 16}, 0, 0.3},
                                    {"hidden_bias", {16}},
                                    {"out", {16, 2}, 0, 0.3},
                                    {"out_bias", {2}}};
  Parameter* p(size_t i) { return &parameters_[i]; }
  std::vector<Unit> units_{{"root", {p(0), p(1), p(2), p(3), p(6), p(7)}, 0},
                           {"hidden", {p(4), p(5)}, 1}};
};

// The 16 cases in order, again and again.
class Parity final : public BatchSource {
 public:
  Shape input_row() const override { return {4}; }
  Shape target_row() const override { return {}; }
  void fill_rows(int64_t first, std::span<int32_t> bits, std::span<int32_t> parity) const override {
    for (size_t row = 0; row < parity.size(); ++row) {
      const unsigned number = unsigned(size_t(first) + row) % 16;
      for (size_t i = 0; i < 4; ++i) bits[4 * row + i] = number >> i & 1;
      parity[row] = __builtin_popcount(number) % 2;
    }
  }
};

void compare(const char* what, const TrainingSpec& spec) {
  const Comparison comparison = compare_stages(spec, {kStages, kStages + 4});
  std::printf("%s: %lld parameters, %d ranks\n", what, (long long)comparison.parameters,
              spec.ranks);
  for (const StageOutcome& s : comparison.stages) {
    const MemoryRow* state = nullptr;
    for (const MemoryRow& row : s.memory)
      if (row.rank == 0 && row.use == MemoryUse::optimizer_state) state = &row;
    std::printf(
        "  %s  loss %.9f  optimizer state %lld B, predicted %lld  peak %lld B, predicted %lld  "
        "%s\n",
        name(s.stage), s.steps.back().loss, (long long)state->rest,
        (long long)state->predicted_rest, (long long)s.peak_total[0],
        (long long)s.predicted_peak_total[0], s.bitwise_equal ? "same bits" : "DIFFERENT BITS");
  }
  std::printf("  %s\n",
              comparison.ok() ? "all promises hold" : "AT LEAST ONE PROMISE DOES NOT HOLD");
}

// use_reference(spec) computes the same by the textbook kernels of tensor/reference.
int main() try {
  TrainingSpec mlp;
  const Parity parity;
  mlp.make_model = [] { return std::make_unique<Mlp>(); };
  mlp.data = &parity;
  mlp.engine.optimizer.lr = 0.01;
  mlp.micro_batch = 8;
  mlp.steps = 150;
  mlp.ranks = 2;
  compare("MLP", mlp);

  GptTrainingSpec gpt = gpt_spec({.layers = 2, .heads = 2, .width = 32, .block_size = 32});
  const Windows text(TokenData::of_text("corpus", std::string(default_corpus())), gpt.window);
  gpt.data = &text;
  gpt.steps = 10;
  gpt.ranks = 3;
  compare("GPT", gpt);
  if (std::fflush(stdout) == 0) return 0;
  std::perror("own_model: stdout");
  return 74;
} catch (const std::exception& e) {
  std::fprintf(stderr, "own_model: %s\n%s", e.what(), last_failure_report().c_str());
  return 1;
}
