// Where a value comes from: default < config file < --set < flag.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

constexpr const char* kFile = R"({
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 1},
  "zerolab": {"steps": 3, "seed": 5, "model": "tiny"}
})";

struct Run {
  nlohmann::json document;
  std::string err;
};

Run train(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"train", "--json", "--sample", "0"});
  const Finished finished = zerolab(flags);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return {nlohmann::json::parse(finished.out), finished.err};
}

}  // namespace

TEST_CASE("a config file beats the defaults, --set beats the file, a flag beats both",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", kFile);
  const Run from_file = train({"--config", file});
  CHECK(from_file.document["steps"] == 3);
  CHECK(from_file.document["seed"] == 5);
  CHECK(from_file.document["stage"] == "zero1");
  CHECK(from_file.document["parameters"] == 34688);
  CHECK(from_file.document["tokens"] == 3 * 2 * 32);
  CHECK_FALSE(contains(from_file.err, "replaces"));

  CHECK(train({"--config", file, "--set", "zerolab.steps=2"}).document["steps"] == 2);
  const Run flag = train({"--config", file, "--set", "zerolab.steps=2", "--steps", "1"});
  CHECK(flag.document["steps"] == 1);
  CHECK(contains(flag.err, "--set zerolab.steps"));
  CHECK(contains(flag.err, "--steps 1 replaces 2"));
}

TEST_CASE(
    "a schedule whose total is \"auto\" ends with --steps, also after a resume and in compare",
    "[zerolab]") {
  // WarmupCosineLR of DeepSpeed 0.19.8 (runtime/lr_schedules.py): step k has the rate of
  // last_batch_iteration i = k - 2; from i = 2 on, after 2 steps of warm-up, it is
  // lr * (c + (1 - c) * (1 + cos(pi * (i - 1) / (total - 2))) / 2) with c = 1e-4 and lr = 1e-3.
  const auto rate = [](int k, int total) {
    const double progress = std::min(1.0, double(k - 3) / (total - 2));
    return 1e-3 * (1e-4 + (1 - 1e-4) * (1 + std::cos(std::numbers::pi * progress)) / 2);
  };
  CHECK(std::abs(rate(10, 12) - 2.06e-4) < 5e-7);  // the report of this fault has these three
  CHECK(std::abs(rate(11, 12) - 9.56e-5) < 5e-8);
  CHECK(std::abs(rate(12, 12) - 2.46e-5) < 5e-8);
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", R"({"train_batch_size": 4,
    "scheduler": {"type": "WarmupCosineLR",
                  "params": {"warmup_num_steps": 2, "total_num_steps": "auto"}}})");
  const std::vector<std::string> flags = {"--config", file, "--model", "tiny", "--steps", "12"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return more;
  };
  const auto check_rates = [&](const std::string& run) {
    for (const std::string& line : lines(read_file(folder / (run + "/metrics.jsonl")))) {
      const auto step = nlohmann::json::parse(line);
      if (step["step"] < 5) continue;
      CAPTURE(run, line);
      CHECK(std::abs(step["lr"].get<double>() - rate(step["step"], 12)) < 1e-9);
      CHECK(std::abs(step["lr"].get<double>() - rate(step["step"], 100)) > 1e-6);  // the twin
    }
  };
  train(with({"--out", folder / "a", "--save-every", "6"}));
  check_rates("a");
  train(with({"--resume", folder / "a/step-00000006", "--out", folder / "b"}));
  check_rates("b");
  REQUIRE(zerolab(with({"compare", "--ranks", "1", "--out", folder / "c", "-q"})).code == 0);
  const auto compared = nlohmann::json::parse(read_file(folder / "c/compare.json"));
  CHECK(compared["settings"]["configuration"]["scheduler.params.total_num_steps"] == 12);
}

TEST_CASE(
    "a flag that changes the file's value is noted, one that repeats it is not, and -q is quiet",
    "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(folder / "ds.json", kFile);
  const Run changed = train({"--config", file, "--stage", "zero2", "--seed", "6", "--ranks", "2"});
  CHECK(changed.document["stage"] == "zero2");
  CHECK(changed.document["seed"] == 6);
  CHECK(contains(changed.err,
                 file + ":3: note: zero_optimization.stage: --stage zero2 replaces zero1"));
  CHECK(contains(changed.err, "--seed 6 replaces 5"));
  CHECK_FALSE(contains(train({"--config", file, "--stage", "1", "--steps", "3"}).err, "replaces"));
  CHECK(train({"--config", file, "--steps", "1", "-q"}).err.empty());
}

TEST_CASE("--precision names the key that it replaces, under either name of bf16", "[zerolab]") {
  for (const char* key : {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"}) {
    CAPTURE(key);
    const std::string set = std::string(key) + "=true";
    const Run run = train({"--model", "tiny", "--steps", "1", "--set", set, "--precision", "fp32"});
    CHECK(contains(run.err, std::string("--set ") + key + ": note: --precision fp32 replaces "));
  }
}

TEST_CASE("settings are judged by the stage of --stage, and by none where several stages run",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(
      folder / "ds.json", R"({"train_micro_batch_size_per_gpu": 1, "prescale_gradients": true,
    "zero_optimization": {"stage": 2, "compute_grad_norm": false, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})");
  const std::vector<std::string> small = {"--config", file, "--model", "tiny", "--ranks", "2"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return zerolab(arguments);
  };
  const Finished as_filed = with({"train", "--steps", "1", "--sample", "0"}),
                 third = with({"train", "--steps", "1", "--stage", "zero3"});
  CHECK((as_filed.code == 2 && third.code == 2));
  CHECK((contains(as_filed.err, "prescale_gradients: leave it out") &&
         contains(as_filed.err, "0.5 needs stage 3")));
  CHECK((contains(third.err, "compute_grad_norm: write true") &&
         !contains(third.err, "0.5 needs stage 3")));
  CHECK(with({"compare", "--steps", "1"}).code == 0);
  CHECK(with({"plan"}).code == 0);
}

TEST_CASE("a pattern of no_weight_decay that matches no parameter is warned of", "[zerolab]") {
  const Run run = train({"--model", "tiny", "--steps", "1", "--set",
                         "zerolab.no_weight_decay=[\"*.bias\", \"*.bais\"]"});
  CHECK(contains(
      run.err, "--set zerolab.no_weight_decay: warning: \"*.bais\" matches no parameter of tiny"));
  CHECK_FALSE(contains(run.err, "\"*.bias\" matches"));
}

TEST_CASE("--set works without a file", "[zerolab]") {
  const Run run =
      train({"--model", "tiny", "--steps", "1", "--set", "train_micro_batch_size_per_gpu=3",
             "--set", "gradient_accumulation_steps=2"});
  CHECK(run.document["tokens"] == 3 * 2 * 32);
  CHECK(contains(run.err, "B 3 × A 2 × N 1"));
}

TEST_CASE("train prints what changes the update", "[zerolab]") {
  const ScratchFolder folder;
  CHECK(contains(
      train({"--model", "tiny", "--steps", "1"}).err,
      "update  AdamW, betas 0.9 0.999, eps 1e-08, decay 0; lr 0.001, constant; no clipping"));
  const std::string file = write_file(folder / "ds.json", R"({"train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 10}}})");
  const std::string err = train({"--model", "tiny", "--steps", "1", "--config", file}).err;
  CHECK(contains(err,
                 "AdamW, betas 0.8 0.95, eps 1e-08, decay 0.1; lr 0 to 0.01 in 10 steps "
                 "(WarmupLR); gradients clipped to norm 1"));
}

TEST_CASE("settings with errors run nothing and name each of them", "[zerolab]") {
  const ScratchFolder folder;
  const std::string file = write_file(
      folder / "ds.json",
      "{\n\"train_micro_batch_size_per_gpu\": \"many\",\n\"zero_optimization\": {\"stage\": 7}\n}");
  const Finished finished = zerolab({"train", "--config", file, "--out", folder / "run"});
  CHECK(finished.code == 2);
  CHECK(finished.out.empty());
  CHECK(contains(finished.err, file + ":2: error: "));
  CHECK(contains(finished.err, file + ":3: error: "));
  CHECK(
      contains(finished.err, "zerolab: the settings have 2 errors, named above; nothing was run"));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"ds.json"});
}

TEST_CASE("a run says which groups its stages have", "[zerolab]") {
  const auto run = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"compare", "--model", "tiny", "--steps", "1", "--ranks", "4"});
    return zerolab(flags);
  };
  const std::string groups = run({"--stages", "hsdp,zero3_hpz", "--replicas", "4"}).err;
  CHECK(contains(groups, "groups  hsdp: 4 replicas of 1 rank; zero3_hpz: 2 nodes of 2 ranks\n"));
  CHECK_FALSE(contains(run({"--stages", "zero3"}).err, "groups"));
  const Finished both = run({"--stages", "zero1", "--as", "deepspeed-2"});
  CHECK(both.code == 2);
  CHECK(contains(both.err, "--stages and --as both say what runs"));
}

TEST_CASE("--stage overrides a preset of the configuration, and a note says so", "[zerolab]") {
  const auto run = [](const std::string& stage) {
    return zerolab({"train", "--model", "tiny", "--steps", "1", "--ranks", "2", "--sample", "0",
                    "--stage", stage, "--set", "zerolab.as=fsdp2"})
        .err;
  };
  CHECK(contains(run("zero3"), "has no effect: --stage zero3 overrides it"));
  CHECK_FALSE(contains(run("fsdp2"), "has no effect"));
}

}  // namespace cli
