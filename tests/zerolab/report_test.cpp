// report.json and report.html of compare, train and plan, and the command report.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

using Json = nlohmann::json;

Json report_in(const std::string& folder) {
  return Json::parse(read_file(folder + "/report.json"));
}

std::set<std::string> keys(const Json& object) {
  std::set<std::string> all;
  for (const auto& [key, value] : object.items()) all.insert(key);
  return all;
}

Finished tiny(const std::string& command, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{command, "--model", "tiny", "-q"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return zerolab(arguments);
}

// A folder of train whose run was killed after its fifth step or later.
void killed_run(const std::string& folder) {
  Launch launch{.arguments = {"train", "--model", "tiny", "--steps", "1e6", "--stage", "zero2",
                              "--ranks", "2", "--eval-every", "5", "--out", folder},
                .timeout = 30};
  launch.watch = [](pid_t process, const std::string& err) {
    if (contains(err, "held-out")) kill(process, SIGKILL);
  };
  CHECK(run(launch).code == 128 + SIGKILL);
}

}  // namespace

TEST_CASE("compare --out writes what --json prints, all steps, and one recorded step of each stage",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a<b>";
  REQUIRE(tiny("compare", {"--ranks", "3", "--steps", "4", "--out", out}).code == 0);
  const Json report = report_in(out);
  CHECK(keys(report) == std::set<std::string>{"schema", "kind", "about", "document", "failure",
                                              "steps_asked", "steps_made", "nonfinite_losses",
                                              "metrics", "sampled", "recordings"});
  CHECK(keys(report["about"]) == std::set<std::string>{"command", "version", "compiler", "device",
                                                       "cores", "date", "settings"});
  CHECK(report["kind"] == "compare");
  CHECK(report["document"] == Json::parse(read_file(out + "/compare.json")));
  CHECK(report["failure"].is_null());
  CHECK(report["steps_asked"] == 4);
  CHECK(report["sampled"].empty());
  CHECK(contains(report["about"]["command"], "zerolab compare --model tiny"));
  REQUIRE(report["recordings"].size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const Json &stage = report["document"]["stages"][i], &recording = report["recordings"][i];
    CHECK(keys(recording) == std::set<std::string>{"stage", "step", "ranks", "timed", "units",
                                                   "series", "texts", "events", "rank"});
    CHECK(recording["stage"] == stage["stage"]);
    CHECK(recording["step"] == 2);
    CHECK(recording["timed"] == true);
    REQUIRE(recording["rank"].size() == 3);
    const Json& steps = report["metrics"][std::string(stage["stage"])];
    for (size_t s = 0; s < 4; ++s) CHECK(steps[s]["loss"] == stage["loss"][s]);
    for (const Json& rank : recording["rank"]) {
      CHECK(rank["ns"].size() == recording["events"].size());
      CHECK(std::ranges::is_sorted(rank["ns"]));
    }
  }
  CHECK(contains(read_file(out + "/report.html"), "zero3"));
}

TEST_CASE("recording changes neither the results of a comparison nor its files without --out",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::vector<std::string> flags{"--ranks", "2", "--steps", "3", "--json"};
  auto with = flags;
  with.insert(with.end(), {"--out", folder / "a"});
  const Json a = Json::parse(tiny("compare", with).out),
             b = Json::parse(tiny("compare", flags).out);
  for (size_t i = 0; i < 4; ++i)
    for (const char* key : {"weights_hash", "loss", "peak_total_bytes", "communication"})
      CHECK(a["stages"][i][key] == b["stages"][i][key]);
}

TEST_CASE("one rank and 64 ranks have a report, which says how many ranks it shows", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(tiny("compare", {"--ranks", "1", "--steps", "1", "--out", folder / "one"}).code == 0);
  const Json one = report_in(folder / "one");
  CHECK(one["recordings"][3]["step"] == 1);
  CHECK(one["recordings"][3]["rank"].size() == 1);
  CHECK(one["sampled"].empty());
  REQUIRE(tiny("compare",
               {"--ranks", "64", "--steps", "1", "--stages", "zero3", "--out", folder / "many"})
              .code == 0);
  const Json many = report_in(folder / "many");
  CHECK(many["recordings"][1]["rank"].size() == 16);
  CHECK(many["sampled"] == Json{"Of 64 ranks the first 16 are shown."});
  CHECK(std::filesystem::file_size(folder / "many/report.json") < 2'000'000);
}

TEST_CASE("plan --out records a dry run of at most 8 ranks, without times", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(tiny("plan",
               {"--ranks", "64", "--set", "gradient_accumulation_steps=5", "--out", folder / "p"})
              .code == 0);
  const Json report = report_in(folder / "p");
  CHECK(files_in(folder / "p") == std::vector<std::string>{"report.html", "report.json"});
  CHECK(report["kind"] == "plan");
  CHECK(report["document"]["command"] == "plan");
  CHECK(report["recordings"][2]["timed"] == false);
  CHECK(report["recordings"][2]["rank"].size() == 8);
  CHECK(report["sampled"] == Json{"Of the 5 micro-batches of a step a dry run makes 3.",
                                  "Of 64 ranks the first 8 are shown."});
  REQUIRE(zerolab({"plan", "--parameters", "7.5e9", "--out", folder / "q"}).code == 0);
  CHECK(report_in(folder / "q")["recordings"].empty());
  CHECK(tiny("plan", {"--out", folder / "p"}).code == 2);
}

TEST_CASE("a loss that is not a number is null in the report", "[zerolab]") {
  const ScratchFolder folder;
  tiny("train", {"--steps", "5", "--sample", "0", "--set", "optimizer.params.lr=1e30", "--out",
                 folder / "a"});
  const Json report = report_in(folder / "a");
  CHECK(report["metrics"]["ddp"][0]["loss"].is_number());
  CHECK(report["metrics"]["ddp"].back()["loss"].is_null());
}

TEST_CASE("report makes the page of a train that was killed, with the steps of metrics.jsonl",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  killed_run(out);
  REQUIRE(files_in(out) == std::vector<std::string>{"metrics.jsonl", "report.json"});
  CHECK(report_in(out)["failure"].is_null());
  const Finished made = zerolab({"report", out});
  CHECK(made.code == 0);
  CHECK(made.out == "Files: " + out + "/report.html\n");
  const auto metrics = lines(read_file(out + "/metrics.jsonl"));
  const Json shown = Json::parse(zerolab({"report", out, "--json"}).out);
  CHECK(shown["failure"]["after_step"] == metrics.size());
  CHECK(shown["failure"]["running"] == true);
  CHECK(shown["steps_made"]["zero2"] == metrics.size());
  CHECK(shown["metrics"]["zero2"].size() == metrics.size());
  CHECK(report_in(out)["metrics"]["zero2"].size() == 1);  // the twin: report.json itself is older
  CHECK(shown["recordings"][0]["rank"].size() == 2);
  CHECK(contains(read_file(out + "/report.html"), "it was killed, or it still runs"));
}

TEST_CASE("of many steps at most 1,000 are drawn, with the first, the last and the extremes",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(tiny("train", {"--steps", "2", "--sample", "0", "--out", out}).code == 0);
  std::string all;
  for (int step = 1; step <= 20'000; ++step) {
    Json line{{"step", step}, {"loss", 3 + step % 7 * 0.1}, {"grad_norm", 1}};
    if (step == 777) line["loss"] = 99;
    if (step == 12'345) line["loss"] = nullptr;
    if (step == 12'346) line["loss"] = -5;
    all += line.dump() + "\n";
  }
  write_file(out + "/metrics.jsonl", all);
  const Json shown = Json::parse(zerolab({"report", out, "--json"}).out);
  std::set<int> steps;
  for (const Json& row : shown["metrics"]["ddp"]) steps.insert(int(row["step"]));
  CHECK(steps.size() <= 1'000);
  CHECK(steps.size() >= 200);
  for (const int step : {1, 777, 12'346, 20'000}) CHECK(steps.contains(step));
  CHECK(shown["steps_made"] == Json{{"ddp", 20'000}});
  CHECK(shown["nonfinite_losses"] == Json{{"ddp", 1}});
  // A report that was sampled before has one sentence about the stage, not two.
  write_file(out + "/report.json", shown.dump());
  const Json again = Json::parse(zerolab({"report", out, "--json"}).out);
  REQUIRE(again["sampled"].size() == 1);
  CHECK(std::string(again["sampled"][0]).starts_with("Of 20,000 steps of ddp "));
}

TEST_CASE("report says what is wrong with a folder, and exits with 2", "[zerolab]") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& path, const std::string& part) {
    const Finished finished = zerolab({"report", path});
    CAPTURE(finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, part));
  };
  CHECK(contains(zerolab({"report"}).err, "which folder? write: zerolab report DIR"));
  refused(folder / "none", "there is no folder '" + (folder / "none") + "'");
  refused(folder.path(), "has no report.json; compare, train and plan write it with --out DIR");
  write_file(folder / "report.json", "{\"schema\": 1, \"kind\": ");
  refused(folder.path(), "report.json' is damaged");
  write_file(folder / "report.json", "[1]");
  refused(folder.path(), "report.json' is damaged");
  write_file(folder / "report.json", "{\"schema\": 1}");
  refused(folder.path(), "it has no \"kind\"");
  write_file(folder / "report.json", "{\"schema\": 2}");
  refused(folder.path(), "has schema 2, but this zerolab reads 1");
  CHECK(files_in(folder.path()) == std::vector<std::string>{"report.json"});
}

TEST_CASE("a damaged report.json, or a folder or pipe of that name, is refused with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", path = out + "/report.json";
  REQUIRE(
      tiny("compare", {"--ranks", "2", "--steps", "2", "--stages", "zero1", "--out", out}).code ==
      0);
  const Json good = report_in(out);
  const auto refused = [&](const char* pointer, const Json& value, const std::string& part) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    write_file(path, bad.dump());
    const Finished finished = zerolab({"report", out});
    CAPTURE(pointer, finished.err);
    CHECK(finished.code == 2);
    CHECK(contains(finished.err, "report.json' is damaged: "));
    CHECK(contains(finished.err, part));
  };
  refused("/metrics/ddp/1", "x", "row 2 of the metrics of ddp is not an object");
  refused("/metrics/ddp/1/step", "x", "\"step\" of row 2 of the metrics of ddp");
  refused("/recordings", Json::array({nullptr}), "recording 0 is not an object");
  refused("/about", nullptr, "\"about\" is not an object");
  refused("/recordings/1/rank/0/cells/0/1", 99, "\"cells\" of rank 0 of recording 1");
  refused("/recordings/1/rank/1/memory/0/1", 99, "\"memory\" of rank 1 of recording 1");
  refused("/recordings/0/events/3/5", 9999, "\"events\" of recording 0");
  refused("/recordings/0/rank", 1, "\"rank\" of recording 0");
  std::filesystem::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(contains(zerolab({"report", out}).err, "report.json' is a device or a pipe"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  CHECK(contains(zerolab({"report", out}).err, "report.json' is a folder"));
}

TEST_CASE("a command in a report can be repeated by a shell", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "it's a";
  REQUIRE(tiny("train", {"--steps", "1", "--sample", "0", "--out", out}).code == 0);
  const std::string command = report_in(out)["about"]["command"];
  CHECK(command == "zerolab train --model tiny -q --steps 1 --sample 0 --out '" + folder.path() +
                       "/it'\\''s a'");
}

TEST_CASE("a full disk of TensorBoard's folder does not cost a train its page", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  const Finished finished = tiny(
      "train",
      {"--steps", "2", "--sample", "0", "--out", out, "--set", "csv_monitor.enabled=true", "--set",
       "csv_monitor.output_path=" + folder.path(), "--set", "csv_monitor.job_name=csv"});
  REQUIRE(finished.code == 0);
  const std::string loss = folder / "csv/Train_Samples_train_loss.csv";
  REQUIRE(std::filesystem::remove(loss));
  std::filesystem::create_symlink("/dev/full", loss);
  const Finished full = tiny(
      "train", {"--steps", "2", "--sample", "0", "--out", folder / "full", "--set",
                "csv_monitor.enabled=true", "--set", "csv_monitor.output_path=" + folder.path(),
                "--set", "csv_monitor.job_name=csv"});
  CAPTURE(full.err);
  CHECK(full.code == 74);
  CHECK(report_in(folder / "full")["document"]["steps"] == 2);
  CHECK(std::filesystem::exists(folder / "full/report.html"));
}

TEST_CASE("report exits with 74 if the page cannot be written, and keeps the old one",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(tiny("compare", {"--ranks", "2", "--steps", "2", "--out", out}).code == 0);
  const std::string before = read_file(out + "/report.html");
  const Finished full = shell("ulimit -f 4; $ZEROLAB report " + out);
  CHECK(full.code == 74);
  CHECK(contains(full.err, "report.html"));
  CHECK(read_file(out + "/report.html") == before);
  CHECK(files_in(out).size() == 3);
  CHECK(zerolab({"report", out}).code == 0);
  CHECK(read_file(out + "/report.html") != before);  // spaces of the JSON
  CHECK(Json::parse(zerolab({"report", out, "--json"}).out) == report_in(out));
}

TEST_CASE("a train that fails in the middle leaves a page with the error and its steps",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  // The second step's gradients are not finite, and no loss scale is small enough.
  const Finished finished =
      tiny("train", {"--steps", "99", "--precision", "fp16", "--set", "fp16.initial_scale_power=1",
                     "--set", "optimizer.params.lr=1e30", "--ranks", "2", "--out", out});
  CAPTURE(finished.err);
  CHECK(finished.code == 1);
  const Json report = report_in(out);
  CHECK(report["document"].is_null());
  CHECK(contains(finished.err, report["failure"]["message"]));
  CHECK(report["failure"]["after_step"] == lines(read_file(out + "/metrics.jsonl")).size());
  CHECK(report["recordings"][0]["step"] == 2);
  CHECK(contains(read_file(out + "/report.html"), std::string(report["failure"]["message"])));
}

}  // namespace cli
