// The files, the report and the progress of a training run, and --threads.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

using Ordered = nlohmann::ordered_json;

std::vector<Ordered> metrics(const std::string& folder) {
  std::vector<Ordered> steps;
  for (const std::string& line : lines(read_file(folder + "/metrics.jsonl")))
    steps.push_back(Ordered::parse(line));
  return steps;
}

const std::string kTinyRun = "train --model tiny -q ";
const std::string kDiverges = "--set optimizer.type=SGD --set optimizer.params.lr=1e30 ";

const std::string kProgress = "train --model tiny --steps 60 --sample 5";

Finished on_terminal(const std::string& more = "",
                     const std::map<std::string, std::string>& environment = {}) {
  return run({.arguments = words(kProgress + more), .environment = environment, .terminal = true});
}

}  // namespace

TEST_CASE("train predicts by closed formulas, and activations only by a dry run", "[zerolab]") {
  for (const bool dry : {false, true}) {
    const Finished finished =
        call(kTinyRun + "--steps 2 --ranks 3 --stage zero3 --sample 0 --json" +
             (dry ? " --dry-run" : ""));
    REQUIRE(finished.code == 0);
    const Json document = Json::parse(finished.out);
    CHECK(document["memory"].size() == 3 * 6);
    for (const Json& row : document["memory"]) {
      CAPTURE(row.dump());
      const bool unknown = row["use"] == "activation" || row["use"] == "workspace";
      const Json nothing;
      CHECK(row["predicted_rest_bytes"] == (unknown && !dry ? nothing : row["rest_bytes"]));
      CHECK(row["predicted_peak_bytes"] == (unknown && !dry ? nothing : row["peak_bytes"]));
    }
    for (const Json& row : document["communication"])
      CHECK(row["predicted_sent_bytes_per_rank"] == row["sent_bytes_per_rank"]);
  }
}

TEST_CASE("where blocks are computed again together, train predicts by a dry run or not at all",
          "[zerolab]") {
  const std::string together = kTinyRun +
                               "--steps 2 --ranks 3 --stage zero3 --sample 0 --json "
                               "--set activation_checkpointing.number_checkpoints=1 --set "
                               "gradient_accumulation_steps=2 ";
  for (const std::string dry : {"", "--dry-run"}) {
    const Json document = Json::parse(call(together + dry).out);
    const auto expected = [&](const Json& measured) { return dry.empty() ? Json() : measured; };
    for (const Json& row : document["communication"]) {
      CAPTURE(row.dump());
      CHECK(row["predicted_sent_bytes_per_rank"] == expected(row["sent_bytes_per_rank"]));
    }
    for (const Json& row : document["memory"]) {
      CAPTURE(row.dump());
      CHECK(row["predicted_rest_bytes"] == expected(row["rest_bytes"]));
      CHECK(row["predicted_peak_bytes"] == expected(row["peak_bytes"]));
    }
  }
}

TEST_CASE("two steps under every stage leave the promised metrics, and the same ones",
          "[zerolab]") {
  const ScratchFolder folder;
  std::vector<std::string> runs;
  for (const std::string stage : {"ddp", "zero1", "zero2", "3"}) {
    CAPTURE(stage);
    const std::string run = folder / (stage + "/with/parents");
    const Finished finished =
        call(kTinyRun + "--steps 2 --ranks 2 --stage " + stage + " --out " + run);
    REQUIRE(finished.code == 0);
    CHECK(finished.err.empty());  // -q
    CHECK(files_in(run) == words("metrics.jsonl model.safetensors report.html report.json"));
    const auto steps = metrics(run);
    REQUIRE(steps.size() == 2);
    std::string bits;
    for (int i = 0; i < 2; ++i) {
      const Ordered& step = steps[size_t(i)];
      CHECK(keys(step.dump()) == words("step loss grad_norm lr tokens seconds"));
      CHECK((step["step"] == i + 1 && step["tokens"] == 4 * 2 * 32 && step["lr"] == 1e-3));
      CHECK(step["seconds"] > 0.0);
      bits += step["loss"].dump() + " " + step["grad_norm"].dump() + " ";
    }
    CHECK(std::abs(steps[0]["loss"].get<double>() - std::log(256.0)) < 0.1);
    runs.push_back(bits + weights_of(run));
  }
  for (const std::string& one : runs) CHECK(one == runs[0]);
}

TEST_CASE("with --json stdout is one document that says what the metrics say", "[zerolab]") {
  const ScratchFolder folder;
  const Json json = Json::parse(document(
      "train --model tiny --steps 2 --ranks 2 --stage 2 --threads 2 --out " + (folder / "run")));
  CHECK((json["schema"] == 1 && json["command"] == "train" && json["stage"] == "zero2" &&
         json["parameters"] == 34688 && json["threads"] == 2));
  const auto steps = metrics(folder / "run");
  for (size_t i = 0; i < 2; ++i) {
    CHECK(json["loss"][i] == steps[i]["loss"]);
    CHECK(json["grad_norm"][i] == steps[i]["grad_norm"]);
  }
  CHECK(json["peak_total_bytes"].size() == 2);
  CHECK(json["memory"][0]["use"] == "parameter");
  CHECK(json["files"]["metrics"] == folder / "run/metrics.jsonl");
  CHECK(json["sample"]["tokens"].size() == 120);
}

TEST_CASE("without --out nothing is written, also where a stream came closed", "[zerolab]") {
  const ScratchFolder folder;
  const std::string within = "cd '" + folder.path() + "' && \"$ZEROLAB\" train --model tiny -q ";
  const Finished finished = shell(within + "--steps 1 --sample 5");
  CHECK(finished.code == 0);
  CHECK(contains(finished.out, "files       none; --out DIR"));
  CHECK(files_in(folder.path()).empty());
  CHECK(
      shell("$ZEROLAB train --model tiny --steps 3 --sample 0 --out " + (folder / "run") + " 2>&-")
          .code == 0);
  CHECK(metrics(folder / "run").size() == 3);  // nothing but JSON
}

TEST_CASE("an evaluation adds eval_loss to its steps and nothing else", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(call(kTinyRun + "--steps 4 --eval-every 2 --out " + (folder / "a")).code == 0);
  const auto steps = metrics(folder / "a");
  for (const size_t i : {0, 2}) CHECK_FALSE(steps[i].contains("eval_loss"));
  CHECK(keys(steps[1].dump()) == words("step loss grad_norm lr tokens seconds eval_loss"));
  CHECK(std::abs(steps[3]["eval_loss"].get<double>() - steps[3]["loss"].get<double>()) < 0.5);
}

TEST_CASE(
    "a number that is not finite is null and its step is skipped; only skipped steps end "
    "with 1 and without weights",
    "[zerolab]") {
  const ScratchFolder folder;
  const std::string a = folder / "a", b = folder / "b";
  const Finished finished =
      call(kTinyRun + "--steps 3 --stage 1 --ranks 2 --out " + a + " " + kDiverges);
  REQUIRE(finished.code == 0);
  check_says(finished.out, {"gradient was not finite", "sample      none: "});
  const auto steps = metrics(a);
  CHECK_FALSE(steps[0].contains("skipped"));
  CHECK((steps[2]["loss"].is_null() && steps[2]["grad_norm"].is_null()));
  CHECK(steps[2]["skipped"] == true);
  const Json shown = Json::parse(report_in(a))["metrics"]["zero1"];
  CHECK((shown[0]["loss"].is_number() && shown.back()["loss"].is_null()));

  const Finished second =
      call("train -q --steps 3 --init-from " + a + "/model.safetensors --out " + b);
  CHECK(second.code == 1);
  check_says(second.err, {"zerolab: all 3 steps were skipped because no gradient was finite"});
  CHECK(contains(second.out, "3 of 3 steps"));
  CHECK(files_in(b) == words("metrics.jsonl report.html report.json"));
}

TEST_CASE("on a full disk training goes on, prints its report and ends with 74", "[zerolab]") {
  const ScratchFolder folder;
  const Finished full = shell(
      "ulimit -f 1; $ZEROLAB train --model tiny --steps 20 -q --sample 0 --out " + (folder / "a"));
  CHECK(full.code == 74);
  CHECK(contains(full.out, "at step 20"));
  CHECK(contains(full.err, "training goes on without it"));
  CHECK(files_in(folder / "a") == Words{"metrics.jsonl"});
  CHECK(read_file(folder / "a/metrics.jsonl").ends_with("}\n"));
}

TEST_CASE("a run goes on from another one's weights, whose sizes it takes", "[zerolab]") {
  const ScratchFolder folder;
  const std::string a = folder / "a";
  REQUIRE(call(kTinyRun + "--n-layer 1 --block-size 16 --steps 5 --out " + a).code == 0);
  const std::string from = "train -q --steps 1 --sample 0 --init-from " + a + "/model.safetensors ";
  const Json same = Json::parse(document(from));
  CHECK((same["model"]["n_layer"] == 1 && same["model"]["n_head"] == 2));
  CHECK(same["data"]["window"] == 16);
  CHECK(same["loss"][0] < metrics(a)[4]["loss"].get<double>() + 0.05);  // it has learned
  for (const char* fits : {"--n-layer 1 --n-embd 32 --n-head 2 --vocab-size 256",
                           "--model tiny --n-layer 1 --block-size 16"})
    CHECK(call(from + fits).code == 0);
  CHECK(Json::parse(document(from + "--block-size 8"))["data"]["window"] == 8);
}

TEST_CASE("size flags override single values of a named model, and of the default one",
          "[zerolab]") {
  const std::string one = "train -q --steps 1 --sample 0 ";
  const Json tiny = Json::parse(document(one + "--model tiny --n-layer 1"))["model"],
             small = Json::parse(document(one + "--n-layer 1 --block-size 8"))["model"];
  CHECK((tiny["n_layer"] == 1 && tiny["n_embd"] == 32));
  CHECK((small["n_layer"] == 1 && small["n_embd"] == 128 && small["block_size"] == 8));
}

TEST_CASE("the sample is the seed's and shows no byte that could control a terminal", "[zerolab]") {
  const std::string line = kTinyRun + "--steps 1 --sample 200 --prompt 'Ranks '";
  const Finished one = call(line), two = call(line);
  const auto sample = [](const std::string& out) { return out.substr(out.find("sample")); };
  CHECK(contains(one.out, "  Ranks "));
  CHECK(sample(one.out) == sample(two.out));
  CHECK(std::none_of(one.out.begin(), one.out.end(), [](char c) {
    return (uint8_t(c) < 32 && c != '\n' && c != '\t') || c == 127;
  }));
}

TEST_CASE("on a terminal progress is one line that is written over", "[zerolab]") {
  const Finished finished = on_terminal();
  REQUIRE(finished.code == 0);
  const std::string progress = finished.err.substr(finished.err.find("no clipping"));
  check_says(progress,
             {"\r 1/60 ", "\r60/60 ", "\x1b[K", "loss ", "norm ", "lr 0.001", "tokens/s", "ETA "});
  CHECK(count(progress, "\n") == 2);  // of the last heading, and at the end
  CHECK(contains(finished.out, "sample"));
  CHECK_FALSE(contains(on_terminal("", {{"TERM", "dumb"}}).err, "\x1b"));
  const Finished quiet = on_terminal(" -q");
  CHECK((quiet.code == 0 && quiet.err.empty()));
  CHECK(quiet.out.starts_with("loss "));
}

TEST_CASE("elsewhere progress is about twenty plain lines, first and last among them",
          "[zerolab]") {
  const Finished finished = call(kProgress);
  REQUIRE(finished.code == 0);
  const auto steps = starting(finished.err, "step ");
  CHECK((steps.size() >= 10 && steps.size() <= 22));
  REQUIRE(!steps.empty());
  CHECK(steps.front().starts_with("step  1/60  loss "));
  CHECK(steps.back().starts_with("step 60/60  loss "));
  CHECK_FALSE(contains(finished.err, "\r"));
  CHECK_FALSE(contains(finished.err, "\x1b"));
}

TEST_CASE("--threads changes no result, and is told", "[zerolab]") {
  const auto loss = [](const char* threads) {
    return Json::parse(document(tiny_run(2, "--ranks 2 --threads ") + threads))["loss"];
  };
  CHECK(loss("1") == loss("3"));  // all numbers: tests/stages/train
  check_says(call("train --model tiny --steps 1 --ranks 1 --threads 2").err,
             {"on 1 rank of 2 threads, "});
  check_says(call("bench kernels --model tiny --rows 64 --threads 2 -q").out,
             {"\nthreads ", "  2\n"});
  check_says(call("bench step --model tiny --ranks 1 --steps 1 --threads 2 -q").out,
             {"\nthreads ", "  2\n"});
  // Each thread has a workspace.
  const std::string plan = "plan --model small --ranks 2 --stages zero1 --threads ";
  const Json one = Json::parse(document(plan + "1")), three = Json::parse(document(plan + "3"));
  CHECK(three["threads"] == 3);
  const char* peak = "predicted_peak_total_bytes";
  CHECK(three["stages"][0][peak][0] > one["stages"][0][peak][0]);
}

}  // namespace cli
