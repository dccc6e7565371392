// The source with known entropy.

#include "tests/nn/data/markov.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <vector>

namespace zl {
namespace {

constexpr int K = MarkovSource::kSymbols;

// Plug-in estimate of the entropy rate from the counts of pairs: the loss of the best table for
// this text.
double empirical_entropy(const std::string& text) {
  std::map<char, double> ones;
  std::map<std::pair<char, char>, double> pairs;
  for (size_t i = 0; i + 1 < text.size(); ++i) ones[text[i]]++, pairs[{text[i], text[i + 1]}]++;
  double sum = 0;
  for (const auto& [pair, n] : pairs) sum -= n * std::log(n / ones[pair.first]);
  return sum / double(text.size() - 1);
}

}  // namespace

TEST_CASE(
    "each row of the transition matrix is a distribution, and the stationary one is a fixed point",
    "[nn]") {
  for (const uint64_t seed : {0, 1, 1337, 99999}) {
    const MarkovSource source(seed);
    double total = 0;
    for (int j = 0; j < K; ++j) {
      double row = 0, arriving = 0;
      for (int i = 0; i < K; ++i) {
        CHECK(source.transition(j, i) > 0);
        row += source.transition(j, i);
        arriving += source.stationary(i) * source.transition(i, j);
      }
      CHECK(row == Catch::Approx(1).epsilon(1e-13));
      CHECK(arriving == Catch::Approx(source.stationary(j)).epsilon(1e-12));
      total += source.stationary(j);
    }
    CHECK(total == Catch::Approx(1).epsilon(1e-12));
  }
}

TEST_CASE("the entropy is that of the definition, between 1.2 and 1.6 nats for every seed",
          "[nn]") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const MarkovSource source(seed);
    double sum = 0;
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < K; ++j)
        sum -= source.stationary(i) * source.transition(i, j) * std::log(source.transition(i, j));
    CHECK(source.entropy() == Catch::Approx(sum).epsilon(1e-12));
    CHECK((source.entropy() >= 1.2 && source.entropy() < 1.6));
  }
}

TEST_CASE("the empirical entropy of a long text approaches the known one", "[nn]") {
  const MarkovSource source(3);
  // About K*K/2n too small from fitting, and noise of order 1/sqrt(n): 0.3 % at 400,000 is
  // generous.
  CHECK(empirical_entropy(source.generate(400000)) ==
        Catch::Approx(source.entropy()).epsilon(0.003));
  CHECK(empirical_entropy(source.generate(400000)) !=
        Catch::Approx(MarkovSource(4).entropy()).epsilon(0.003));
}

TEST_CASE("symbols have the frequencies of the stationary distribution", "[nn]") {
  const MarkovSource source(5);
  const std::string text = source.generate(400000);
  for (int i = 0; i < K; ++i) {
    const auto n = double(std::count(text.begin(), text.end(), MarkovSource::kAlphabet[size_t(i)]));
    CHECK(n / 400000 == Catch::Approx(source.stationary(i)).margin(0.005));
  }
}

TEST_CASE("the same seed gives the same text, and a shorter text is a prefix of a longer one",
          "[nn]") {
  const MarkovSource source(11);
  const std::string text = source.generate(70000);
  CHECK(text.size() == 70000);
  CHECK(MarkovSource(11).generate(70000) == text);
  CHECK(MarkovSource(12).generate(70000) != text);
  CHECK(source.generate(1) == text.substr(0, 1));
  CHECK(source.generate(65536) == text.substr(0, 65536));
}

}  // namespace zl
