// The numbers of lessons 12 to 14, derived a second time, and what 14 reports about its faults.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

using Numbers = std::map<std::string, int64_t>;

void check_numbers(const std::string& lesson, const std::string& arguments,
                   const Numbers& expected) {
  const std::string document = lesson_document(lesson, arguments);
  INFO(document);
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  for (const auto& [key, number] : expected) {
    CAPTURE(lesson, arguments, key);
    CHECK(measured(document, key) == number);
  }
}

// [n] per token, from the list of tensors that a block saves for backward: (width, recomputed by
// "selective").
constexpr int64_t C = 32, H = 2, V = 65, BT = 4 * 32;
int64_t block_saves(bool selective) {
  const std::vector<std::pair<int64_t, bool>> tensors = {
      {C, false},                  // input
      {2, false},                  // mean and 1/std of ln_1
      {C, true},                   // ln_1
      {3 * C, false},              // queries, keys, values
      {C, false},     {H, false},  // attention, log-sum-exp
      {C, false},                  // first sum
      {2, false},     {C, true},   // ln_2
      {4 * C, false},              // input of GELU
      {4 * C, true}};              // GELU
  int64_t all = 0;
  for (const auto& [width, again] : tensors) all += selective && again ? 0 : width;
  return all;
}
int64_t bytes(int64_t per_token, int64_t numbers = 1) { return 4 * (BT * per_token + numbers); }

}  // namespace

TEST_CASE("12 keeps what the tensors of a block add up to, wherever inputs wait", "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4), L = GENERATE(1, 2, 5);
  const int64_t none = block_saves(false), some = block_saves(true), input = BT * C;
  const int64_t part = (input + N - 1) / N, tokens = 2;  // ids and targets
  const int64_t root = tokens + C + 2 + V;               // input of ln_f, its statistics, logits
  // Backward of the head writes over the logits and adds the gradient of ln_f's output. In the last
  // block: the gradients of its output and of GELU's. A block that runs again has an output too.
  const int64_t none_peak = bytes(L * none + std::max(root + 2 * C, tokens + 5 * C));
  const int64_t full_peak = bytes((L - 1) * C + none + tokens + 6 * C);
  Numbers expected{{"none", bytes(L * none + root + C)},
                   {"selective", bytes(L * some + root)},
                   {"full", bytes(L * C + root + C)},
                   {"none_peak", none_peak},
                   {"selective_peak", bytes(L * some + tokens + 5 * C)},
                   {"full_peak", full_peak},
                   {"host_peak", full_peak - 4 * (L - 1) * input},
                   {"host_bytes", 4 * L * input},
                   {"host_moved", 4 * L * input},
                   {"parts_sent", 4 * L * (N - 1) * part},
                   {"operations_again", 0}};
  for (const auto& [rows, columns] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}})
    expected["operations_again"] += L * 2 * BT * rows * columns;
  if (N > 1) {  // a rank alone keeps its inputs whole
    expected["parts_waiting"] = bytes(root + C) + 4 * L * part;
    expected["parts_peak"] = full_peak + 4 * (L * part + N * part - L * input);
    expected["both_host_bytes"] = 4 * L * part;
  }
  check_numbers("12_activations", "--ranks " + std::to_string(N) + " --layers " + std::to_string(L),
                expected);
}

TEST_CASE("12 shows buffers and an arena with numbers that fit on paper", "[tutorials]") {
  // Root 3,168 and a block 12,704, up to multiples of 64.
  check_numbers("12_activations", "--ranks 4",
                {{"fused_2_layers", 4 * (3200 + 2 * 12736)},
                 {"fused_8_layers", 4 * (3200 + 8 * 12736)},
                 {"constant_2_layers", 4 * 12736},
                 {"constant_8_layers", 4 * 12736},
                 {"live", 12},
                 {"arena", 15},  // wwkwwkwwkwwk, then ..k..k..k..kwww
                 {"in_chunks", 12},
                 {"kept_chunk", 385540},
                 {"gradient_chunk", 114688}});
}

TEST_CASE("13 saves 12 bytes per parameter and a position, equal for all stages and ranks",
          "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4), M = N == 1 ? 2 : N - 1;
  const int64_t per_step = N / std::gcd(N, M) * M;
  const std::string document = lesson_document("13_checkpoints", "--ranks " + std::to_string(N));
  INFO(document);
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  CHECK(measured(document, "tensor_bytes") == 12 * 28576);
  CHECK(measured(document, "next_window") == 3 * per_step);
  CHECK(measured(document, "window_at_end") == 6 * per_step);
  CHECK(measured(document, "different_saves") == 1);
  CHECK(measured(document, "broken") == 0);
  const int64_t killed = measured(document, "killed"), old = measured(document, "old_left");
  CHECK(killed == 24);
  CHECK(old > killed / 2);  // most calls write data
  CHECK(old < killed);
}

}  // namespace tutorials
