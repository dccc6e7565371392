// Lessons 00 to 04: their numbers, computed here in a second way.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

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

// How many values each rank sends when N ranks add n values, counted message by message.
struct Messages {
  int64_t N, n;
  std::vector<int64_t> sent = std::vector<int64_t>(size_t(N), 0);
  std::vector<int64_t> chunks()
      const {  // value i is in the last chunk c that begins at or before it
    std::vector<int64_t> sizes(static_cast<size_t>(N), 0);
    for (int64_t i = 0; i < n; ++i) {
      int64_t c = 0;
      while (i >= n * (c + 1) / N) ++c;
      ++sizes[size_t(c)];
    }
    return sizes;
  }
  void root() {
    for (int64_t r = 1; r < N; ++r) sent[size_t(r)] += n, sent[0] += n;
  }
  void tree(int64_t first, int64_t count) {  // rank `first` adds up `count` ranks: the two halves,
                                             // the left one a power of 2
    if (count < 2) return;
    int64_t left = 1;
    while (2 * left < count) left *= 2;
    tree(first, left), tree(first + left, count - left);
    sent[size_t(first + left)] += n, sent[size_t(first)] += n;
  }
  void ring() {
    const std::vector<int64_t> size = chunks();
    for (int64_t c = 0; c < N;
         ++c)  // starts at rank c, is complete after N-1 hops, goes N-1 hops on
      for (int64_t hop = 0; hop < 2 * (N - 1); ++hop)
        sent[size_t((c + hop) % N)] += size[size_t(c)];
  }
  void direct() {
    const std::vector<int64_t> size = chunks();
    for (int64_t from = 0; from < N; ++from)
      for (int64_t to = 0; to < N; ++to)
        if (from != to) sent[size_t(from)] += size[size_t(to)] + size[size_t(from)];
  }
  int64_t busiest() const { return 4 * *std::max_element(sent.begin(), sent.end()); }
  int64_t all() const { return 4 * std::accumulate(sent.begin(), sent.end(), int64_t(0)); }
};

}  // namespace

TEST_CASE("00 passes on every machine, whatever is missing", "[tutorials]") {
  const int64_t N = GENERATE(1, 3, 8);
  const auto document = passed("00_doctor", {{"--ranks", N}});
  int64_t sum = 0;
  for (int64_t r = 1; r <= N; ++r) sum += r;
  CHECK(measured(document, "sum_of_ranks") == sum);
  const cli::Finished finished = run_lesson("00_doctor", "");
  CHECK(finished.code == 0);
  for (const char* part : {"\n~ GPU", "\n~ NCCL: ", "\nThe course runs here"})
    CHECK(cli::contains(finished.out, part));
}

TEST_CASE("01 counts tensors of any size to the byte", "[tutorials]") {
  const auto [R, C] =
      GENERATE(std::pair<int64_t, int64_t>{8, 4}, std::pair<int64_t, int64_t>{17, 5},
               std::pair<int64_t, int64_t>{300, 2});
  const auto document = passed("01_tensor", {{"--rows", R}, {"--columns", C}, {"--ranks", 3}});
  int64_t elements = 0, squares = 0, last_row = 0;
  for (int64_t r = 0; r < R; ++r) {
    squares += r * r;
    if (r == R - 1) last_row = elements;
    elements += C;
  }
  CHECK(measured(document, "tensor") == 4 * elements);
  CHECK(measured(document, "views_add") == 0);
  CHECK(measured(document, "row_begins_at") == 4 * last_row);
  CHECK(measured(document, "copy_adds") == 4 * elements);
  CHECK(measured(document, "g_00") == squares);
  CHECK(measured(document, "peak") == 6 * elements);
  CHECK(measured(document, "all_ranks") == 12 * elements);
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
  CHECK(measured(document, "contributions") ==
        10);  // the README's lines use a and b five times each
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

TEST_CASE("03 keeps 16, 18 or 20 bytes per parameter, padding counted", "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4), L = GENERATE(1, 3);
  const auto document = passed("03_gpt", {{"--ranks", N}, {"--layers", L}, {"--batch", 1}});
  const int64_t all = N * layout(N, L).all();
  CHECK(measured(document, "fp32") == 16 * all);
  CHECK(measured(document, "fp32_master") == 20 * all);
  CHECK(measured(document, "bf16") == 16 * all);
  CHECK(measured(document, "bf16_fp32_gradient") == 18 * all);
}

TEST_CASE("03 keeps the activations that the operations of a block document", "[tutorials]") {
  const int64_t B = GENERATE(1, 3, 4), L = GENERATE(1, 2), T = 32, C = 32, V = 65, H = 2;
  const auto document = passed("03_gpt", {{"--layers", L}, {"--batch", B}});
  int64_t block = 0;       // [n] per token, as in Gpt::block
  block += C + 2;          // layer_norm keeps its input, mean and 1/std; its output is recomputed
  block += 3 * C + C + H;  // attention keeps qkv, y, log-sum-exp; the projection's input is that y
  block += C + 2;          // the sum is kept by the second layer_norm
  block += 4 * C;          // GELU keeps its input; its output is recomputed
  const int64_t last_norm = C + 2, tokens = 2, logits = V;
  CHECK(measured(document, "block_keeps") == 4 * B * T * block);
  CHECK(measured(document, "after_forward") ==
        4 * (B * T * (L * block + tokens + last_norm + logits) + 1));
  // In the backward pass of the last matrix of the last block: the gradients of its output and of
  // its input, GELU's output.
  CHECK(measured(document, "peak") == 4 * (B * T * (L * block + tokens + C + 4 * C) + 1));
}

TEST_CASE("04 sends what a count of the messages gives, for any number of ranks and values",
          "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 5, 6, 8), n = GENERATE(1, 7, 1000);
  const auto document = passed("04_collectives", {{"--ranks", N}, {"--length", n}});
  Messages root{N, n}, tree{N, n}, ring{N, n}, direct{N, n};
  root.root(), tree.tree(0, N), ring.ring(), direct.direct();
  for (const auto& [name, messages] :
       {std::pair{"root", root}, {"tree", tree}, {"ring", ring}, {"direct", direct}}) {
    CAPTURE(N, n, name);
    CHECK(measured(document, std::string(name) + "_busiest") == messages.busiest());
    CHECK(measured(document, std::string(name) + "_all") == messages.all());
    CHECK(measured(document, std::string(name) + "_all") == measured(document, "library_all"));
  }
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

}  // namespace tutorials
