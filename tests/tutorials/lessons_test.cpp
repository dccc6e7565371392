// Every lesson ends with PASS, and the numbers of 05 to 11 are those of the papers with our
// padding, derived here a second time.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

using Numbers = std::map<std::string, int64_t>;

}  // namespace

TEST_CASE("every lesson ends with PASS at 1 to 4 ranks, with --quiet and on the reference",
          "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    for (const std::string flags :
         {"--ranks 1", "--ranks 2 --quiet", "--ranks 3 --device reference", "--ranks 3",
          "--ranks 4 --quiet"}) {
      const bool quiet = flags.ends_with("--quiet");
      const cli::Finished finished = run_lesson(name, flags);
      CAPTURE(name, flags, finished.out, finished.err);
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

TEST_CASE("09 measures what mixed precision keeps, and what it sends", "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4);
  const Layout m = layout(N);
  const int64_t P = m.all(), shard = P / N;
  check_numbers("09_precision", "--ranks " + std::to_string(N),
                {{"f16_least", -24},
                 {"f16_largest", 15},
                 {"f16_spacing", -10},
                 {"bf16_least", -133},
                 {"bf16_largest", 127},
                 {"bf16_spacing", -7},
                 {"ddp_f32", 16 * P},
                 {"ddp_bf16", 16 * P},
                 {"zero1_f32", 8 * P + 8 * shard},
                 {"zero1_bf16", 4 * P + 12 * shard},
                 {"zero2_f32", 4 * P + 12 * shard},
                 {"zero2_bf16", 2 * P + 14 * shard},
                 {"zero3_f32", 16 * shard},
                 {"zero3_bf16", 16 * shard},
                 {"activations_f32", 416772},              // lesson 03's peak
                 {"activations_bf16", 204800 + 4 * 1793},  // of it 1,793 numbers stay in 32 bits
                 {"sent_f32", 2 * m.once(P)},
                 {"sent_bf16", m.once(P)},
                 {"found_on_rank", N - 1},
                 {"gathers", 3}});
}

TEST_CASE("10 measures what offload keeps where, and what it moves", "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4), A = N == 3 ? 3 : 1;
  const Layout m = layout(N);
  const int64_t shard = m.all() / N, gathered = (m.all() + m.L * m.block) / N;
  const int64_t stored = up(m.root / N, 1024) + m.L * up(m.block / N, 1024);
  check_numbers("10_offload",
                "--ranks " + std::to_string(N) + " --micro-batches " + std::to_string(A),
                {{"none_device", 16 * shard},
                 {"none_host", 0},
                 {"none_to_device", 0},
                 {"none_to_host", 0},
                 {"optimizer_device", 2 * shard},
                 {"optimizer_host", 14 * shard},
                 {"optimizer_to_device", 2 * shard},
                 {"optimizer_to_host", 2 * A * shard},
                 {"parameters_device", 14 * shard},
                 {"parameters_host", 2 * shard},
                 {"parameters_to_device", 2 * A * gathered},
                 {"parameters_to_host", 2 * shard},
                 {"both_device", 0},
                 {"both_host", 16 * shard},
                 {"both_parameter_peak", 2 * (m.root + m.block)},
                 {"both_to_device", 2 * A * gathered},
                 {"both_to_host", 2 * A * shard},
                 {"file", 12 * stored},
                 {"read", 12 * stored},
                 {"written", 12 * stored},
                 {"host_pipelined", 12 * 3 * 1024},  // the shard of a block has more chunks
                 {"host_in_turn", 12 * 1024}});
}

TEST_CASE("11 measures what overlap and prefetch cost, and that they send nothing more",
          "[tutorials]") {
  const int64_t N = GENERATE(1, 2, 3, 4), L = N == 2 ? 2 : 4;
  const Layout m = layout(N, L);
  const int64_t kept = m.all() / N + m.root;  // [n] beside full blocks
  check_numbers("11_overlap", "--ranks " + std::to_string(N) + " --layers " + std::to_string(L),
                {{"gradient_off", 4 * (kept + m.block)},
                 {"gradient_on", 4 * (kept + 2 * m.block)},
                 {"sent_off", 2 * m.once(m.all())},
                 {"sent_on", 2 * m.once(m.all())},
                 {"in_flight_0", 0},
                 {"in_flight_1", 1},
                 {"in_flight_2", 2},
                 {"parameter_0", 4 * (kept + m.block)},
                 {"parameter_1", 4 * (kept + 2 * m.block)},
                 {"parameter_2", 4 * (kept + std::min<int64_t>(3, L) * m.block)},
                 {"parameter_reuse", 4 * (kept + L * m.block)},
                 {"sent_reuse", 2 * m.once(m.all())},
                 {"operations", 3145728}});  // 2 * 12 * 32 * 32 * 128
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
           {"08_zero3", "--ranks 5 --layers 12 --seed 7"},
           {"09_precision", "--ranks 5 --seed 7"},
           {"10_offload", "--ranks 5 --micro-batches 2 --chunk 2"},
           {"11_overlap", "--ranks 5 --layers 3 --latency 1"}}) {
    const cli::Finished finished = run_lesson(name, arguments + " --quiet");
    CAPTURE(name, arguments, finished.out, finished.err);
    CHECK(finished.code == 0);
    CHECK(finished.out.starts_with("RESULT " + name + " PASS "));
  }
}

}  // namespace tutorials
