// What the variants keep and send: measured, by the closed formulas, and by hand.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "nn/formats/named_gpt.h"
#include "stages/variants/groups.h"
#include "tests/nn/scratch_folder.h"
#include "tests/stages/stage_run.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr StageKind kVariants[] = {StageKind("hsdp"), StageKind("zero3_hpz"),
                                   StageKind("zero3_qwz"), StageKind("zero3_qgz")};

StageRunSpec spec_of(StageKind stage, int ranks, int ranks_per_node) {
  StageRunSpec spec{.stage = stage, .ranks = ranks, .steps = 2, .model = {.blocks = 4}};
  spec.max_norm = 0;
  spec.options.ranks_per_node = ranks_per_node;
  return spec;
}

void check_predicted(const StageRunSpec& spec) {
  const StageRun run = run_stage(spec);
  REQUIRE_FALSE(run.skipped.back());
  CHECK(off_the_prediction(spec, run) == "");
  CHECK(off_the_traffic(spec, run) == "");
}

Prediction of_gpt(const char* model, StageKind stage, int ranks, int ranks_per_node) {
  Gpt gpt(named_gpt(model));
  return predict({.options = {.stage = stage, .ranks_per_node = ranks_per_node},
                  .ranks = ranks,
                  .units = padded_unit_sizes(gpt.units(), ranks)});
}

// [B] that a rank sends in a step for these purposes, in the groups of this label.
int64_t sent(const Prediction& p, std::vector<Purpose> purposes, const std::string& group) {
  int64_t bytes = 0;
  for (const auto& [key, t] : p.traffic.rows())
    if (key.group == group && std::ranges::find(purposes, key.purpose) != purposes.end())
      bytes += t.sent_bytes();
  return bytes;
}
const std::vector<Purpose> kPayload = {Purpose::parameter, Purpose::gradient};

}  // namespace

TEST_CASE("memory and traffic of every variant are as the formulas say, byte by byte", "[stages]") {
  struct Case {
    int ranks, ranks_per_node;
  };
  const Case c = GENERATE(Case{4, 4}, Case{6, 2}, Case{6, 3}, Case{3, 1});
  const StageKind stage = GENERATE(StageKind("hsdp"), StageKind("zero3_hpz"),
                                   StageKind("zero3_qwz"), StageKind("zero3_qgz"));
  const int micro_batches = GENERATE(1, 3);
  CAPTURE(name(stage), c.ranks, c.ranks_per_node, micro_batches);
  StageRunSpec spec = spec_of(stage, c.ranks, c.ranks_per_node);
  spec.micro_batches = micro_batches;
  check_predicted(spec);
}

TEST_CASE("the formulas of the variants hold in every precision and with every other setting",
          "[stages]") {
  const StageKind stage = GENERATE(StageKind("hsdp"), StageKind("zero3_hpz"),
                                   StageKind("zero3_qwz"), StageKind("zero3_qgz"));
  const int setting = GENERATE(Catch::Generators::range(0, 12));
  CAPTURE(name(stage), setting);
  StageRunSpec spec = spec_of(stage, 4, 2);
  spec.micro_batches = 2;
  Options& o = spec.options;
  if (setting == 0) o.precision = Dtype::bf16;
  if (setting == 1) o.precision = Dtype::f16, spec.scale = 64;
  if (setting == 2) o.precision = Dtype::bf16, o.grad_accum_dtype = Dtype::f32;
  if (setting == 3 && stage != StageKind("zero3_qgz"))
    o.precision = Dtype::bf16, o.communication_data_type = Dtype::f32;
  if (setting == 4) spec.offload = true;
  if (setting == 5) o.overlap.overlap_comm = true;
  if (setting == 6) o.overlap = {.overlap_comm = true, .prefetch_bucket_size = 500};
  if (setting == 7) o.overlap = {.prefetch_bucket_size = 1'000'000, .max_live_parameters = 1200};
  if (setting == 8) o.overlap = {.max_reuse_distance = 1000};
  if (setting == 9) o.reduce_bucket_size = 600;
  if (setting == 10) o.reduce_bucket_size = 1'000'000, o.overlap.overlap_comm = true;
  if (setting == 11)
    o.precision = Dtype::bf16, o.grad_accum_dtype = Dtype::f32,
    o.overlap = {.overlap_comm = true, .prefetch_bucket_size = 700};
  check_predicted(spec);
}

// W = 34,752 elements in tiny on 4 ranks, of them 9,280 in root; W = 842,496 in small on 8.
TEST_CASE("zero3_hpz keeps W / X more, and its backward pass sends nothing between nodes",
          "[stages]") {
  const Prediction zero3 = of_gpt("tiny", StageKind::zero3, 4, 0),
                   hpz = of_gpt("tiny", StageKind("zero3_hpz"), 4, 2);
  const auto rest = [](const Prediction& p) { return p.device.rest_of(MemoryUse::parameter) / 4; };
  CHECK(rest(hpz) - rest(zero3) == 17'376);
  CHECK(sent(zero3, kPayload, "") / 4 == 71'232);
  CHECK((sent(hpz, kPayload, "") + sent(hpz, kPayload, "intra")) / 4 == 64'864);
  CHECK(sent(hpz, kPayload, "inter") == 0);
  // What is gathered a second time is 25,472 elements, inside the node alone.
  CHECK(hpz.traffic.rows().at({Collective::all_gather, Purpose::parameter, "intra"}).elements ==
        25'472);
  const Prediction small3 = of_gpt("small", StageKind::zero3, 8, 0),
                   small = of_gpt("small", StageKind("zero3_hpz"), 8, 4);
  CHECK(rest(small) - rest(small3) == 210'624);
  CHECK(sent(small3, kPayload, "") / 4 == 2'168'320);
  CHECK((sent(small, kPayload, "") + sent(small, kPayload, "intra")) / 4 == 2'069'184);
}

TEST_CASE("hsdp keeps W / p, and sends inside its group, and once per step between replicas",
          "[stages]") {
  const Prediction p = of_gpt("tiny", StageKind("hsdp"), 4, 2);
  CHECK(p.device.rest_of(MemoryUse::parameter) == 17'376 * 4);
  CHECK(p.device.rest_of(MemoryUse::optimizer_state) == 17'376 * 8);
  CHECK(sent(p, kPayload, "intra") / 4 == 47'488);
  CHECK(sent(p, kPayload, "inter") / 4 == 17'376);
  CHECK(sent(p, kPayload, "") == 0);
  const Prediction small = of_gpt("small", StageKind("hsdp"), 8, 4);
  CHECK(sent(small, kPayload, "intra") / 4 == 1'858'560);
  CHECK(sent(small, kPayload, "inter") / 4 == 210'624);
}

TEST_CASE("zero3_qwz sends a byte per element, and a scale for each 256", "[stages]") {
  const Prediction p = of_gpt("tiny", StageKind("zero3_qwz"), 4, 0);
  const auto& rows = p.traffic.rows();
  const Traffic codes = rows.at({Collective::all_gather, Purpose::parameter, ""}),
                scales = rows.at({Collective::all_gather, Purpose::scales, ""});
  // Forward: all 34,752 of them and 36 scales on each rank; backward: without root's 9,280 and 10.
  CHECK(codes.elements == 34'752 + 25'472);
  CHECK(scales.elements == 4 * (36 + 26));
  CHECK(codes.sent_bytes() == 3 * (8'688 + 6'368));
  CHECK(codes.sent_bytes() + scales.sent_bytes() == 26'496 + 3 * (6'368 + 4 * 26));
}

TEST_CASE("zero3_qgz sends half a byte per element, and most of it inside nodes", "[stages]") {
  const Prediction p = of_gpt("tiny", StageKind("zero3_qgz"), 4, 2);
  CHECK(sent(p, {Purpose::gradient}, "intra") == 8'688);
  CHECK(sent(p, {Purpose::gradient}, "inter") == 4'344);
  CHECK(sent(p, {Purpose::gradient}, "") == 0);
  // (N - 1) / N * W / 2
  CHECK(sent(p, {Purpose::gradient}, "intra") + sent(p, {Purpose::gradient}, "inter") ==
        34'752 / 2 * 3 / 4);
  const Prediction small = of_gpt("small", StageKind("zero3_qgz"), 8, 4);
  CHECK(sent(small, {Purpose::gradient}, "intra") == 315'936);
  CHECK(sent(small, {Purpose::gradient}, "inter") == 52'656);
}

TEST_CASE("groups that do not divide the ranks are refused with the numbers", "[stages]") {
  using Catch::Matchers::ContainsSubstring;
  const auto groups = [](const char* stage, int ranks, int64_t of_node, int64_t replicas) {
    return with_groups({.stage = StageKind(stage), .ranks_per_node = of_node, .replicas = replicas},
                       ranks);
  };
  const auto said = [&](const char* stage, int ranks, int64_t of_node, int64_t replicas) {
    return sentence_of([&] { groups(stage, ranks, of_node, replicas); });
  };
  CHECK(said("zero3_hpz", 8, 3, 0) ==
        "zero3_hpz: 8 ranks cannot be divided into nodes of 3; use 1, 2, 4 or 8");
  CHECK(said("hsdp", 4, 0, 3) == "hsdp: 4 ranks cannot be divided into 3 replicas; use 1, 2 or 4");
  CHECK(said("hsdp", 1, 0, 2) == "hsdp: 1 rank cannot be divided into 2 replicas; use 1");
  CHECK(said("hsdp", 4, 2, 4) ==
        "hsdp: 4 replicas of 4 ranks have 1 each, not 2 per node; leave one of the two out, or "
        "use 2 replicas");
  CHECK_THAT(said("hsdp", 3, 0, 0), ContainsSubstring("give --replicas"));
  CHECK_THAT(said("zero3_qgz", 2, 0, 0), ContainsSubstring("give --ranks-per-node"));
  CHECK(said("zero3_qgz", 2, 1, 0).empty());
  CHECK(said("zero3", 3, 2, 0).empty());  // without groups
  CHECK(groups("zero3_hpz", 6, 0, 0).ranks_per_node == 3);
  CHECK(groups("hsdp", 6, 0, 0).replicas == 2);
  CHECK(groups("hsdp", 6, 2, 0).replicas == 3);
  CHECK(groups("hsdp", 6, 2, 3).ranks_per_node == 2);  // they agree
}

TEST_CASE("variants refuse what they cannot keep", "[stages]") {
  EventStream events;
  Memory device({DeviceKind::meta}, meta_backend(), events);
  Memory host({DeviceKind::meta}, meta_backend(), events, {.pool = Pool::host});
  const Memories memories(device, &host);
  for (const StageKind stage : kVariants) {
    CAPTURE(name(stage));
    const Options sums{.stage = stage, .reproducible = true};
    if (stage == StageKind("zero3_hpz"))
      CHECK_NOTHROW(check(sums, memories));
    else
      CHECK_THROWS_AS(check(sums, memories), InputError);
  }
}
