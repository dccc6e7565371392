// The numbers of lessons 12 to 15, derived a second time, and what 14 reports about its faults.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

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

// The last line about each rank in a report of --full: "rank 2: 28 calls, now outside any call".
std::vector<std::string> lines_of_ranks(const std::string& out, int fault) {
  const size_t begin = out.find("fault " + std::to_string(fault) + "\n"),
               end = out.find("fault_" + std::to_string(fault) + "_rank");
  std::vector<std::string> found;
  for (const std::string& line : cli::lines(out.substr(begin, end - begin)))
    if (std::regex_search(line, std::regex("^~ rank [0-9]: "))) found.push_back(line);
  return found;
}
// The ranks whose line contains `text`.
std::vector<int64_t> ranks_with(const std::vector<std::string>& lines, const std::string& text) {
  std::vector<int64_t> ranks;
  for (size_t r = 0; r < lines.size(); ++r)
    if (cli::contains(lines[r], text)) ranks.push_back(int64_t(r));
  return ranks;
}

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
  std::map<std::string, int64_t> expected{{"none", bytes(L * none + root + C)},
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

TEST_CASE("12 shows buffers with numbers that fit on paper", "[tutorials]") {
  // Root 3,168 and a block 12,704, up to multiples of 64.
  check_numbers("12_activations", "--ranks 4",
                {{"fused_2_layers", 4 * (3200 + 2 * 12736)},
                 {"fused_8_layers", 4 * (3200 + 8 * 12736)},
                 {"constant_2_layers", 4 * 12736},
                 {"constant_8_layers", 4 * 12736}});
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

TEST_CASE("14 injects a fault on each rank, some day, and finds it", "[tutorials]") {
  std::map<int, std::set<int64_t>> ranks;
  for (int seed = 0; seed < 6; ++seed) {
    const std::string document =
        lesson_document("14_failures", "--ranks 2 --seed " + std::to_string(seed));
    CAPTURE(seed, document);
    CHECK_FALSE(cli::contains(document, "\"ok\": false"));
    for (int fault = 1; fault <= 5; ++fault)
      ranks[fault].insert(measured(document, "fault_" + std::to_string(fault) + "_rank"));
    // Of a step: 5 gathers and 3 reduce-scatters, then the norm, then the loss.
    CHECK(measured(document, "fault_1_call") == 10 + 9);
    CHECK(measured(document, "fault_2_call") == 20 + 9);
    CHECK(measured(document, "fault_4_call") == 9);
    CHECK(measured(document, "fault_5_call") == 30 + 9);
    CHECK(measured(document, "fault_4_bytes") == 64 * 4 * 4 * 32 * 65);
  }
  for (const auto& [fault, of] : ranks) {
    CAPTURE(fault);
    CHECK(of == std::set<int64_t>{0, 1});
  }
}

TEST_CASE("14's whole reports show in the calls which rank is the odd one", "[tutorials]") {
  const cli::Finished finished = run_lesson("14_failures", "--ranks 3 --seed 5 --full");
  const std::string& out = finished.out;
  INFO(out);
  REQUIRE(finished.code == 0);
  const auto named = [&](int fault) {
    const std::string key = "fault_" + std::to_string(fault) + "_rank";
    return std::vector<int64_t>{
        measured(lesson_document("14_failures", "--ranks 3 --seed 5"), key)};
  };
  REQUIRE(lines_of_ranks(out, 2).size() == 3);
  CHECK(ranks_with(lines_of_ranks(out, 2), "28 calls, now outside any call") == named(2));
  CHECK(ranks_with(lines_of_ranks(out, 5), "38 calls, has ended") == named(5));
  CHECK(ranks_with(lines_of_ranks(out, 1), "19 calls") == std::vector<int64_t>{0, 1, 2});
  CHECK(lines_of_ranks(out, 3).empty());  // a straggler is no failure
  CHECK(std::ranges::count(cli::lines(out), '~', [](const std::string& line) {
          return line.empty() ? ' ' : line[0];
        }) > 5 * 3);
}

TEST_CASE("14 asks for the rank after its report and before its answer", "[tutorials]") {
  const std::string out =
      run_lesson("14_failures", "--predict fault_2_rank --predict fault_5_rank=9", "9\n").out;
  INFO(out);
  const size_t report = out.find("only 3 of 4 ranks came"), question = out.find("fault_2_rank? "),
               answer = out.find("outside any call: a hang");
  REQUIRE(question != std::string::npos);
  CHECK(report < question);
  CHECK(question < answer);
  CHECK(cli::contains(out, "0 of your 2 predictions are right"));
}

namespace {

// GPT-2's vocabulary, positions and last norm; then 12 blocks. All are multiples of 16 elements but
// the embedding, 50257 * 768, which is one too. A unit is padded to a multiple of 16 N.
double padded(double n, int ranks) { return std::ceil(n / (16.0 * ranks)) * 16 * ranks; }
double root(int ranks) { return padded((50257.0 + 1024 + 2) * 768, ranks); }
double all(int ranks) { return root(ranks) + 12 * padded(12.0 * 768 * 768 + 13 * 768, ranks); }

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
