// report.json and report.html of compare, train and plan, and the command report.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

namespace fs = std::filesystem;

Words sorted_keys(const Json& object) {
  Words all = keys(object.dump());
  std::ranges::sort(all);
  return all;
}

const std::string kComparedRun = "compare --model tiny -q ";

}  // namespace

TEST_CASE("compare --out writes what --json prints, all steps, and one recorded step of each stage",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "a<b>";
  const Json printed = Json::parse(document(kComparedRun + "--ranks 3 --steps 4 --out " + out)),
             report = Json::parse(report_in(out));
  CHECK(sorted_keys(report) == words("about document failure kind metrics nonfinite_losses "
                                     "recordings sampled schema steps_asked steps_made"));
  CHECK(sorted_keys(report["about"]) ==
        words("command compiler cores date device settings version"));
  CHECK((report["kind"] == "compare" && report["steps_asked"] == 4));
  CHECK(
      (report["document"] == printed && printed == Json::parse(read_file(out + "/compare.json"))));
  CHECK((report["failure"].is_null() && report["sampled"].empty()));
  CHECK(contains(report["about"]["command"], "zerolab compare --model tiny"));
  REQUIRE(report["recordings"].size() == 4);
  const Json plain = Json::parse(document(kComparedRun + "--ranks 3 --steps 4"));
  for (size_t i = 0; i < 4; ++i) {
    const Json &stage = report["document"]["stages"][i], &recording = report["recordings"][i];
    CHECK(sorted_keys(recording) == words("events rank ranks series stage step texts timed units"));
    CHECK(recording["stage"] == stage["stage"]);
    CHECK((recording["step"] == 2 && recording["timed"] == true));
    REQUIRE(recording["rank"].size() == 3);
    const Json& steps = report["metrics"][std::string(stage["stage"])];
    for (size_t s = 0; s < 4; ++s) CHECK(steps[s]["loss"] == stage["loss"][s]);
    for (const Json& rank : recording["rank"]) {
      CHECK(rank["ns"].size() == recording["events"].size());
      CHECK(std::ranges::is_sorted(rank["ns"]));
    }
    // Recording changes no result.
    for (const char* key : {"weights_hash", "loss", "peak_total_bytes", "communication"})
      CHECK(stage[key] == plain["stages"][i][key]);
  }
  CHECK(contains(read_file(out + "/report.html"), "zero3"));
}

TEST_CASE("report makes the page of a train that was killed, with the steps of metrics.jsonl",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  const Finished killed = stopped_at(
      "held-out", SIGKILL,
      "train --model tiny --steps 1e6 --stage zero2 --ranks 2 --eval-every 5 --out " + out);
  CHECK(killed.code == 128 + SIGKILL);
  REQUIRE(files_in(out) == words("metrics.jsonl report.json"));
  CHECK(Json::parse(report_in(out))["failure"].is_null());
  const Finished made = call("report " + out);
  CHECK(made.code == 0);
  CHECK(made.out == "Files: " + out + "/report.html\n");
  const size_t steps = lines(read_file(out + "/metrics.jsonl")).size();
  const Json shown = Json::parse(document("report " + out));
  CHECK((shown["failure"]["after_step"] == steps && shown["failure"]["running"] == true));
  CHECK(shown["steps_made"]["zero2"] == steps);
  CHECK(shown["metrics"]["zero2"].size() == steps);
  CHECK(Json::parse(report_in(out))["metrics"]["zero2"].size() ==
        1);  // the twin: report.json itself is older
  CHECK(shown["recordings"][0]["rank"].size() == 2);
  CHECK(contains(read_file(out + "/report.html"), "it was killed, or it still runs"));
}

TEST_CASE("of many steps at most 1,000 are drawn, with the first, the last and the extremes",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  REQUIRE(train(2, "--out " + out).code == 0);
  std::string all;
  for (int step = 1; step <= 20'000; ++step) {
    Json line{{"step", step}, {"loss", 3 + step % 7 * 0.1}, {"grad_norm", 1}};
    if (step == 777) line["loss"] = 99;
    if (step == 12'345) line["loss"] = nullptr;
    if (step == 12'346) line["loss"] = -5;
    all += line.dump() + "\n";
  }
  write_file(out + "/metrics.jsonl", all);
  const Json shown = Json::parse(document("report " + out));
  std::set<int> steps;
  for (const Json& row : shown["metrics"]["ddp"]) steps.insert(int(row["step"]));
  CHECK((steps.size() <= 1'000 && steps.size() >= 200));
  for (const int step : {1, 777, 12'346, 20'000}) CHECK(steps.contains(step));
  CHECK(shown["steps_made"] == Json{{"ddp", 20'000}});
  CHECK(shown["nonfinite_losses"] == Json{{"ddp", 1}});
  // A report that was sampled before is sampled anew.
  write_file(out + "/report.json", shown.dump());
  CHECK(Json::parse(document("report " + out)) == shown);
}

TEST_CASE("a damaged report.json, or a folder or pipe of that name, is refused with 2",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", path = out + "/report.json";
  REQUIRE(call(kComparedRun + "--ranks 2 --steps 2 --stages zero1 --out " + out).code == 0);
  const Json good = Json::parse(report_in(out));
  for (const auto& [pointer, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"/metrics", 1}, {"/metrics/ddp/1", "x"}, {"/metrics/ddp/1/step", "x"}, {"", 3}}) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    write_file(path, bad.dump());
    CAPTURE(pointer);
    check_refused(call("report " + out), "report.json' is damaged: ");
  }
  for (const char* missing : {"schema", "metrics", "document"}) {
    Json bad = good;
    bad.erase(missing);
    write_file(path, bad.dump());
    CAPTURE(missing);
    check_refused(call("report " + out), "report.json' is damaged: ");
  }
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  check_refused(call("report " + out), "report.json gave nothing for 2 seconds");
  fs::remove(path);
  fs::create_directory(path);
  check_refused(call("report " + out), "report.json cannot be read: Is a directory");
}

TEST_CASE("a command in a report can be repeated by a shell", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "it's a";
  Words arguments = words(tiny_run(1, "-q --out"));
  arguments.push_back(out);
  REQUIRE(zerolab(arguments).code == 0);
  CHECK(Json::parse(report_in(out))["about"]["command"] ==
        "zerolab train --model tiny --sample 0 --steps 1 -q --out '" + folder.path() +
            "/it'\\''s a'");
  // A word may be as long as the system allows.
  const std::string prompt(100'000, 'a');
  CHECK(run({.arguments = words("train --model tiny -q --steps 2 --sample 1 --out " +
                                (folder / "b") + " --prompt " + prompt)})
            .code == 0);
}

TEST_CASE("report exits with 74 if the page cannot be written, and keeps the old one",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", page = out + "/report.html";
  REQUIRE(call(kComparedRun + "--ranks 2 --steps 2 --out " + out).code == 0);
  const std::string before = read_file(page);
  check_refused(shell("ulimit -f 4; $ZEROLAB report " + out), "report.html", 74);
  CHECK(read_file(page) == before);
  CHECK(files_in(out).size() == 3);
  CHECK(call("report " + out).code == 0);
  CHECK(read_file(page) == before);
  CHECK(Json::parse(document("report " + out)) == Json::parse(report_in(out)));
}

TEST_CASE("a train that fails in the middle leaves a page with the error and its steps",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run";
  // The second step's gradients are not finite, and no loss scale is small enough.
  const Finished finished = call(
      "train --model tiny -q --steps 99 --precision fp16 --set fp16.initial_scale_power=1 "
      "--set optimizer.params.lr=1e30 --ranks 2 --out " +
      out);
  CHECK(finished.code == 1);
  const Json report = Json::parse(report_in(out)), &failure = report["failure"];
  CHECK(report["document"].is_null());
  CHECK(contains(finished.err, failure["message"]));
  CHECK(failure["after_step"] == lines(read_file(out + "/metrics.jsonl")).size());
  CHECK(report["recordings"][0]["step"] == 2);
  CHECK(contains(read_file(out + "/report.html"), std::string(failure["message"])));
}

}  // namespace cli
