// The fit of three terms, against times made from known terms.
#include "stages/predict/clock/collective_fit.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

using namespace zl;

namespace {

constexpr int64_t MiB = int64_t(1) << 20;

// t = alpha + root * sqrt(min(S, 128 MiB)) + S * 2 (n - 1) / n / bus, for 64 KiB to 8 GiB.
std::vector<TimedCall> all_reduces(double alpha, double root, double bus, int n) {
  std::vector<TimedCall> calls;
  for (int64_t S = 64 << 10; S <= 8192 * MiB; S *= 2)
    calls.push_back({S, alpha + root * std::sqrt(double(std::min(S, 128 * MiB))) +
                            double(S) * 2 * (n - 1) / n / bus});
  return calls;
}

}  // namespace

TEST_CASE("the fit finds the three terms that times were made from", "[stages]") {
  std::vector<TimedCall> calls = all_reduces(39e-6, 2.8e-8, 480e9, 16);
  const CollectiveTerms terms = fit_terms(calls, Collective::all_reduce, 16);
  CHECK(terms.alpha == Catch::Approx(39e-6).epsilon(1e-6));
  CHECK(terms.root == Catch::Approx(2.8e-8).epsilon(1e-6));
  CHECK(terms.bus == Catch::Approx(480e9).epsilon(1e-6));

  calls[3].seconds *= 1.5;
  CHECK(fit_terms(calls, Collective::all_reduce, 16).alpha != Catch::Approx(39e-6).epsilon(1e-3));
}

TEST_CASE("the bus bandwidth of a fit counts what a link carries of each collective", "[stages]") {
  // 1 ns for a byte; nccl-tests: of n ranks an all-reduce sends 2 (n - 1) / n, an all-gather half.
  const std::vector<TimedCall> calls = {{MiB, MiB * 1e-9}, {4 * MiB, 4 * MiB * 1e-9}};
  CHECK(fit_terms(calls, Collective::all_reduce, 4).bus == Catch::Approx(1.5e9));
  CHECK(fit_terms(calls, Collective::all_gather, 4).bus == Catch::Approx(0.75e9));
}

TEST_CASE("a term that would be negative is 0, and the others fit without it", "[stages]") {
  // Two times that grow faster than their sizes: a line through them starts below 0.
  const std::vector<TimedCall> calls = {{256 * MiB, 1e-3}, {512 * MiB, 2.2e-3}};
  const CollectiveTerms terms = fit_terms(calls, Collective::all_reduce, 2);
  CHECK(terms.alpha == 0);
  CHECK(terms.root == 0);
  // The least sum of (x S / t - 1)^2 has x = sum(S / t) / sum((S / t)^2).
  const double a = 256.0 * MiB / 1e-3, b = 512.0 * MiB / 2.2e-3;
  CHECK(terms.bus == Catch::Approx((a * a + b * b) / (a + b)));
}

TEST_CASE("two terms are enough where pipelines cost nothing", "[stages]") {
  const CollectiveTerms terms = fit_terms(all_reduces(5e-6, 0, 20e9, 8), Collective::all_reduce, 8);
  CHECK(terms.alpha == Catch::Approx(5e-6));
  CHECK(terms.root < 1e-13);  // [s/sqrt(B)] 1 ns of 128 MiB: rounding
  CHECK(terms.bus == Catch::Approx(20e9));
}

TEST_CASE("a fit needs calls with sizes and times", "[stages]") {
  CHECK_THROWS_AS(fit_terms({}, Collective::all_reduce, 2), std::invalid_argument);
  const std::vector<TimedCall> zero = {{MiB, 0}};
  CHECK_THROWS_AS(fit_terms(zero, Collective::all_reduce, 2), std::invalid_argument);
}
