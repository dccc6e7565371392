// GPT-2: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3.
//
// Learned positions, pre-norm blocks, layer norm with eps 1e-5, GELU in its tanh form, causal
// attention scaled by 1/sqrt(head), the output head tied to the token embedding, no dropout. Names
// and layout of weights are those of Hugging Face's GPT-2: a linear weight is (in, out).
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "nn/unit.h"

namespace zl {

struct GptConfig {
  int64_t layers = 4, heads = 4, width = 128, block_size = 128,
          vocab = 256;  // C = width, T = block_size, V = vocab
  bool operator==(const GptConfig&) const = default;

  int64_t parameters() const;  // [n]
  // Throws InputError unless every size is positive and the heads divide the width.
  void check() const;
};

// "tiny", "small", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl". Throws InputError with the list
// otherwise.
GptConfig named_gpt(const std::string& name);
const std::vector<std::string>& gpt_names();

class Gpt {
 public:
  // `recompute`: blocks keep their input only and run again in backward.
  explicit Gpt(GptConfig config, bool recompute = false);
  Gpt(const Gpt&) = delete;  // units and tapes hold addresses of parameters
  Gpt& operator=(const Gpt&) = delete;

  const GptConfig& config() const { return config_; }
  // Root (token embedding = output head, positions, last norm) first, then each block "h.0", "h.1",
  // …
  std::vector<Unit>& units() { return units_; }
  std::deque<Parameter>& parameters() { return parameters_; }  // in the order of the units

  // Mean cross-entropy of `targets` (B, T) given `ids` (B, T), both i32, T <= block_size -> (1).
  // A null tape: evaluation. Parameters must be there when their unit's before_forward returns.
  Var loss(Tape* tape, UnitObserver& observer, const Tensor& ids, const Tensor& targets);

  // Logits (1, V) of the token that follows the one window `ids` (1, T).
  Tensor next_token_logits(UnitObserver& observer, const Tensor& ids);

 private:
  Unit& add_unit(std::string name);
  void own(Unit& unit, const std::string& name, Shape shape, double mean, double deviation);
  Var hidden(Tape* tape, UnitObserver& observer,
             const Tensor& ids);  // (B, T, C) after the last norm, inside root
  Var block(Tape* tape, Unit& unit, const Var& x) const;

  GptConfig config_;
  bool recompute_;
  std::deque<Parameter> parameters_;
  std::vector<Unit> units_;
};

}  // namespace zl
