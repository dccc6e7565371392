#include "tests/nn/data/markov.h"

#include <algorithm>
#include <cmath>

#include "tensor/random.h"

namespace zl {

static_assert(MarkovSource::kAlphabet.size() == MarkovSource::kSymbols);

MarkovSource::MarkovSource(uint64_t seed) : seed_(seed) {
  const PhiloxStream random{seed, fnv1a("markov transitions")},
      entropies{seed, fnv1a("markov entropies")};
  for (size_t i = 0; i < kSymbols; ++i) {
    Row z;
    for (size_t j = 0; j < kSymbols; ++j) z[j] = random.normal(i * kSymbols + j);
    transition_[i] = row_with_entropy(z, 1.2 + 0.4 * entropies.uniform(i));
  }
  find_stationary();
}

double MarkovSource::entropy_of(const Row& probabilities) {
  double sum = 0;
  for (double p : probabilities) sum -= p > 0 ? p * std::log(p) : 0;
  return sum;
}

// softmax(s * normals) with this entropy, which decreases in s from ln 8 to 0: bisection.
MarkovSource::Row MarkovSource::row_with_entropy(const Row& normals, double entropy) {
  const double largest = *std::max_element(normals.begin(), normals.end());
  Row row;
  double low = 0, high = 1000;
  for (int step = 0; step < 100; ++step) {
    const double s = (low + high) / 2;
    double sum = 0;
    for (size_t j = 0; j < kSymbols; ++j) sum += row[j] = std::exp(s * (normals[j] - largest));
    for (double& p : row) p /= sum;
    (entropy_of(row) > entropy ? low : high) = s;
  }
  return row;
}

// Power iteration. All probabilities are positive, so there is one stationary distribution.
void MarkovSource::find_stationary() {
  stationary_.fill(1.0 / kSymbols);
  double change = 1;
  for (int step = 0; step < 100000 && change > 1e-15; ++step) {
    Row next{};
    for (size_t i = 0; i < kSymbols; ++i)
      for (size_t j = 0; j < kSymbols; ++j) next[j] += stationary_[i] * transition_[i][j];
    change = 0;
    for (size_t i = 0; i < kSymbols; ++i) change += std::abs(next[i] - stationary_[i]);
    stationary_ = next;
  }
}

double MarkovSource::entropy() const {
  double sum = 0;
  for (size_t i = 0; i < kSymbols; ++i) sum += stationary_[i] * entropy_of(transition_[i]);
  return sum;
}

int MarkovSource::choose(const Row& probabilities, double u) {
  double below = 0;
  for (int j = 0; j < kSymbols; ++j) {
    below += probabilities[size_t(j)];
    if (u < below) return j;
  }
  // Rounding left a gap below 1.
  return int(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
}

std::string MarkovSource::generate(int64_t n) const {
  const PhiloxStream random{seed_, fnv1a("markov text")};
  std::string text;
  for (int64_t i = 0, symbol = -1; i < n; ++i) {
    const Row& row = symbol < 0 ? stationary_ : transition_[size_t(symbol)];
    symbol = choose(row, random.uniform(uint64_t(i)));
    text += kAlphabet[size_t(symbol)];
  }
  return text;
}

}  // namespace zl
