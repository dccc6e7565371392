#include "nn/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace zl {

namespace {

void check(const SampleOptions& options) {
  require_input(std::isfinite(options.temperature) && options.temperature >= 0,
                "temperature must be 0 or more, not ", options.temperature);
  require_input(options.top_k >= 0, "top-k must be 1 or more, or 0 for all tokens, not ",
                options.top_k);
}

// The tokens to draw from, in ascending order.
std::vector<int32_t> candidates(std::span<const float> logits, int64_t top_k) {
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (top_k == 0 || top_k >= int64_t(tokens.size())) return tokens;
  const auto more_likely = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  };
  std::nth_element(tokens.begin(), tokens.begin() + (top_k - 1), tokens.end(), more_likely);
  tokens.resize(size_t(top_k));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// Logits of the next token, in fp32 on the host.
std::vector<float> next_logits(Gpt& model, UnitObserver& observer, Memory& memory,
                               std::span<const int32_t> sequence) {
  const Tensor ids =
      Tensor::empty(memory, MemoryUse::activation, {1, int64_t(sequence.size())}, Dtype::i32);
  kernel::upload(sequence, ids);
  return kernel::download_floats(model.next_token_logits(observer, ids));
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const SampleOptions& options, int64_t index) {
  check(options);
  require(!logits.empty() && index >= 0, "sample_token: cannot draw number ", index, " from ",
          logits.size(), " logits");
  // NaN has no order.
  const bool comparable = std::ranges::none_of(logits, [](float x) { return std::isnan(x); });
  const auto top = comparable ? std::ranges::max_element(logits) : logits.begin();
  require_input(
      comparable && std::isfinite(*top),
      "the model's logits are not finite, so no token can be sampled: has training diverged?");
  if (options.temperature == 0) return int32_t(top - logits.begin());

  const std::vector<int32_t> tokens = candidates(logits, options.top_k);
  // Cumulative sums of the unnormalised probabilities.
  std::vector<double> below(tokens.size());
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i)
    below[i] = sum +=
        std::exp((double(logits[size_t(tokens[i])]) - double(*top)) / options.temperature);
  const double u = PhiloxStream{options.seed, fnv1a("sample")}.uniform(uint64_t(index)) * sum;
  // u < sum, so the search finds a token whose probability is not 0.
  return tokens[size_t(std::upper_bound(below.begin(), below.end(), u) - below.begin())];
}

std::vector<int32_t> generate(Gpt& model, UnitObserver& observer, Memory& memory,
                              std::span<const int32_t> prompt, int64_t n,
                              const SampleOptions& options) {
  check(options);
  require_input(!prompt.empty(), "a prompt needs at least one token");
  for (size_t i = 0; i < prompt.size(); ++i)
    require_input(prompt[i] >= 0 && prompt[i] < model.config().vocab, "token ", prompt[i],
                  " at position ", i, " of the prompt is outside the vocabulary of ",
                  model.config().vocab);
  require_input(n >= 0, "cannot generate ", n, " tokens");
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < n; ++i) {
    if (options.poll) options.poll();
    const size_t seen = std::min(text.size(), size_t(model.config().block_size));
    text.push_back(
        sample_token(next_logits(model, observer, memory, std::span(text).last(seen)), options, i));
  }
  return {text.begin() + std::ptrdiff_t(prompt.size()), text.end()};
}

}  // namespace zl
