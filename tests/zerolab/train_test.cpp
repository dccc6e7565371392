// The files and the report of a training run.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> metrics(const std::string& folder) {
  std::vector<Json> steps;
  for (const std::string& line : lines(read_file(folder + "/metrics.jsonl")))
    steps.push_back(Json::parse(line));
  return steps;
}

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

Finished train(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"train", "--model", "tiny", "-q"});
  return zerolab(flags);
}

}  // namespace

TEST_CASE("two steps under every stage leave the promised metrics, and the same ones",
          "[zerolab]") {
  const ScratchFolder folder;
  std::vector<std::string> losses;
  for (const char* stage : {"ddp", "zero1", "zero2", "3"}) {
    CAPTURE(stage);
    const std::string run = folder / stage;
    const Finished finished =
        train({"--steps", "2", "--ranks", "2", "--stage", stage, "--out", run + "/with/parents"});
    REQUIRE(finished.code == 0);
    CHECK(finished.err.empty());  // -q
    CHECK(files_in(run + "/with/parents") ==
          std::vector<std::string>{"metrics.jsonl", "model.safetensors", "report.html",
                                   "report.json"});
    const auto steps = metrics(run + "/with/parents");
    REQUIRE(steps.size() == 2);
    std::string bits;
    for (int i = 0; i < 2; ++i) {
      CHECK(keys(steps[size_t(i)]) ==
            std::vector<std::string>{"step", "loss", "grad_norm", "lr", "tokens", "seconds"});
      CHECK(steps[size_t(i)]["step"] == i + 1);
      CHECK(steps[size_t(i)]["tokens"] == 4 * 2 * 32);
      CHECK(steps[size_t(i)]["lr"] == 1e-3);
      CHECK(steps[size_t(i)]["seconds"] > 0.0);
      bits += steps[size_t(i)]["loss"].dump() + " " + steps[size_t(i)]["grad_norm"].dump() + " ";
    }
    CHECK(std::abs(steps[0]["loss"].get<double>() - std::log(256.0)) < 0.1);
    losses.push_back(bits + read_file(run + "/with/parents/model.safetensors"));
  }
  for (const std::string& one : losses) CHECK(one == losses[0]);
}

TEST_CASE("the same seed gives the same bits twice, another seed others", "[zerolab]") {
  const ScratchFolder folder;
  const auto bits = [&](const std::string& seed, const std::string& name) {
    REQUIRE(train({"--steps", "3", "--seed", seed, "--shuffle", "--out", folder / name}).code == 0);
    std::string all;
    for (const Json& step : metrics(folder / name))
      all += step["loss"].dump() + " " + step["grad_norm"].dump() + " ";
    return all + read_file(folder / (name + "/model.safetensors"));
  };
  const std::string first = bits("7", "a");
  CHECK(first == bits("7", "b"));
  CHECK(first != bits("8", "c"));
}

TEST_CASE("with --json stdout is one document that says what the metrics say", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = zerolab({"train", "--model", "tiny", "--steps", "2", "--ranks", "2",
                                     "--stage", "2", "--json", "--out", folder / "run"});
  REQUIRE(finished.code == 0);
  const Json document = Json::parse(finished.out);  // throws if anything else is there
  CHECK(document["schema"] == 1);
  CHECK(document["command"] == "train");
  CHECK(document["stage"] == "zero2");
  CHECK(document["parameters"] == 34688);
  const auto steps = metrics(folder / "run");
  for (size_t i = 0; i < 2; ++i) {
    CHECK(document["loss"][i] == steps[i]["loss"]);
    CHECK(document["grad_norm"][i] == steps[i]["grad_norm"]);
  }
  CHECK(document["peak_total_bytes"].size() == 2);
  CHECK(document["memory"][0]["use"] == "parameter");
  CHECK(document["files"]["metrics"] == folder / "run/metrics.jsonl");
  CHECK(document["sample"]["tokens"].size() == 120);
}

TEST_CASE("without --out nothing is written", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = shell("cd '" + folder.path() +
                                  "' && \"$ZEROLAB\" train --model tiny --steps 1 -q --sample 5");
  CHECK(finished.code == 0);
  CHECK(contains(finished.out, "files       none; --out DIR"));
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("an evaluation adds eval_loss to its steps and nothing else", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(train({"--steps", "4", "--eval-every", "2", "--out", folder / "a"}).code == 0);
  const auto steps = metrics(folder / "a");
  CHECK_FALSE(steps[0].contains("eval_loss"));
  CHECK_FALSE(steps[2].contains("eval_loss"));
  CHECK(keys(steps[1]) == std::vector<std::string>{"step", "loss", "grad_norm", "lr", "tokens",
                                                   "seconds", "eval_loss"});
  CHECK(std::abs(steps[3]["eval_loss"].get<double>() - steps[3]["loss"].get<double>()) < 0.5);
}

TEST_CASE("a number that is not finite is null and its step is skipped", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished =
      train({"--steps", "3", "--set", "optimizer.type=SGD", "--set", "optimizer.params.lr=1e30",
             "--stage", "1", "--ranks", "2", "--out", folder / "a"});
  REQUIRE(finished.code == 0);
  CHECK(contains(finished.out, "gradient was not finite"));
  CHECK(contains(finished.out, "sample      none: "));
  const auto steps = metrics(folder / "a");
  CHECK_FALSE(steps[0].contains("skipped"));
  CHECK(steps[2]["loss"].is_null());
  CHECK(steps[2]["grad_norm"].is_null());
  CHECK(steps[2]["skipped"] == true);
}

TEST_CASE("a run that only skipped steps ends with 1 and saves no weights", "[zerolab]") {
  const ScratchFolder folder;
  const std::vector<std::string> broken = {
      "--set", "optimizer.type=SGD", "--set", "optimizer.params.lr=1e30", "--steps", "2"};
  std::vector<std::string> first = broken;
  first.insert(first.end(), {"--out", folder / "a"});
  REQUIRE(train(first).code == 0);  // its weights are not finite
  const Finished second = zerolab({"train", "-q", "--steps", "3", "--init-from",
                                   folder / "a/model.safetensors", "--out", folder / "b"});
  CHECK(second.code == 1);
  CHECK(contains(second.err, "zerolab: all 3 steps were skipped because no gradient was finite"));
  // A static loss scale is never lowered, so a run that skips every step has failed, too.
  const std::vector<std::string> too_large = {
      "train",    "--model", "tiny",  "--steps",           "2",     "-q",
      "--sample", "0",       "--set", "fp16.enabled=true", "--set", "fp16.loss_scale=1e30"};
  CHECK(zerolab(too_large).code == 1);
  CHECK(contains(second.out, "3 of 3 steps"));
  CHECK(files_in(folder / "b") ==
        std::vector<std::string>{"metrics.jsonl", "report.html", "report.json"});
}

TEST_CASE("on a full disk training goes on, prints its report and ends with 74", "[zerolab]") {
  const ScratchFolder folder;
  const Finished full = shell(
      "ulimit -f 1; $ZEROLAB train --model tiny --steps 20 -q --sample 0 --out " + (folder / "a"));
  CHECK(full.code == 74);
  CHECK(contains(full.out, "at step 20"));
  CHECK(contains(full.err, "training goes on without it"));
  CHECK(files_in(folder / "a") == std::vector<std::string>{"metrics.jsonl"});
  const std::string metrics = read_file(folder / "a/metrics.jsonl");
  CHECK(metrics.ends_with("}\n"));
}

TEST_CASE("after a failure the kept file is named, so that the next run can be started",
          "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = train({"--precision", "fp16", "--set", "fp16.initial_scale_power=30",
                                   "--set", "fp16.min_loss_scale=1073741824", "--set",
                                   "fp16.hysteresis=2", "--steps", "5", "--out", folder / "a"});
  CHECK(finished.code == 1);
  CHECK(contains(finished.err, "metrics.jsonl holds the steps so far"));
}

TEST_CASE("a run goes on from another one's weights, whose sizes it takes", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(zerolab({"train", "--model", "tiny", "--n-layer", "1", "--block-size", "16", "--steps",
                   "5", "-q", "--out", folder / "a"})
              .code == 0);
  const std::string weights = folder / "a/model.safetensors";
  const auto from = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {"train", "-q", "--steps", "1", "--sample", "0", "--init-from", weights});
    return zerolab(flags);
  };
  const Finished same = from({"--json"});
  REQUIRE(same.code == 0);
  const Json document = Json::parse(same.out);
  CHECK(document["model"]["n_layer"] == 1);
  CHECK(document["model"]["n_head"] == 2);
  CHECK(document["data"]["window"] == 16);
  CHECK(document["loss"][0] <
        metrics(folder / "a")[4]["loss"].get<double>() + 0.05);  // it has learned
  CHECK(from({"--n-layer", "1", "--n-embd", "32", "--n-head", "2", "--vocab-size", "256"}).code ==
        0);
  CHECK(Json::parse(from({"--block-size", "8", "--json"}).out)["data"]["window"] == 8);
  CHECK(from({"--model", "tiny", "--n-layer", "1", "--block-size", "16"}).code == 0);

  const std::vector<std::vector<std::string>> disagree = {{"--n-layer", "2"},
                                                          {"--n-embd", "64"},
                                                          {"--n-head", "4"},
                                                          {"--vocab-size", "300"},
                                                          {"--block-size", "32"},
                                                          {"--model", "tiny"},
                                                          {"--set", "zerolab.model=small"}};
  for (const auto& flags : disagree) {
    const Finished finished = from(flags);
    CAPTURE(flags, finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, weights));
  }
}

TEST_CASE("size flags override single values of a named model, and of the default one",
          "[zerolab]") {
  const auto model = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"train", "-q", "--steps", "1", "--sample", "0", "--json"});
    return Json::parse(zerolab(flags).out)["model"];
  };
  const Json tiny = model({"--model", "tiny", "--n-layer", "1"}),
             small = model({"--n-layer", "1", "--block-size", "8"});
  CHECK(tiny["n_layer"] == 1);
  CHECK(tiny["n_embd"] == 32);
  CHECK(small["n_layer"] == 1);
  CHECK(small["n_embd"] == 128);
  CHECK(small["block_size"] == 8);
}

TEST_CASE("the sample is the seed's and shows no byte that could control a terminal", "[zerolab]") {
  const std::vector<std::string> flags = {"train", "--model",  "tiny", "-q",       "--steps",
                                          "1",     "--sample", "200",  "--prompt", "Ranks "};
  const Finished one = zerolab(flags), two = zerolab(flags);
  const auto sample = [](const std::string& out) { return out.substr(out.find("sample")); };
  CHECK(contains(one.out, "  Ranks "));
  CHECK(sample(one.out) == sample(two.out));
  CHECK(std::none_of(one.out.begin(), one.out.end(), [](char c) {
    return (uint8_t(c) < 32 && c != '\n' && c != '\t') || c == 127;
  }));
}

}  // namespace cli
