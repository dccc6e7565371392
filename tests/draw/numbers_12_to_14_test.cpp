// The numbers in the pictures of lessons 12 to 14, from the sizes of the lessons' model alone.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>

#include "tests/draw/svg_text.h"
#include "tests/zerolab/process.h"

namespace draw {
namespace {

std::string picture(const std::string& name) {
  return cli::read_file(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials/pictures/" + name + ".svg");
}
std::string without_commas(std::string text) {
  std::erase(text, ',');
  return text;
}
// How many shapes have a name that matches.
int64_t named(const std::string& svg, const std::string& pattern) {
  const std::regex name(pattern);
  const auto shapes = named_shapes(svg);
  return std::ranges::count_if(
      shapes, [&](const Element& shape) { return std::regex_match(shape.text, name); });
}

}  // namespace

TEST_CASE("activations: the peak of each panel is that of lesson 12 with four blocks", "[draw]") {
  constexpr int64_t C = 32, V = 65, H = 2, L = 4, N = 4, BT = 4 * 32, input = BT * C;
  const auto bytes = [](int64_t per_token) { return 4 * (BT * per_token + 1); };
  const int64_t kept = 16 * C + 4 + H, full = bytes((L - 1) * C + kept + 2 + 6 * C);
  const std::string svg = without_commas(picture("activations"));
  const auto peak = [&](const std::string& panel, int64_t expected) {
    CAPTURE(panel, expected);
    CHECK(named(svg, panel + ": peak " + std::to_string(expected) + " B") == 1);
    CHECK(named(svg, panel + ": peak " + std::to_string(expected + 4) + " B") == 0);
  };
  peak("none", bytes(L * kept + 4 + 3 * C + V));
  peak("selective", bytes(L * (kept - 6 * C) + 2 + 5 * C));
  peak("full", full);
  // Four quarters wait instead of four inputs, and one is gathered.
  peak("full partitioned", full + 4 * (L * input / N + input - L * input));
}

TEST_CASE("checkpoint: every element is written by one of 4 ranks and read by one of 3", "[draw]") {
  constexpr int64_t C = 32, kBlock = 12 * C * C + 13 * C;
  const std::string svg = without_commas(picture("checkpoint"));
  static const std::regex piece(
      "rank ([0-9]) (writes|reads) (.*): ([0-9]+) elements from ([0-9]+)");
  std::map<std::string, std::map<int, int64_t>> elements;  // by verb and rank
  std::map<std::string, int64_t> of_tensor;                // that are written
  for (const Element& shape : named_shapes(svg)) {
    std::smatch match;
    if (!std::regex_match(shape.text, match, piece)) continue;
    elements[match[2]][std::stoi(match[1])] += std::stoll(match[4]);
    if (match[2] == "writes") {
      CHECK(of_tensor[match[3]] == std::stoll(match[5]));  // it begins where the one before ends
      of_tensor[match[3]] += std::stoll(match[4]);
    }
  }
  // Shards of equal size; the last one has the padding, 32 and 16 elements.
  const std::map<int, int64_t> four{{0, 3184}, {1, 3184}, {2, 3184}, {3, 3184 - 32}},
      three{{0, 4240}, {1, 4240}, {2, 4240 - 16}};
  CHECK(elements["writes"] == four);
  CHECK(elements["reads"] == three);
  CHECK(of_tensor.size() == 12);
  CHECK(of_tensor["h.0.mlp.c_fc.weight"] == 4 * C * C);
  int64_t all = 0;
  for (const auto& [name, count] : of_tensor) all += count;
  CHECK(all == kBlock);
}

TEST_CASE("failures: rank 2 differs in each panel, and no other rank does", "[draw]") {
  const std::string svg = picture("failures");
  CHECK(named(svg, "mismatch, rank [013]: norm waits") == 3);
  CHECK(named(svg, "mismatch, rank 2: log waits") == 1);
  for (const std::string fault : {"hang", "dead rank"}) {
    CHECK(named(svg, fault + ", rank [013]: norm waits") == 3);
    CHECK(named(svg, fault + ", rank 2: .* done") == 3);
    CHECK(named(svg, fault + ", rank 2: norm.*") == 0);
  }
  CHECK(named(svg, "straggler, rank [013]: .* done after a wait") == 12);
  CHECK(named(svg, "straggler, rank 2: .* done") == 4);
  CHECK(named(svg, ".* waits") == 4 + 3 + 3);
}

}  // namespace draw
