// The numbers in the pictures, from the sizes of the models alone.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>

#include "tests/draw/svg_text.h"
#include "tests/tutorials/lesson_process.h"

namespace draw {
namespace {

// The model of the lessons; `stages` has V = 256.
constexpr int64_t T = 32, C = 32, H = 2, N = 4;
constexpr int64_t kBlock = 12 * C * C + 13 * C;

int64_t padded(int64_t n) { return (n + 16 * N - 1) / (16 * N) * 16 * N; }
int64_t root(int64_t V) { return padded(V * C + T * C + 2 * C); }
int64_t model(int64_t V, int64_t L) { return root(V) + L * padded(kBlock); }

std::string commas(int64_t n) {
  std::string text = std::to_string(n);
  for (int at = int(text.size()) - 3; at > 0; at -= 3) text.insert(size_t(at), ",");
  return text;
}
std::string bytes(int64_t n) { return commas(n) + " B"; }

std::string picture(const std::string& name) {
  return cli::read_file(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials/pictures/" + name + ".svg");
}
std::vector<std::string> texts(const std::string& svg) {
  std::vector<std::string> found;
  for (const Element& element : parse_xml(svg))
    if (element.name == "text") found.push_back(element.text);
  return found;
}
bool has_text(const std::string& svg, const std::string& text) {
  return std::ranges::count(texts(svg), text) > 0;
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

TEST_CASE("stages: each bar is the paper's formula, and as high as its bytes", "[draw]") {
  const std::string svg = picture("stages");
  const int64_t P = model(256, 2);
  const struct {
    const char* stage;
    int64_t parameter, gradient, optimizer;  // by how many ranks each is divided
  } rows[] = {{"ddp", 1, 1, 1}, {"zero1", 1, 1, N}, {"zero2", 1, N, N}, {"zero3", N, N, N}};
  const double pixels = named_shape(svg, "ddp rank 0: parameter " + bytes(4 * P)).number("height");
  for (const auto& row : rows)
    for (int rank = 0; rank < N; ++rank) {
      const std::string who = std::string(row.stage) + " rank " + std::to_string(rank) + ": ";
      const auto check = [&](const char* use, int64_t full, int64_t divisor) {
        const Element bar = named_shape(svg, who + use + " " + bytes(full / divisor));
        CHECK(std::abs(bar.number("height") - pixels * double(full) / double(4 * P * divisor)) <=
              0.1);
      };
      check("parameter", 4 * P, row.parameter);
      check("gradient", 4 * P, row.gradient);
      check("optimizer_state", 8 * P, row.optimizer);
    }
  CHECK(named_shapes(svg).size() == 4 * N * 3);
  CHECK(has_text(svg, "543.00 KiB"));  // 16 x 34,752 / 1,024
  CHECK(has_text(svg, "135.75 KiB"));
}

TEST_CASE("live_bytes: the ledger after each statement of lesson 01", "[draw]") {
  constexpr int64_t RC = 8 * 4;
  std::vector<std::string> levels;
  for (const int64_t elements : {4, 4, 4, 8, 8, 8, 4, 0, 4, 6, 0, 4})  // bytes per R x C
    levels.push_back(std::to_string(elements * RC));
  const std::string svg = picture("live_bytes");
  std::vector<std::string> drawn;
  for (const std::string& text : texts(svg))
    if (text.find_first_not_of("0123456789") == std::string::npos) drawn.push_back(text);
  CHECK(drawn == levels);
  for (const Element& bar : named_shapes(svg)) {
    const size_t number = bar.text.find_last_of(' ', bar.text.size() - 3) + 1;
    CHECK(bar.number("height") == Catch::Approx(std::stod(bar.text.substr(number)) / 2));
  }
}

TEST_CASE("step_memory: states and activations of the lessons' model at the peak", "[draw]") {
  constexpr int64_t V = 65, L = 2, BT = 4 * T;
  const int64_t states = 16 * (V * C + T * C + 2 * C + L * kBlock);  // one rank: no padding
  const int64_t activations = 4 * (L * BT * (10 * C + 4 + H) + BT * (2 + 5 * C) + 1);
  const std::string svg = picture("step_memory");
  named_shape(svg, "activation at most " + bytes(activations));
  named_shape(svg, "peak " + bytes(states + activations));
  CHECK(has_text(svg, "peak = " + bytes(states) + " of model states + " + bytes(activations) +
                          " of activations"));
}

TEST_CASE("ring: who has which sum after each step, and what a rank has sent", "[draw]") {
  const std::string svg = picture("ring");
  const int64_t n = 28'576;
  CHECK(has_text(svg, bytes((N - 1) * n * 4 / N)));
  CHECK(has_text(svg, bytes(2 * (N - 1) * n * 4 / N)));
  const auto cells = named_shapes(svg);
  REQUIRE(cells.size() == 7 * N * N);
  for (int step = 0; step < 7; ++step)
    for (int rank = 0; rank < N; ++rank)
      for (int chunk = 0; chunk < N; ++chunk) {
        // In step s rank r receives chunk r - s; it then sums s + 1 values, or is complete.
        int terms = 1;
        for (int s = 1; s <= step; ++s)
          if ((rank - s + 2 * N) % N == chunk) terms = std::min(s + 1, int(N));
        const Element& cell = cells[size_t((step * N + rank) * N + chunk)];
        CHECK(cell.text == "rank " + std::to_string(rank) + " chunk " + std::to_string(chunk) +
                               ": " + std::to_string(terms));
      }
}

TEST_CASE("shards: borders of parameters and shards, and the padding", "[draw]") {
  const std::string svg = picture("shards");
  const int64_t shard = padded(kBlock) / N;
  for (int64_t rank = 0; rank < N; ++rank)
    named_shape(svg, "rank " + std::to_string(rank) + ": " + commas(shard) + " elements from " +
                         commas(rank * shard));
  named_shape(svg, "ln_1.weight: " + commas(C) + " elements from 0");
  named_shape(svg,
              "attn.c_attn.bias: " + commas(3 * C) + " elements from " + commas(2 * C + 3 * C * C));
  named_shape(svg, "mlp.c_fc.weight: " + commas(4 * C * C) + " elements from " +
                       commas(2 * C + 3 * C * C + 3 * C + C * C + C + 2 * C));
  named_shape(svg,
              "padding: " + commas(padded(kBlock) - kBlock) + " elements from " + commas(kBlock));
}

TEST_CASE("bucket_peaks: gradients at the peak, and how much zero2 needs more than zero1",
          "[draw]") {
  const std::string svg = picture("bucket_peaks");
  const int64_t P = model(65, 2);
  const auto gradient = [&](const std::string& panel, int64_t elements) {
    named_shape(svg, panel + ": gradient at most " + bytes(4 * elements));
  };
  gradient("ddp", P);
  gradient("zero1", P);
  gradient("zero2, a bucket per unit", P / N + root(65) + padded(kBlock));
  gradient("zero2, one bucket for all units", P / N + P);
  const auto peak = [&](const std::string& panel) {
    const std::string begin = panel + ": peak ";
    for (const Element& shape : named_shapes(svg))
      if (shape.text.starts_with(begin))
        return int64_t(std::stoll(without_commas(shape.text.substr(begin.size()))));
    FAIL("no peak of " << panel);
    return int64_t(0);
  };
  // ddp has all of the moments, zero1 a shard of them. zero2 has a shard of gradients more than
  // zero1; its peak is in the first block instead of the last, where one input less is kept.
  CHECK(peak("ddp") - peak("zero1") == 8 * (P - P / N));
  CHECK(peak("zero2, one bucket for all units") - peak("zero1") == 4 * P / N - 4 * T * C);
  CHECK(peak("zero2, a bucket per unit") < peak("zero1"));
}

TEST_CASE("full_parameters: root and one block at a time", "[draw]") {
  constexpr int64_t L = 4;
  const std::string svg = picture("full_parameters");
  const int64_t P = model(65, L);
  named_shape(svg, "zero3: peak " + bytes(4 * (P / N + root(65) + padded(kBlock))));
  CHECK(has_text(svg, "ddp: " + bytes(4 * P)));
  // Each block is full twice, root once, from before the first block to after the last.
  std::vector<std::pair<double, double>> blocks;
  for (const Element& bar : named_shapes(svg))
    if (bar.text.starts_with("h.") && bar.text.ends_with(": full"))
      blocks.emplace_back(bar.number("x"), bar.number("x") + bar.number("width"));
  std::ranges::sort(blocks);
  REQUIRE(blocks.size() == 2 * L);
  for (size_t i = 1; i < blocks.size(); ++i) CHECK(blocks[i - 1].second <= blocks[i].first);
  const Element whole = named_shape(svg, "root: full");
  CHECK(whole.number("x") < blocks.front().first);
  CHECK(whole.number("x") + whole.number("width") > blocks.back().second);
}

TEST_CASE("number_ranges: bars from the bits of exponent and mantissa", "[draw]") {
  const std::string svg = picture("number_ranges");
  const auto power = [](int exponent) {
    static const char* const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    std::string text = exponent < 0 ? "2⁻" : "2";
    for (const char c : std::to_string(std::abs(exponent))) text += digits[c - '0'];
    return text;
  };
  const struct {
    const char* name;
    int e, m;  // bits
  } types[] = {{"f32", 8, 23}, {"bf16", 8, 7}, {"f16", 5, 10}};
  double wide = 0;  // [px] of one power of 2
  for (const auto& [name, e, m] : types) {
    const int end = 1 << (e - 1), normal = 2 - end;
    const std::string who = std::string(name) + ": ";
    const Element all = named_shape(svg,
                                    who + "all bits from " + power(normal) + " to " + power(end)),
                  fewer = named_shape(svg, who + "fewer bits from " + power(normal - m));
    if (wide == 0) wide = all.number("width") / (end - normal);
    CHECK(std::abs(all.number("width") - wide * (end - normal)) <= 0.2);
    CHECK(std::abs(fewer.number("width") - wide * m) <= 0.2);
    CHECK(std::abs(fewer.number("x") + fewer.number("width") - all.number("x")) <= 0.2);
    CHECK(has_text(svg, "1 + " + power(-m)));
  }
}

TEST_CASE("offload: bytes in each memory and over each link", "[draw]") {
  const std::string svg = picture("offload");
  const int64_t shard = model(65, 2) / N, gathered = shard + 2 * padded(kBlock) / N;
  const auto part = [&](const std::string& place, const std::string& use, int64_t per_element) {
    named_shape(svg, place + " " + use + " " + bytes(per_element * shard));
  };
  part("no offload: device", "parameter", 2);
  part("no offload: device", "gradient", 2);
  part("no offload: device", "optimizer_state", 12);
  part("optimizer: cpu: device", "parameter", 2);
  part("optimizer: cpu: host", "gradient", 2);
  part("optimizer: cpu: host", "optimizer_state", 12);
  part("both: cpu: host", "parameter", 2);
  part("both: cpu: host", "gradient", 2);
  part("both: cpu: host", "optimizer_state", 12);
  const auto blocks_of_1024 = [](int64_t n) { return (n + 1023) / 1024 * 1024; };
  const int64_t stored = blocks_of_1024(root(65) / N) + 2 * blocks_of_1024(padded(kBlock) / N);
  const std::string last = "nvme, param: cpu: ";
  named_shape(svg, last + "disk optimizer_state " + bytes(12 * stored));
  part(last + "host", "parameter", 2);
  CHECK(named_shapes(svg).size() == 3 + 3 + 3 + 3);
  const std::vector<std::string> all = texts(svg);
  const auto count = [&](int64_t n) { return std::ranges::count(all, bytes(n)); };
  CHECK(count(2 * gathered) == 2);       // up, where parameters are on the host
  CHECK(count(12 * stored) == 1 + 2);    // in the file, read, written
  CHECK(count(2 * shard) == 2 + 2 + 1);  // down and up, down, down; and one device keeps as much
}

TEST_CASE("prefetch: one more block in full", "[draw]") {
  const std::string svg = picture("prefetch");
  const int64_t kept = model(65, 3) / N + root(65), block = padded(kBlock);
  for (const int64_t ahead : {0, 1})
    CHECK(has_text(svg, "stage3_prefetch_bucket_size " + std::to_string(ahead) +
                            ": parameters at most " + bytes(4 * (kept + (1 + ahead) * block))));
}

TEST_CASE("unit_calls: bytes of one block in each stage", "[draw]") {
  const std::vector<std::string> all = texts(picture("unit_calls"));
  const auto count = [&](const std::string& text) { return std::ranges::count(all, text); };
  const int64_t full = 4 * padded(kBlock), once = (N - 1) * full / N;
  CHECK(count("sends " + bytes(2 * once)) == 1);      // ddp's all-reduce
  CHECK(count("sends " + bytes(once)) == 3 + 2 + 2);  // reduce-scatters; gathers after and before
  CHECK(count("+ " + bytes(full)) == 2 + 2);  // gradients of zero2 and zero3, parameters of zero3
  CHECK(count("− " + bytes(full)) == 2 + 2);
  CHECK(count("Adam on " + commas(padded(kBlock))) == 1);
  CHECK(count("Adam on " + commas(padded(kBlock) / N)) == 3);
}

TEST_CASE("activations: the peak of each panel is that of lesson 12 with four blocks", "[draw]") {
  const std::string svg = without_commas(picture("activations")),
                    lesson = tutorials::lesson_document("12_activations", "--ranks 4 --layers 4");
  for (const auto& [panel, key] : {std::pair{"none", "none_peak"},
                                   {"selective", "selective_peak"},
                                   {"full", "full_peak"},
                                   {"full partitioned", "parts_peak"}}) {
    const int64_t peak = tutorials::measured(lesson, key);
    CAPTURE(panel, peak);
    const std::string begin = std::string(panel) + ": peak ";
    CHECK(named(svg, begin + std::to_string(peak) + " B") == 1);
    CHECK(named(svg, begin + std::to_string(peak + 4) + " B") == 0);
  }
}

TEST_CASE("checkpoint: every element is written by one of 4 ranks and read by one of 3", "[draw]") {
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
