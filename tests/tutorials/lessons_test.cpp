// Every lesson ends with PASS, and the numbers of 05 to 08 are those of the paper with our padding,
// derived here a second time.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <numeric>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

// [n] Padded sizes from the list of parameters: each begins at a multiple of 16, each unit is a
// multiple of 16 N.
struct Layout {
  int64_t N, L, root, block;
  int64_t all() const { return root + L * block; }
  int64_t once(int64_t elements) const {
    return 4 * elements / N * (N - 1);
  }  // [B] sent by a rank for one pass
};

int64_t up(int64_t n, int64_t multiple) {
  return n % multiple == 0 ? n : n + multiple - n % multiple;
}

Layout layout(int64_t ranks, int64_t layers = 2) {
  const auto unit = [&](const std::vector<int64_t>& parameters) {
    int64_t end = 0;
    for (const int64_t n : parameters) end = up(end, 16) + n;
    return up(end, 16 * ranks);
  };
  return {ranks, layers, unit({65 * 32, 32 * 32, 32, 32}),
          unit({32, 32, 32 * 96, 96, 32 * 32, 32, 32, 32, 32 * 128, 128, 128 * 32, 32})};
}

using Numbers = std::map<std::string, int64_t>;

void check_numbers(const std::string& lesson, const std::string& arguments,
                   const Numbers& expected) {
  const std::string document = lesson_document(lesson, arguments);
  INFO(document);
  CHECK(cli::contains(document, "\"ok\": true"));
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  for (const auto& [key, number] : expected) {
    CAPTURE(lesson, arguments, key);
    CHECK(measured(document, key) == number);
  }
}

}  // namespace

TEST_CASE("every lesson ends with PASS at 1 to 4 ranks, also with --quiet", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    for (const int ranks : {1, 2, 3, 4}) {
      const bool quiet = ranks % 2 == 0;
      const cli::Finished finished =
          run_lesson(name, "--ranks " + std::to_string(ranks) + (quiet ? " --quiet" : ""));
      CAPTURE(name, ranks, finished.out, finished.err);
      CHECK(finished.code == 0);
      CHECK(finished.err.empty());
      CHECK(finished.seconds < 20);  // 2 on an idle machine
      const std::vector<std::string> lines = cli::lines(finished.out);
      REQUIRE(!lines.empty());
      CHECK((lines.size() == 1) == quiet);
      CHECK(lines.back().starts_with("RESULT " + name + " PASS "));
      const std::string counts = lines.back().substr(lines.back().rfind(' ') + 1);
      CHECK(counts.substr(0, counts.find('/')) == counts.substr(counts.find('/') + 1));
    }
  }
}

TEST_CASE("05 to 08 measure what the paper's formulas give with our padding", "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4);
  const Layout m = layout(N);
  const std::string ranks = "--ranks " + std::to_string(N);
  Numbers of_ddp{{"different_weights", 1},
                 {"allreduce_bytes", 2 * m.once(m.all())},
                 {"state_bytes", 16 * m.all()}};
  if (N > 1)
    of_ddp.insert(
        {{"norm_without_division", N}, {"weights_that_drift", N}, {"weights_after_last_only", N}});
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

TEST_CASE("with 4 ranks the lessons show the numbers that were worked out by hand", "[tutorials]") {
  // Root 65*32 + 32*32 + 64 = 3168, up to a multiple of 64: 3200. Block 12*32^2 + 13*32 = 12704,
  // up: 12736. All 28672.
  check_numbers("06_zero1", "--ranks 4",
                {{"padding", 96},
                 {"state_bytes", 286720},
                 {"ddp_state_bytes", 458752},
                 {"mistaken_bytes", 258048}});
  // A shard is 7168: 4 * (7168 + 3200 + 12736) with one block, 4 * (7168 + 28672) with all.
  check_numbers(
      "07_zero2", "--ranks 4",
      {{"gradient_1", 92416}, {"gradient_zero1", 114688}, {"gradient_500000000", 143360}});
  check_numbers(
      "08_zero3", "--ranks 4",
      {{"parameter_peak_bytes", 92416}, {"gathered_bytes", 162432}, {"layers_to_win", 2}});
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
           {"07_zero2", "--ranks 3 --layers 5 --micro-batches 1"},
           {"08_zero3", "--ranks 5 --layers 12 --seed 7"}}) {
    const cli::Finished finished = run_lesson(name, arguments + " --quiet");
    CAPTURE(name, arguments, finished.out, finished.err);
    CHECK(finished.code == 0);
    CHECK(finished.out.starts_with("RESULT " + name + " PASS "));
  }
}

}  // namespace tutorials
