// A source of text with known entropy: a test can check that a model's loss approaches it.
//
// An order-1 Markov chain over 8 printable symbols: each symbol depends only on the previous one.
// No model has a lower loss than the entropy rate, and a model that knows the current symbol can
// reach it. Shannon 1948, "A mathematical theory of communication", sections 4 and 7.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace zl {

class MarkovSource {
 public:
  static constexpr int kSymbols = 8;
  static constexpr std::string_view kAlphabet = "\n abcdef";  // reads as lines of words

  // The transition probabilities depend on the seed alone. Row i is softmax(s_i * z_i), z standard
  // normal. s_i gives the row an entropy that is drawn from [1.2, 1.6) nats, so the source's
  // entropy is in that range, too. Uniform symbols would have ln 8 = 2.08 nats.
  explicit MarkovSource(uint64_t seed);

  double transition(int from, int to) const { return transition_[size_t(from)][size_t(to)]; }
  double stationary(int symbol) const { return stationary_[size_t(symbol)]; }
  // [nats per token] Entropy rate -sum_i pi_i sum_j p_ij ln p_ij: the lowest possible loss.
  double entropy() const;

  // The first n symbols as text. The same seed gives the same bytes, and a shorter text is a prefix
  // of a longer one.
  std::string generate(int64_t n) const;

 private:
  using Row = std::array<double, kSymbols>;
  static double entropy_of(const Row& probabilities);
  static Row row_with_entropy(const Row& normals, double entropy);
  static int choose(const Row& probabilities, double u);
  void find_stationary();

  uint64_t seed_;
  std::array<Row, kSymbols> transition_;
  Row stationary_;
};

}  // namespace zl
