// Where a value comes from: default < config file < --set < flag.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

constexpr const char* kSettingsFile = R"({
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 1},
  "zerolab": {"steps": 3, "seed": 5, "model": "tiny"}
})";

struct Run {
  Json document;
  std::string err;
};

Run trained(const std::string& flags) {
  const Finished finished = call("train --json --sample 0 " + flags);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return {Json::parse(finished.out), finished.err};
}

const std::string kTinySettings = "--model tiny --steps 1 ";

}  // namespace

TEST_CASE("a config file beats the defaults, --set beats the file, a flag beats both",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", kSettingsFile),
                    config = "--config " + file;
  const Run from_file = trained(config);
  const Json& document = from_file.document;
  CHECK((document["steps"] == 3 && document["seed"] == 5 && document["stage"] == "zero1"));
  CHECK((document["parameters"] == 34688 && document["tokens"] == 3 * 2 * 32));
  CHECK_FALSE(contains(from_file.err, "replaces"));

  CHECK(trained(config + " --set zerolab.steps=2").document["steps"] == 2);
  const Run flag = trained(config + " --set zerolab.steps=2 --steps 1");
  CHECK(flag.document["steps"] == 1);
  check_says(flag.err, {"--set zerolab.steps", "--steps 1 replaces 2"});

  const Run changed = trained(config + " --stage zero2 --seed 6 --ranks 2");
  CHECK((changed.document["stage"] == "zero2" && changed.document["seed"] == 6));
  check_says(changed.err, {file + ":3: note: zero_optimization.stage: --stage zero2 replaces zero1",
                           "--seed 6 replaces 5"});
  CHECK_FALSE(contains(trained(config + " --stage 1 --steps 3").err, "replaces"));  // the same
  CHECK(trained(config + " --steps 1 -q").err.empty());
  // Of several notes about a file one line is printed.
  const std::string usual =
      ZEROLAB_SOURCE_DIR "/tests/stages/deepspeed/configs/trainer_stage3_auto.json";
  CHECK(
      starting(trained(kTinySettings + "--config " + usual).err, usual + ": note: 4 keys").size() ==
      1);
}

TEST_CASE(
    "a schedule whose total is \"auto\" ends with --steps, also after a resume and in compare",
    "[zerolab]") {
  const ScratchFolder folder;
  const auto flags = [&](const std::string& total) {
    return " --model tiny --steps 12 --config " + write_file(folder / "ds.json", R"(
        {"train_batch_size": 4, "scheduler": {"type": "WarmupCosineLR", "params":
            {"warmup_num_steps": 2, "total_num_steps": )" + total + "}}}");
  };
  const auto run = [&](const std::string& name, const std::string& total, const std::string& more) {
    trained(more + " --out " + (folder / name) + flags(total));
    return metrics_of(folder / name);
  };
  // What the schedule is: tests/optim.
  const Words all = run("a", "\"auto\"", "--save-every 6");
  CHECK(all == run("12", "12", ""));
  CHECK(all != run("100", "100", ""));  // the twin
  CHECK(Words(all.begin() + 6, all.end()) ==
        run("b", "\"auto\"", "--resume " + (folder / "a/step-00000006")));
  REQUIRE(call("compare -q --ranks 1 --out " + (folder / "c") + flags("\"auto\"")).code == 0);
  const Json compared = Json::parse(read_file(folder / "c/compare.json"));
  CHECK(compared["settings"]["configuration"]["scheduler.params.total_num_steps"] == 12);
}

TEST_CASE("settings are judged by the stage of --stage, and by none where several stages run",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json",
                                      R"({"train_micro_batch_size_per_gpu": 1,
          "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}})");
  const std::string small = " --model tiny --ranks 2 --config " + file;
  const Finished as_filed = call("train --steps 1 --sample 0" + small),
                 second = call("train --steps 1 --sample 0 --stage zero2" + small);
  CHECK((as_filed.code == 2 && second.code == 0));
  check_says(as_filed.err, {"zero_hpz_partition_size: 3 does not divide 2 ranks"});
  check_says(second.err, {"zero_hpz_partition_size: has no effect: it chooses zero3_hpz only"});
  CHECK(call("compare --steps 1" + small).code == 0);
  CHECK(call("plan" + small).code == 0);
}

TEST_CASE("train says what its settings are and what they replace", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", R"({"train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95],
                                              "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 10}}})");
  const std::pair<std::string, std::string> table[] = {
      {"", "update  AdamW, betas 0.9 0.999, eps 1e-08, decay 0; lr 0.001, constant; no clipping"},
      {"--config " + file,
       "AdamW, betas 0.8 0.95, eps 1e-08, decay 0.1; lr 0 to 0.01 in 10 steps (WarmupLR); "
       "gradients clipped to norm 1"},
      {"--set train_micro_batch_size_per_gpu=3 --set gradient_accumulation_steps=2",
       "B 3 × A 2 × N 1; fp32\nset     train_micro_batch_size_per_gpu=3, "
       "gradient_accumulation_steps=2\n"},
      {"--set bfloat16.enabled=true --precision fp32",
       "--set bfloat16.enabled: note: bf16.enabled: --precision fp32 replaces "},
      {"--set fp16.enabled=true --precision fp32",
       "--set fp16.enabled: note: --precision fp32 replaces "},
      {"--ranks 2 --set zerolab.as=fsdp2", "show what it keeps and sends; zero3 runs"}};
  for (const auto& [flags, said] : table) check_says(trained(kTinySettings + flags).err, {said});
  CHECK(trained(kTinySettings + table[2].first).document["tokens"] == 3 * 2 * 32);
  const std::string unmatched =
      trained(kTinySettings + R"(--set zerolab.no_weight_decay=["*.bias","*.bais"])").err;
  check_says(unmatched, {"--set zerolab.no_weight_decay: warning: \"*.bais\" matches no parameter "
                         "of tiny"});
  CHECK_FALSE(contains(unmatched, "\"*.bias\" matches"));
}

TEST_CASE("settings with errors run nothing and name each of them", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(
      folder / "ds.json",
      "{\n\"train_micro_batch_size_per_gpu\": \"many\",\n\"zero_optimization\": {\"stage\": 7}\n}");
  const Finished finished = call("train --config " + file + " --out " + (folder / "run"));
  check_refused(finished, "zerolab: the settings have 2 errors, named above; nothing was run");
  check_says(finished.err, {file + ":2: error: ", file + ":3: error: "});
  CHECK(files_in(folder.path()) == Words{"ds.json"});
}

TEST_CASE("a run says which groups its stages have", "[zerolab]") {
  const std::string four = "compare --model tiny --steps 1 --ranks 4 --stages ";
  check_says(call(four + "hsdp,zero3_hpz --replicas 4").err,
             {"groups  hsdp: 4 replicas of 1 rank; zero3_hpz: 2 nodes of 2 ranks\n"});
  CHECK_FALSE(contains(call(four + "zero3").err, "groups"));
}

}  // namespace cli
