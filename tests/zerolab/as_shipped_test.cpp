// compare --as and the presets as stages: what people see.
#include <catch2/catch_test_macros.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

std::vector<std::string> tiny(const std::string& command, const std::vector<std::string>& more) {
  std::vector<std::string> all{command,
                               "--model",
                               "tiny",
                               "--ranks",
                               "2",
                               "--set",
                               "zero_optimization.reduce_bucket_size=20000"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("compare --as puts systems beside the paper and says which formula differs",
          "[zerolab]") {
  const Finished f =
      zerolab(tiny("compare", {"--steps", "3", "--as", "paper,deepspeed-1,torch-ddp"}));
  CAPTURE(f.out, f.err);
  CHECK(f.code == 0);
  CHECK(contains(f.out, "deepspeed-1 sends (N-1)/N (2c + e) Ψ where zero1 sends"));
  CHECK(contains(f.out, "Not imitated: "));
  CHECK(contains(f.out, "zero1"));
  CHECK_FALSE(contains(f.out, "zero3"));
  CHECK_FALSE(contains(zerolab(tiny("compare", {"--steps", "3", "--stages", "zero1"})).out,
                       "Not imitated"));
}

TEST_CASE("compare holds every preset to its parent and to its formulas", "[zerolab]") {
  for (const char* accumulation : {"1", "3"}) {
    const Finished f = zerolab(
        tiny("compare", {"--steps", "3", "--as",
                         "deepspeed-1,deepspeed-2,deepspeed-3,fsdp2,fsdp2-no-reshard,torch-ddp",
                         "--set", std::string("gradient_accumulation_steps=") + accumulation}));
    CAPTURE(f.out, f.err);
    CHECK(f.code == 0);
    CHECK(contains(f.out, "Every stage has the bits that it promises"));
  }
}

TEST_CASE("train and plan take presets as stages", "[zerolab]") {
  const Finished trained = zerolab(tiny("train", {"--steps", "2", "--stage", "deepspeed-2"}));
  CAPTURE(trained.err);
  CHECK(trained.code == 0);
  const Finished planned = zerolab(tiny("plan", {"--stages", "deepspeed-3"}));
  CAPTURE(planned.err);
  CHECK(planned.code == 0);
  CHECK(contains(planned.out, "deepspeed-3"));
  CHECK(planned.out.find("    communication") < planned.out.find("  steady state"));  // the bucket
  const Finished papers = zerolab(tiny("plan", {"--stages", "zero3"}));
  CHECK_FALSE(contains(papers.out, "    communication"));
}

TEST_CASE("wrong presets are refused in one sentence", "[zerolab]") {
  const auto check = [](const std::vector<std::string>& arguments, const std::string& part) {
    const Finished f = zerolab(arguments);
    CAPTURE(arguments, f.err);
    CHECK(f.code == 2);
    CHECK(f.out.empty());
    CHECK(contains(f.err, part));
  };
  check({"compare", "--as", "deepsped-1"}, "did you mean 'deepspeed-1'?");
  check({"compare", "--as", "zero1"}, "'zero1' is none of paper, deepspeed-1");
  check({"compare", "--as", "paper"}, "name a preset too, such as paper,deepspeed-1");
  check(tiny("train", {"--stage", "deepspeed-1", "--reproducible"}), "leave reproducible out");
  check({"plan", "--parameters", "7e9", "--stages", "deepspeed-1"}, "the paper's formulas");
}

}  // namespace cli
