// What plan says that overlap, prefetch, reuse and reproducible sums cost.

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

}  // namespace cli
