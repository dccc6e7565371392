// GPT-2: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3.
//
// Learned positions, pre-norm blocks, layer norm with eps 1e-5, GELU in its tanh form, causal
// attention scaled by 1/sqrt(head), the output head tied to the token embedding, no dropout. Names
// and layout of weights are those of Hugging Face's GPT-2: a linear weight is (in, out).
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "nn/model.h"

namespace zl {

struct GptConfig {
  // C = width, T = block_size, V = vocab
  int64_t layers = 4, heads = 4, width = 128, block_size = 128, vocab = 256;
  bool operator==(const GptConfig&) const = default;

  int64_t parameters() const;  // [n]
  // Throws InputError unless every size is positive and the heads divide the width.
  void check() const;
};

// Activation recomputation: which activations forward does not keep, so that backward computes them
// again. Same bits, less memory, more time.
enum class Recompute {
  none,
  selective,  // the outputs of layer norms and of GELU: 6 of the 16 (B, T, C) that a block keeps
  full        // all of a block: it keeps its input and runs a second time in backward
};
const char* name(Recompute recompute);  // "none", "selective", "full"

class Gpt final : public Model {
 public:
  // `checkpoints`, with Recompute::full: how many inputs a pass keeps. The blocks are divided among
  // them in order, as evenly as possible, and those of one input are computed again together. 0:
  // one for each block. Throws InputError if there are more than blocks.
  explicit Gpt(GptConfig config, Recompute recompute = Recompute::selective,
               int64_t checkpoints = 0);

  const GptConfig& config() const { return config_; }
  std::string name() const override { return "gpt"; }
  // {"format": "pt", "n_head": …}: the heads do not show in the shapes.
  std::map<std::string, std::string> metadata() const override;
  // Root (token embedding = output head, positions, last norm) first, then each block "h.0", "h.1",
  // …
  std::vector<Unit>& units() override { return units_; }
  std::deque<Parameter>& parameters() { return parameters_; }  // in the order of the units

  // Mean cross-entropy of the targets (B, T) given the ids (B, T), both i32, T <= block_size ->
  // (1).
  Var loss(Tape* tape, UnitObserver& observer, const Batch& batch) override;

  // Logits (1, V) of the token that follows the one sequence `ids` (1, T).
  Tensor next_token_logits(UnitObserver& observer, const Tensor& ids);

 private:
  Unit& add_unit(std::string name);
  void add_parameter(Unit& unit, const std::string& name, Shape shape, double mean,
                     double deviation);
  // (B, T, C) after the last norm
  Var hidden(Tape* tape, UnitObserver& observer, const Tensor& ids);
  Var block(Tape* tape, Unit& unit, const Var& x) const;  // (B, T, C) -> (B, T, C)
  // The same of blocks [begin, end), of which every activation is kept.
  Var blocks(Tape* tape, UnitObserver& observer, int64_t begin, int64_t end, Var x);

  GptConfig config_;
  Recompute recompute_;
  int64_t checkpoints_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

}  // namespace zl
