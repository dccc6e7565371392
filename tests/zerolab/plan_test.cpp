// What plan says that overlap, prefetch, reuse and reproducible sums cost, and its further tables.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

Finished plan(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "plan");
  return zerolab(flags);
}

}  // namespace

TEST_CASE("plan tells the bytes of overlap and prefetch for each stage, in text and JSON",
          "[zerolab]") {
  std::vector<std::string> flags = {"--model", "tiny", "--ranks", "2"};
  CHECK_FALSE(contains(plan(flags).out, "overlap"));
  for (const char* set :
       {"zero_optimization.overlap_comm=true", "zero_optimization.stage3_prefetch_bucket_size=1",
        "zero_optimization.max_reuse_distance=1"})
    flags.insert(flags.end(), {"--set", set});
  const Finished text = plan(flags);
  CHECK(text.code == 0);
  CHECK(contains(text.out, "\nddp, overlap and prefetch: no bytes\n"));
  CHECK(contains(text.out, "\nzero2, overlap and prefetch: +50,816 B of gradients; the peak"));
  CHECK(contains(text.out,
                 "\nzero3, overlap and prefetch: +50,816 B of gradients, +50,816 B of parameters, "
                 "-25,408 B sent per step; the peak"));
  CHECK_FALSE(contains(text.out, "reproducible"));
  flags.push_back("--json");
  const Json stages = Json::parse(plan(flags).out)["stages"];
  const Json &cost = stages[3]["overlap_cost"], &none = stages[1]["overlap_cost"];
  CHECK((cost["gradient_bytes"] == 50'816 && cost["parameter_bytes"] == 50'816));
  CHECK((cost["sent_bytes_per_rank"] == -25'408 && cost["rest_bytes"] == 0));
  CHECK((none["gradient_bytes"] == 0 && none["sent_bytes_per_rank"] == 0));
  CHECK_FALSE(stages[3].contains("reproducible_cost"));
}

TEST_CASE("plan tells the price of reproducible sums, and counts their fp32 gradients",
          "[zerolab]") {
  const std::vector<std::string> flags = {"--model", "tiny",  "--ranks",
                                          "2",       "--set", "zerolab.reproducible=true"};
  const Finished text = plan(flags);
  CHECK(text.code == 0);
  // Units of 9,280 and twice 12,704 elements become 10,240 and twice 14,336.
  CHECK(contains(text.out, "\nddp, reproducible sums: +67,584 B in steady state, "));
  CHECK(contains(text.out, " B of communication, "));
  // Model states of 1e9 parameters in bf16: 2 + 4 + 12 bytes. Three micro-batches in fp32 are
  // reduced each: ddp sends 2 * 3 * 1/2 * 4 bytes, zero1 3 * 1/2 * 4 and gathers 1/2 * 2.
  const Finished closed =
      plan({"--parameters", "1e9", "--ranks", "2", "--precision", "bf16", "--set",
            "gradient_accumulation_steps=3", "--set", "zerolab.reproducible=true", "--json"});
  CHECK(closed.code == 0);
  const Json stages = Json::parse(closed.out)["stages"];
  CHECK(stages[0]["predicted_rest_total_bytes"] == 18e9);
  CHECK(stages[0]["predicted_sent_bytes_per_rank"] == 12e9);
  CHECK(stages[1]["predicted_sent_bytes_per_rank"] == 7e9);
}

TEST_CASE("plan --estimate prints DeepSpeed's tables beside the exact bytes", "[zerolab]") {
  std::vector<std::string> flags = {"--model", "gpt2", "--ranks", "4", "--stages", "zero2,zero3"};
  const std::string without = plan(flags).out;
  CHECK_FALSE(contains(without, "DeepSpeed"));
  flags.push_back("--estimate");
  const Finished text = plan(flags);
  CHECK(text.code == 0);
  CHECK(text.out.starts_with(without));
  CHECK(contains(text.out, "\nHW: Setup with 1 node, 4 GPUs per node.\n"));
  CHECK(contains(text.out, "\n    2.78GB |   0.23GB | offload_optimizer=cpu  | "));
  CHECK(contains(text.out, "1.623GB |  0.232GB |     0.318GB\n"));
  flags.insert(flags.end(), {"--ranks-per-node", "2", "--json"});
  const Json document = Json::parse(plan(flags).out), &estimate = document["estimate"];
  CHECK((estimate["nodes"] == 2 && estimate["gpus_per_node"] == 2));
  CHECK(estimate["largest_layer_parameters"] == 38'597'376);
  const Json& row = estimate["stages"][1]["rows"][2];  // zero3 with offload of the optimizer
  CHECK((row["offload_param"] == "none" && row["offload_optimizer"] == "cpu"));
  CHECK(row["estimated_bytes_per_gpu"] == 216'609'408);
  CHECK(row["exact_rest_bytes_per_gpu"] == 62'219'904);
  CHECK(row["exact_peak_bytes_per_gpu"] == 248'112'768);
  CHECK(row["exact_bytes_per_cpu"] == 1'742'157'312 / 2);  // of two of the four ranks
  CHECK(document["stages"].size() == 2);                   // the plan is there as well
  // Of a number of parameters, DeepSpeed's …_all_cold: stage 2's only.
  const Json cold = Json::parse(plan({"--parameters", "124439808", "--estimate", "--json"}).out);
  CHECK(cold["estimate"]["stages"].size() == 1);
  CHECK(cold["estimate"]["stages"][0]["rows"][1]["estimated_bytes_per_gpu"] == 808'858'752);
}

TEST_CASE("plan's further tables refuse what they cannot show", "[zerolab]") {
  for (const auto& [flags, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--estimate", "--stages", "ddp,zero1"}, "add zero2 or zero3 to --stages"},
           {{"--estimate", "--ranks", "4", "--ranks-per-node", "3"}, "does not divide the 4 ranks"},
           {{"--ranks", "4", "--ranks-per-node", "2"}, "--ranks-per-node is for the stages"},
           {{"--parameters", "1e9", "--buffers"}, "--buffers needs a model"},
           {{"--parameters", "1e9", "--fragmentation"}, "--fragmentation needs a model"}}) {
    const Finished refused = plan(flags);
    CAPTURE(message, refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, message));
  }
}

TEST_CASE("plan prints constant buffers, fragmentation and the paper's figures", "[zerolab]") {
  const std::vector<std::string> gpt2 = {"--model", "gpt2", "--ranks", "4", "--as", "cuda"};
  auto flags = gpt2;
  flags.insert(flags.end(), {"--buffers", "--fragmentation", "--paper"});
  const Finished text = plan(flags);
  CHECK(text.code == 0);
  CHECK(contains(text.out, "497,759,232 B  497,759,232 B  2,000,000,000 B\n"));
  CHECK(contains(text.out, "\n  zero2, best fit   3,424,027,556  3,433,430,784    0.27 %"));
  CHECK(contains(text.out, "33.00 GB  67.11 GB  34.11 GB !"));
  flags.push_back("--json");
  const Json with = Json::parse(plan(flags).out);
  CHECK(with["constant_buffers"][2]["peak_communication_bytes"] == 497'759'232);
  CHECK(with["constant_buffers"][0]["constant_bytes"] == 157'541'376);
  REQUIRE(with["fragmentation"].size() == 8);  // four stages, first fit and best fit
  const Json& row = with["fragmentation"][4];
  CHECK((row["stage"] == "zero2" && row["fit"] == "first fit"));
  CHECK(row["one_arena"]["peak_live_bytes"] == 3'424'027'556);
  CHECK(row["chunk_of_gradients"]["high_water_bytes"] == 310'332'672);
  int deviating = 0;
  for (const Json& figure : with["paper"]) deviating += !figure["follows"];
  CHECK(deviating == 5);
  flags = gpt2;
  flags.push_back("--json");
  const Json without = Json::parse(plan(flags).out);  // the twin
  for (const char* key : {"constant_buffers", "fragmentation", "paper", "estimate"})
    CHECK_FALSE(without.contains(key));
}

}  // namespace cli
