#include "tensor/cpu/vector_math.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <vector>

namespace {

using namespace zl;
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity(),
                kNan = std::numeric_limits<float>::quiet_NaN();

double relative_error(float value, double expected) {
  return std::abs(value - expected) / std::abs(expected);
}

std::vector<float> ramp(int n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) x[size_t(i)] = std::sin(float(i) * 1.7f) * float(1 + i % 5);
  return x;
}

float lane_sum(const float* x, int64_t n) {
  return sum_lanes(n, [&](int64_t i) { return x[i]; });
}

TEST_CASE("exp_fast is within one rounding of e^x wherever the result is normal", "[tensor]") {
  double worst = 0;
  for (double x = -87.3; x < 88.72; x += 0.00137)
    worst = std::max(worst, relative_error(exp_fast(float(x)), std::exp(double(float(x)))));
  CHECK(worst < 1.2e-7);
  CHECK(relative_error(exp_fast(1.0001f), std::exp(1.0)) > 1.2e-7);  // another argument differs
}

TEST_CASE(
    "exp_fast overflows to infinity, underflows through subnormals to zero and returns NaN for NaN",
    "[tensor]") {
  CHECK(exp_fast(0.0f) == 1.0f);
  CHECK(exp_fast(-0.0f) == 1.0f);
  CHECK(exp_fast(88.8f) == kFloatInfinity);
  CHECK(exp_fast(1e30f) == kFloatInfinity);
  CHECK(exp_fast(kFloatInfinity) == kFloatInfinity);
  CHECK(exp_fast(-kFloatInfinity) == 0.0f);
  CHECK(exp_fast(-1e30f) == 0.0f);
  CHECK(exp_fast(-100.0f) > 0.0f);
  CHECK(std::abs(double(exp_fast(-100.0f)) - std::exp(-100.0)) <= 0x1p-149);
  CHECK(std::isnan(exp_fast(kNan)));
}

TEST_CASE("exp_fast of a double is the library's", "[tensor]") {
  CHECK(exp_fast(0.3) == std::exp(0.3));
}

TEST_CASE("a vectorised loop of exp_fast has the bits of single calls at every offset and length",
          "[tensor]") {
  const std::vector<float> x = ramp(100);
  std::vector<float> single;
  for (const float v : x) single.push_back(exp_fast(v));
  for (size_t offset = 0; offset < 17; ++offset) {
    std::vector<float> y(x.size() - offset);
#pragma omp simd
    for (size_t i = 0; i < y.size(); ++i) y[i] = exp_fast(x[i + offset]);
    CHECK(y == std::vector<float>(single.begin() + long(offset), single.end()));
  }
}

TEST_CASE("sum_lanes adds sixteen lanes in order and then pairwise, bit for bit", "[tensor]") {
  const std::vector<float> x = ramp(257);
  for (const int n : {0, 1, 3, 15, 16, 17, 31, 33, 65, 130, 257}) {
    std::vector<float> lane(16, 0.0f);
    for (int i = 0; i < n; ++i) lane[size_t(i % 16)] += x[size_t(i)];
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    CHECK(lane_sum(x.data(), n) == lane[0]);
  }
}

TEST_CASE("sum_lanes depends on the order of the values, not on their addresses", "[tensor]") {
  const std::vector<float> x = ramp(200);
  const float sum = lane_sum(x.data(), 200);
  for (size_t offset = 0; offset < 17; ++offset) {
    std::vector<float> moved(offset, 1e9f);
    moved.insert(moved.end(), x.begin(), x.end());
    CHECK(lane_sum(moved.data() + offset, 200) == sum);
  }
  float in_order = 0;
  for (const float v : x) in_order += v;
  CHECK(in_order != sum);  // so the equality above compares something
}

TEST_CASE("max_lanes finds the largest term wherever it is", "[tensor]") {
  for (const int64_t n : {1, 3, 16, 17, 65}) {
    for (int64_t at = 0; at < n; ++at) {
      CHECK(max_lanes(n, -kFloatInfinity, [&](int64_t i) { return i == at ? 2.0f : -float(i); }) ==
            2.0f);
    }
  }
  CHECK(max_lanes(0, -3.0f, [](int64_t) { return 1.0f; }) == -3.0f);
}

}  // namespace
