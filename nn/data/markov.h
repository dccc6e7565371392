// A source of text whose entropy is known, so that a test can see a model's loss approach a
// computable number.
//
// An order-1 Markov chain over 8 printable symbols: each symbol depends on the one before it and on
// nothing else. No model can predict it better than its entropy rate, and a model that knows the
// current symbol can reach that. Shannon 1948, "A mathematical theory of communication", sections 4
// and 7.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace zl {

class MarkovSource {
 public:
  static constexpr int kSymbols = 8;
  static constexpr std::string_view kAlphabet = "\n abcdef";  // reads as lines of words

  // The transition probabilities depend on the seed alone. Row i is softmax(s_i * z_i), z standard
  // normal, with s_i so that the row has an entropy drawn from [1.2, 1.6) nats; so the source has,
  // too. A uniform one would have ln 8 = 2.08.
  explicit MarkovSource(uint64_t seed);

  double transition(int from, int to) const { return transition_[size_t(from)][size_t(to)]; }
  double stationary(int symbol) const { return stationary_[size_t(symbol)]; }
  // Entropy rate -sum_i pi_i sum_j p_ij ln p_ij: the loss that no model can beat.  [nats per token]
  double entropy() const;
  // What the source itself, as the best of all models, loses on this text of it: the mean of -ln p
  // of each symbol given the one before. Near entropy(), and free of the chance that a short text
  // is an easy one.  [nats per token]
  double loss_on(std::string_view text) const;

  // The first n symbols as text. The same seed gives the same bytes, and a shorter text is the
  // start of a longer one.
  std::string generate(int64_t n) const;
  // The same in pieces, for texts that need not lie in memory.
  void generate(int64_t n, const std::function<void(std::string_view)>& sink) const;

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

// Writes the first n symbols of the source to a file that --data can read. `path` holds the old
// file or the whole new one. Throws InputError if it cannot be written.
void write_text(const std::string& path, const MarkovSource& source, int64_t n);

}  // namespace zl
