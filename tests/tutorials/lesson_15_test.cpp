// The numbers of lesson 15, derived from GPT-2's sizes alone.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

// Vocabulary, positions and the last norm; then 12 blocks. All are multiples of 16 elements but the
// embedding, 50257 * 768, which is one too. A unit is padded to a multiple of 16 N.
double padded(double n, int ranks) { return std::ceil(n / (16.0 * ranks)) * 16 * ranks; }
double root(int ranks) { return padded((50257.0 + 1024 + 2) * 768, ranks); }
double all(int ranks) { return root(ranks) + 12 * padded(12.0 * 768 * 768 + 13 * 768, ranks); }

double measured_number(const std::string& document, const std::string& key) {
  const auto json = nlohmann::json::parse(document);
  for (const auto& number : json["numbers"])
    if (number["key"] == key) return number["measured"];
  return -1;
}

}  // namespace

TEST_CASE("15 finds the ranks that fit and the time of calls as the sizes say", "[tutorials]") {
  const int N = GENERATE(1, 2, 3, 4, 8);
  const std::string document = lesson_document("15_decision", "--ranks " + std::to_string(N));
  INFO(document);
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  const double unit = 2.0 * (N - 1) / N / 10e9 * 1e6;  // [us] per element
  const auto near = [&](const char* key, double elements) {
    CAPTURE(key);
    CHECK(measured_number(document, key) == Catch::Approx(elements * unit).epsilon(1e-3).margin(1));
    if (N > 1) CHECK(measured_number(document, key) != Catch::Approx(elements * unit * 1.01));
  };
  near("ddp_us", 2 * all(N));
  near("zero2_us", 2 * all(N));
  near("zero3_us", 3 * all(N) - root(N));
  near("zero2_4_us", 5 * all(N));
  // 1 GiB: 4 + 12 / N bytes of 124 million parameters fit with 4 ranks, and not with 2.
  CHECK(measured_number(document, "ddp_ranks") == 0);
  CHECK(measured_number(document, "zero1_ranks") == 4);
  CHECK(measured_number(document, "zero3_ranks") == 2);
}

}  // namespace tutorials
