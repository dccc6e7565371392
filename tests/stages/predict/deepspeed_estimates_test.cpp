// DeepSpeed's estimates: the numbers that DeepSpeed 0.19.8's own functions return.
#include "stages/predict/deepspeed_estimates.h"

#include <catch2/catch_test_macros.hpp>

#include "nn/gpt.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

namespace {

using Pair = std::pair<int64_t, int64_t>;  // per CPU and per GPU, as DeepSpeed returns them

std::vector<Pair> pairs(StageKind stage, const EstimateInput& input) {
  std::vector<Pair> all;
  for (const Estimate& e : deepspeed_estimates(stage, input)) all.emplace_back(e.node, e.rank);
  return all;
}

struct Returned {
  EstimateInput input;
  std::vector<Pair> zero2, zero3;
};

// estimate_zero2_model_states_mem_needs() and estimate_zero3_…() called with these arguments, in
// the order of the printed table.
const std::vector<Returned> kReturned = {
    {{124'439'808, 38'597'376, 4, 1},
     {{2'986'555'392, 248'879'616}, {2'986'555'392, 808'858'752}},
     {{3'359'874'816, 154'389'504},
      {3'359'874'816, 154'389'504},
      {2'986'555'392, 216'609'408},
      {2'986'555'392, 216'609'408},
      {926'337'024, 714'368'640},
      {2'986'555'392, 714'368'640}}},
    {{124'439'808, 38'597'376, 8, 3},
     {{17'919'332'352, 248'879'616}, {5'973'110'784, 342'209'472}},
     {{1'119'958'272, 154'389'504},
      {5'973'110'784, 154'389'504},
      {995'518'464, 164'759'488},
      {5'973'110'784, 164'759'488},
      {1'852'674'048, 247'719'360},
      {5'973'110'784, 247'719'360}}},
    {{34'560, 8'192, 3, 7},
     {{4'354'560, 69'120}, {622'080, 98'742}},
     {{133'302, 32'768},
      {622'080, 32'768},
      {118'491, 36'059},
      {622'080, 36'059},
      {147'456, 62'390},
      {622'080, 62'390}}}};

}  // namespace

TEST_CASE("estimates are those that DeepSpeed's functions return", "[stages]") {
  for (const Returned& r : kReturned) {
    CAPTURE(r.input.parameters, r.input.ranks_per_node, r.input.nodes);
    CHECK(pairs(StageKind::zero2, r.input) == r.zero2);
    CHECK(pairs(StageKind::zero3, r.input) == r.zero3);
    // Twins: one more GPU per node, and one more parameter in the largest layer.
    EstimateInput other = r.input;
    ++other.ranks_per_node;
    CHECK(pairs(StageKind::zero2, other) != r.zero2);
    other = r.input;
    ++other.largest_layer;
    CHECK(pairs(StageKind::zero3, other) != r.zero3);
  }
  CHECK_THROWS_AS(deepspeed_estimates(StageKind::zero1, {}), std::invalid_argument);
}

TEST_CASE("the tables of gpt2 are printed as DeepSpeed prints them", "[stages]") {
  Gpt gpt2(named_gpt("gpt2"));
  const EstimateInput in = estimate_input(gpt2, 4, 4);
  CHECK((in.parameters == 124'439'808 && in.nodes == 1));
  CHECK(in.largest_layer == 50'257 * 768);  // the token embedding
  CHECK(deepspeed_heading(StageKind::zero3, in) ==
        "Estimated memory needed for params, optim states and gradients for a:\n"
        "HW: Setup with 1 node, 4 GPUs per node.\n"
        "SW: Model with 124M total params, 38M largest layer params.\n");
  CHECK(deepspeed_heading(StageKind::zero2, estimate_input(gpt2, 2, 1)) ==
        "Estimated memory needed for params, optim states and gradients for a:\n"
        "HW: Setup with 2 nodes, 1 GPU per node.\n"
        "SW: Model with 124M total params.\n");
  std::string text = deepspeed_titles() + "\n";
  for (const StageKind stage : {StageKind::zero2, StageKind::zero3})
    for (const Estimate& e : deepspeed_estimates(stage, in)) text += deepspeed_row(stage, e) + "\n";
  CHECK(text ==
        "  per CPU  |  per GPU |   Options\n"
        "    2.78GB |   0.23GB | offload_optimizer=cpu \n"
        "    2.78GB |   0.75GB | offload_optimizer=none\n"
        "    3.13GB |   0.14GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
        "    3.13GB |   0.14GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
        "    2.78GB |   0.20GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
        "    2.78GB |   0.20GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
        "    0.86GB |   0.67GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
        "    2.78GB |   0.67GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
}

TEST_CASE("a module's parameters count together, and its submodules apart", "[stages]") {
  // tiny's token embedding is larger than any linear layer; with few tokens one of those is.
  Gpt few({.layers = 1, .heads = 1, .width = 8, .block_size = 4, .vocab = 3});
  const EstimateInput in = estimate_input(few, 6, 2);
  CHECK(in.largest_layer == 4 * 8 * 8 + 4 * 8);  // mlp.c_fc, weight and bias
  CHECK(in.nodes == 3);
  CHECK(in.parameters == few.config().parameters());
  CHECK_THROWS_AS(estimate_input(few, 6, 4), std::invalid_argument);
}

TEST_CASE("beside the estimates are the exact model states in bf16", "[stages]") {
  // gpt2 on 4 ranks has no padding. Root and block as in the constant buffers.
  constexpr int64_t kRoot = (50'257 + 1'024 + 2) * 768, kBlock = 12 * 768 * 768 + 13 * 768,
                    kAll = kRoot + 12 * kBlock;
  GptTrainingSpec spec = gpt_spec(named_gpt("gpt2"));
  spec.ranks = 4;
  const auto exact = [&](StageKind stage, bool param, bool optimizer) {
    const ExactStates s =
        exact_states(spec, stage, {.offload_param = param, .offload_optimizer = optimizer}, 4);
    return std::vector<int64_t>{s.rest, s.peak, s.node};
  };
  constexpr int64_t kFull = 2 * (kRoot + kBlock);  // of root and one block in 16 bits
  const auto zero2 = exact(StageKind::zero2, false, false);
  CHECK(zero2 ==
        std::vector<int64_t>{2 * kAll + 14 * kAll / 4, 2 * kAll + 14 * kAll / 4 + kFull, 0});
  CHECK(exact(StageKind::zero2, false, true) ==
        std::vector<int64_t>{2 * kAll, 2 * kAll + kFull, 14 * kAll});
  CHECK(exact(StageKind::zero3, false, false) ==
        std::vector<int64_t>{16 * kAll / 4, 16 * kAll / 4 + 2 * kFull, 0});
  CHECK(exact(StageKind::zero3, false, true) ==
        std::vector<int64_t>{2 * kAll / 4, 2 * kAll / 4 + 2 * kFull, 14 * kAll});
  CHECK(exact(StageKind::zero3, true, true) == std::vector<int64_t>{0, 2 * kFull, 16 * kAll});
  spec.ranks = 2;  // the twin
  CHECK(exact(StageKind::zero2, false, false) != zero2);
}
