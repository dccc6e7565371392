// Sampling: the pure function against softmax, and texts from a small model.

#include "nn/data/sampler.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tests/nn/scratch_folder.h"

namespace zl {
namespace {

using Tokens = std::vector<int32_t>;

const std::vector<float> kLogits = {0.5f, 2, -1, 1.25f, 2, 0, -3, 1};  // tokens 1 and 4 are equal

std::vector<double> counts(const SampleOptions& options, int64_t draws = 20000) {
  std::vector<double> n(kLogits.size());
  for (int64_t i = 0; i < draws; ++i) n[size_t(sample_token(kLogits, options, i))]++;
  return n;
}

// Pearson's statistic of the counts against softmax(logits / temperature) over `tokens`.
double chi_square(const std::vector<double>& n, double temperature, const Tokens& tokens) {
  double sum = 0, draws = std::accumulate(n.begin(), n.end(), 0.0), statistic = 0;
  for (int32_t t : tokens) sum += std::exp(kLogits[size_t(t)] / temperature);
  for (int32_t t : tokens) {
    const double expected = draws * std::exp(kLogits[size_t(t)] / temperature) / sum;
    statistic += (n[size_t(t)] - expected) * (n[size_t(t)] - expected) / expected;
  }
  return statistic;
}

const Tokens kAll = {0, 1, 2, 3, 4, 5, 6, 7};

// A small GPT with its own memory, initialised by the seed.
struct SmallGpt {
  explicit SmallGpt(uint64_t seed) {
    for (Parameter& p : model.parameters()) {
      p.data = Tensor::empty(memory, MemoryUse::parameter, p.shape);
      // Larger than the usual initial values, so that predictions are far from uniform.
      kernel::normal({seed, fnv1a(p.name), p.initial_mean, 20 * p.initial_deviation}, 0, p.data);
    }
  }
  Tokens write(const Tokens& prompt, int64_t n, const SampleOptions& options) {
    return generate(model, observer, memory, prompt, n, options);
  }
  EventStream events;
  Memory memory{{}, cpu_backend(), events};
  Gpt model{{.layers = 2, .heads = 2, .width = 8, .block_size = 6, .vocab = 11}};
  UnitObserver observer;
};

}  // namespace

TEST_CASE("tokens have the frequencies of softmax, at every temperature", "[nn]") {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    CAPTURE(temperature);
    const auto n = counts({.temperature = temperature});
    CHECK(chi_square(n, temperature, kAll) <
          24.3);  // 7 degrees of freedom, p = 0.001; the seed is fixed
    CHECK(chi_square(n, temperature * 1.5, kAll) >
          24.3);  // another temperature is another distribution
  }
}

TEST_CASE("top-k draws only from the k most likely tokens, with the frequencies of their softmax",
          "[nn]") {
  const auto n = counts({.top_k = 4});
  for (int32_t t : {0, 2, 5, 6}) CHECK(n[size_t(t)] == 0);
  CHECK(chi_square(n, 1, {1, 3, 4, 7}) < 16.3);  // 3 degrees of freedom, p = 0.001
  CHECK(counts({.top_k = 8}) == counts({}));
  CHECK(counts({.top_k = 1000}) == counts({}));
  CHECK(counts({.top_k = 7}) != counts({}));
}

TEST_CASE("of equal tokens the lower one is more likely to top-k and to temperature 0", "[nn]") {
  for (int64_t i = 0; i < 200; ++i) {
    CHECK(sample_token(kLogits, {.top_k = 1}, i) == 1);
    CHECK(sample_token(kLogits, {.temperature = 0}, i) == 1);
    CHECK(sample_token(kLogits, {.temperature = 0, .top_k = 5}, i) == 1);
  }
  const std::vector<float> equal(100, 1.5f);
  Tokens seen;
  for (int64_t i = 0; i < 500; ++i) seen.push_back(sample_token(equal, {.top_k = 3}, i));
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  CHECK(seen == Tokens{0, 1, 2});
}

TEST_CASE("a temperature near 0 becomes the most likely token, and a huge one uniform", "[nn]") {
  const std::vector<float> logits = {1, 1.01f, 0.5f};
  for (const double temperature : {1e-4, 1e-30, 5e-324})
    for (int64_t i = 0; i < 100; ++i)
      CHECK(sample_token(logits, {.temperature = temperature}, i) == 1);
  const auto n = counts({.temperature = 1e9});
  for (double count : n) CHECK(std::abs(count - 2500) < 250);
}

TEST_CASE("the random number depends on seed and index and nothing else", "[nn]") {
  const auto draw = [](uint64_t seed) {
    Tokens tokens;
    for (int64_t i = 0; i < 50; ++i) tokens.push_back(sample_token(kLogits, {.seed = seed}, i));
    return tokens;
  };
  CHECK(draw(1) == draw(1));
  CHECK(draw(1) != draw(2));
  CHECK(sample_token(kLogits, {.seed = 1}, 49) == draw(1)[49]);
}

TEST_CASE("tokens of probability zero are never drawn", "[nn]") {
  const float never = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < 500; ++i)
    CHECK(sample_token(std::vector<float>{never, 3, never, 3, never}, {}, i) % 2 == 1);
  CHECK(sample_token(std::vector<float>{-3e38f, 3e38f}, {}, 0) == 1);
}

TEST_CASE("options and logits that cannot be sampled from are refused", "[nn]") {
  const auto refused = [](std::vector<float> logits, SampleOptions options) {
    return sentence_of([&] { sample_token(logits, options, 0); });
  };
  check_says(refused(kLogits, {.temperature = -1}), "temperature must be 0 or more, not -1");
  check_says(refused(kLogits, {.temperature = NAN}), "temperature");
  check_says(refused(kLogits, {.temperature = INFINITY}), "temperature");
  check_says(refused(kLogits, {.top_k = -1}),
             "top-k must be 1 or more, or 0 for all tokens, not -1");
  check_says(refused({1, NAN, 2}, {}), "not finite");
  check_says(refused({1, INFINITY}, {.temperature = 0}), "not finite");
  check_says(refused({-INFINITY, -INFINITY}, {}), "not finite");
  CHECK_THROWS_AS(sample_token({}, {}, 0), std::invalid_argument);
}

TEST_CASE("the same seed writes the same text", "[nn]") {
  SmallGpt a(1), b(1);
  const Tokens text = a.write({3, 1, 4}, 30, {.seed = 5});
  CHECK(text.size() == 30);
  CHECK(b.write({3, 1, 4}, 30, {.seed = 5}) == text);
  CHECK(a.write({3, 1, 4}, 30, {.seed = 6}) != text);
  CHECK(SmallGpt(2).write({3, 1, 4}, 30, {.seed = 5}) != text);
  CHECK(a.write({3, 1, 4}, 10, {.seed = 5}) == Tokens(text.begin(), text.begin() + 10));
  CHECK(a.write({3, 1, 4}, 0, {}).empty());
}

TEST_CASE("the most likely text is that of temperature 0 and of top-k 1, whatever the seed",
          "[nn]") {
  SmallGpt gpt(1);
  const Tokens text = gpt.write({3, 1, 4}, 20, {.temperature = 0});
  CHECK(gpt.write({3, 1, 4}, 20, {.top_k = 1, .seed = 9}) == text);
  CHECK(gpt.write({3, 1, 4}, 20, {.temperature = 5}) != text);
}

TEST_CASE("the model sees the last block_size tokens and no others", "[nn]") {
  SmallGpt gpt(1);
  const SampleOptions options{.seed = 3};
  const Tokens six = {1, 2, 3, 4, 5, 6};
  CHECK(gpt.write({9, 9, 9, 1, 2, 3, 4, 5, 6}, 25, options) == gpt.write(six, 25, options));
  bool sixth_matters = false;
  for (uint64_t seed = 0; seed < 200 && !sixth_matters; ++seed)
    sixth_matters =
        gpt.write({10, 2, 3, 4, 5, 6}, 1, {.seed = seed}) != gpt.write(six, 1, {.seed = seed});
  CHECK(sixth_matters);
}

TEST_CASE("writing leaves no memory behind", "[nn]") {
  SmallGpt gpt(1);
  const int64_t before = gpt.memory.ledger().live_total();
  gpt.write({1, 2}, 10, {});
  CHECK(gpt.memory.ledger().live_total() == before);
}

TEST_CASE("a prompt must hold tokens of the vocabulary", "[nn]") {
  SmallGpt gpt(1);
  const auto refused = [&](const Tokens& prompt) {
    return sentence_of([&] { gpt.write(prompt, 1, {}); });
  };
  check_says(refused({}), "at least one token");
  check_says(refused({1, 11}),
             "token 11 at position 1 of the prompt is outside the vocabulary of 11");
  check_says(refused({-1}), "token -1");
  CHECK(refused({10}).empty());
}

}  // namespace zl
