// Every lesson ends with PASS, and the numbers of 02, 05 to 08 and 13 are derived here a second
// time. What 14 reports about its faults.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

using Numbers = std::map<std::string, int64_t>;

std::string join(const std::vector<std::pair<std::string, int64_t>>& flags) {
  std::string text;
  for (const auto& [flag, value] : flags) text += " " + flag + " " + std::to_string(value);
  return text;
}

// The document of a run whose checks all hold.
std::string passed(const std::string& lesson,
                   const std::vector<std::pair<std::string, int64_t>>& flags) {
  const std::string document = lesson_document(lesson, join(flags));
  INFO(document);
  CHECK(nlohmann::json::parse(document).at("ok") == true);
  return document;
}

// The expression of micrograd's README, line by line.
double readme(double a, double b) {
  double c = a + b;
  double d = a * b + b * b * b;
  c += c + 1;
  c += 1 + c + (-a);
  d += d * 2 + std::max(b + a, 0.0);
  d += 3 * d + std::max(b - a, 0.0);
  const double e = c - d, f = e * e;
  return f / 2 + 10 / f;
}

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

// At 2 ranks: with --json, flags_test.cpp; at 3 on the reference: with --step, step_test.cpp; at 4:
// quoted by its chapter, chapters_test.cpp.
TEST_CASE("every lesson ends with PASS on one rank, and says nothing else with --quiet",
          "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    if (name.starts_with("13")) continue;  // it takes seconds; below
    const cli::Finished finished = run_lesson(name, "--ranks 1 --quiet");
    CAPTURE(name, finished.out, finished.err);
    CHECK(finished.code == 0);
    CHECK(finished.err.empty());
    CHECK(finished.seconds < 20);  // 2 on an idle machine
    REQUIRE(cli::lines(finished.out).size() == 1);
    CHECK(finished.out.starts_with("RESULT " + name + " PASS "));
    const std::string line = cli::lines(finished.out)[0], counts = line.substr(line.rfind(' ') + 1);
    CHECK(counts.substr(0, counts.find('/')) == counts.substr(counts.find('/') + 1));
  }
}

TEST_CASE("05 to 08 measure what the paper's formulas give with our padding", "[tutorials]") {
  const int64_t N = GENERATE(1, 3);
  const Layout m = layout(N);
  const std::string ranks = "--ranks " + std::to_string(N);
  Numbers of_ddp{{"different_weights", 1},
                 {"allreduce_bytes", 2 * m.once(m.all())},
                 {"state_bytes", 16 * m.all()}};
  if (N > 1) of_ddp.insert({{"norm_without_division", N}, {"weights_that_drift", N}});
  check_numbers("05_ddp", ranks, of_ddp);
  check_numbers("06_zero1", ranks,
                {{"parameters", 28576},
                 {"padding", m.all() - 28576},
                 {"owned", m.all() / N},
                 {"optimizer_bytes", 8 * m.all() / N},
                 {"state_bytes", 8 * m.all() + 8 * m.all() / N},
                 {"reduce_scatter_bytes", m.once(m.all())},
                 {"all_gather_bytes", m.once(m.all())},
                 {"ddp_bytes", 2 * m.once(m.all())},
                 {"ddp_state_bytes", 16 * m.all()},
                 {"mistaken_bytes", 3 * m.once(m.all())}});
  check_numbers("07_zero2", ranks,
                {{"state_bytes", 4 * m.all() + 12 * m.all() / N},
                 {"gradient_zero1", 4 * m.all()},
                 {"gradient_1", 4 * (m.all() / N + m.root + m.block)},
                 {"gradient_500000000", 4 * (m.all() / N + m.all())},
                 {"zero1_bytes", 2 * m.once(m.all())},
                 {"zero2_bytes", 5 * m.once(m.all())}});
  check_numbers("08_zero3", ranks,
                {{"parameter_rest_bytes", 4 * m.all() / N},
                 {"parameter_peak_bytes", 4 * (m.all() / N + m.root + m.block)},
                 {"gathers", 5},
                 {"gathered_bytes", m.once(m.root + 4 * m.block)},
                 {"reduced_bytes", m.once(m.all())},
                 {"saved_by_root", m.once(m.root)}});
}

TEST_CASE("sharding parameters loses with few layers and wins with many", "[tutorials]") {
  const std::string two = lesson_document("08_zero3", "--ranks 2"),
                    one = lesson_document("08_zero3", "--ranks 1");
  CHECK(measured(two, "peak_2_layers") ==
        120640);  // 4 * (28576 / 2 + 3168 + 12704), above ddp's 4 * 28576 = 114304
  CHECK(measured(two, "peak_12_layers") < 4 * layout(2, 12).all());
  CHECK(measured(two, "layers_to_win") == 3);
  CHECK(measured(one, "layers_to_win") == 0);  // never
}

TEST_CASE("ZeRO-2 with one huge bucket needs more in all than ZeRO-1, once activations are few",
          "[tutorials]") {
  const std::string many = lesson_document("07_zero2", "--ranks 4"),
                    few = lesson_document("07_zero2", "--ranks 4 --rows 1 --recompute");
  CHECK(measured(many, "total_500000000") < measured(many, "total_zero1"));
  CHECK(measured(few, "total_500000000") > measured(few, "total_zero1"));
  CHECK(measured(few, "total_1") < measured(few, "total_zero1"));
}

TEST_CASE("lessons keep their promise with other flags and at the most ranks", "[tutorials]") {
  for (const auto& [name, arguments] : std::vector<std::pair<std::string, std::string>>{
           {"05_ddp", "--ranks 8"},
           {"06_zero1", "--ranks 5 --clip --steps 5"},
           {"08_zero3", "--ranks 5 --layers 12 --seed 7"},
           {"10_offload", "--ranks 5 --micro-batches 2"},
           {"11_overlap", "--ranks 5 --layers 3 --latency 1"}}) {
    const cli::Finished finished = run_lesson(name, arguments + " --quiet");
    CAPTURE(name, arguments, finished.out, finished.err);
    CHECK(finished.code == 0);
    CHECK(finished.out.starts_with("RESULT " + name + " PASS "));
  }
}

TEST_CASE("00 passes on every machine and names the command that says what is missing",
          "[tutorials]") {
  const int64_t N = GENERATE(1, 3, 8);
  const auto document = passed("00_doctor", {{"--ranks", N}});
  CHECK(measured(document, "sum_of_ranks") == (N == 1 ? 1 : N == 3 ? 6 : 36));
  const cli::Finished finished = run_lesson("00_doctor", "");
  CHECK(finished.code == 0);
  cli::check_says(finished.out, {"\n~ this machine: ", "\nThe course runs here", "./zl doctor"});
}

TEST_CASE("02 has micrograd's numbers, and central differences agree with its gradients",
          "[tutorials]") {
  const auto document = passed("02_autograd", {});
  const double h = 1e-5;
  CHECK(measured_number(document, "g") == Catch::Approx(readme(-4, 2)).epsilon(1e-12));
  // The error of a central difference is h^2 g''' / 6, and rounding of g, 1e-15 / h: together far
  // below 1e-6 of the gradient.
  CHECK(measured_number(document, "a_gradient") ==
        Catch::Approx((readme(-4 + h, 2) - readme(-4 - h, 2)) / (2 * h)).epsilon(1e-6));
  CHECK(measured_number(document, "b_gradient") ==
        Catch::Approx((readme(-4, 2 + h) - readme(-4, 2 - h)) / (2 * h)).epsilon(1e-6));
  CHECK(measured(document, "contributions") == 10);  // the README uses a and b five times each
}

TEST_CASE("02 visits the entries from the last to the first, each once", "[tutorials]") {
  std::vector<int> visited;
  for (const std::string& line : cli::lines(run_lesson("02_autograd", "").out))
    if (line.starts_with("  #")) visited.push_back(std::stoi(line.substr(3)));
  REQUIRE(visited.size() == 28);
  for (size_t i = 0; i < visited.size(); ++i) CHECK(visited[i] == int(visited.size() - 1 - i));
}

TEST_CASE("02 gives each rank its own gradient", "[tutorials]") {
  const int64_t N = GENERATE(1, 3, 5);
  const auto document = passed("02_autograd", {{"--ranks", N}});
  CHECK(measured(document, "different_gradients") == N);
  CHECK(measured(document, "final_gradients") == 4 + 2 * 12);  // tensors of root and of the blocks
}

TEST_CASE("04 has the library's bits if it adds in rank order, and other bits otherwise",
          "[tutorials]") {
  const auto off = [](int64_t N, const std::string& way) {
    return measured_number(passed("04_collectives", {{"--ranks", N}}), way + "_off");
  };
  for (const int64_t N : {2, 3, 4}) {
    CHECK(off(N, "root") == 0);
    CHECK(off(N, "direct") == 0);
  }
  CHECK(off(2, "ring") == 0);  // two values have one sum
  CHECK(off(3, "ring") > 0);
  CHECK(off(3, "tree") == 0);  // (0 + 1) + 2
  CHECK(off(4, "tree") > 0);   // (0 + 1) + (2 + 3)
}

TEST_CASE("13 saves 12 bytes per parameter and a position, equal for all stages and ranks",
          "[tutorials]") {
  const int64_t N = GENERATE(1, 4), M = N == 1 ? 2 : N - 1;
  const int64_t per_step = N / std::gcd(N, M) * M;
  const std::string document = lesson_document("13_checkpoints", "--ranks " + std::to_string(N));
  INFO(document);
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  CHECK(measured(document, "tensor_bytes") == 12 * 28576);
  CHECK(measured(document, "next_window") == 3 * per_step);
  CHECK(measured(document, "window_at_end") == 6 * per_step);
  CHECK(measured(document, "different_saves") == 1);
}

TEST_CASE("14 injects a fault on each rank, some day, and finds it", "[tutorials]") {
  std::map<int, std::set<int64_t>> ranks;
  for (int seed = 0; seed < 3; ++seed) {
    const std::string document =
        lesson_document("14_failures", "--ranks 2 --seed " + std::to_string(seed));
    CAPTURE(seed, document);
    CHECK_FALSE(cli::contains(document, "\"ok\": false"));
    for (int fault = 1; fault <= 5; ++fault)
      ranks[fault].insert(measured(document, "fault_" + std::to_string(fault) + "_rank"));
    // Of a step: 5 gathers and 3 reduce-scatters, then the norm, then the loss.
    CHECK(measured(document, "fault_1_call") == 10 + 9);
    CHECK(measured(document, "fault_2_call") == 20 + 9);
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

}  // namespace tutorials
