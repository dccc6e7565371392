// The files that DeepSpeed's keys make train write, and what it says of others.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"
#include "tests/zerolab/event_file.h"

namespace cli {

using Json = nlohmann::json;
namespace {

std::string monitor(const std::string& key, const std::string& folder,
                    const std::string& job = "DeepSpeedJobName") {
  return " --set '" + key + "=" +
         Json{{"enabled", true}, {"output_path", folder}, {"job_name", job}}.dump() + "'";
}

}  // namespace

TEST_CASE(
    "on a full disk csv_monitor and tensorboard end, training goes on to its page, and the "
    "code is 74",
    "[zerolab]") {
  for (const std::string key : {"csv_monitor", "tensorboard"}) {
    CAPTURE(key);
    const ScratchFolder folder;
    const Finished full =
        shell("ulimit -f 1; $ZEROLAB " + tiny_run(80, "-q --set ") + key + ".enabled=true --set " +
              key + ".output_path='\"" + (folder / "logs") + "\"'");
    CHECK(full.code == 74);
    CHECK(contains(full.out, "at step 80"));
    CHECK(contains(full.err, "training goes on without it"));
    const std::string job = folder / "logs/DeepSpeedJobName";
    const auto files = files_in(job);
    REQUIRE_FALSE(files.empty());
    const std::string content = read_file(job + "/" + files.back());
    if (key == "csv_monitor")
      CHECK(content.ends_with("\r\n"));
    else
      CHECK(zl::test::read_event_file(content).size() > 2);  // whole frames
  }
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "csv");
  std::filesystem::create_symlink("/dev/full", folder / "csv/Train_Samples_train_loss.csv");
  const std::string out = folder / "run";
  CHECK(train(2, "--out " + out + monitor("csv_monitor", folder.path(), "csv")).code == 74);
  CHECK(Json::parse(report_in(out))["document"]["steps"] == 2);
  CHECK(std::filesystem::exists(out + "/report.html"));
}

TEST_CASE("a trace that is refused leaves no file of a monitor", "[zerolab]") {
  const ScratchFolder folder;
  const std::string trace = write_file(folder / "t.json", "x"),
                    monitors = monitor("csv_monitor", folder.path(), "csv") +
                               monitor("tensorboard", folder.path(), "board");
  check_refused(train(1, "--trace " + trace + monitors), "exists; name another file");
  CHECK((files_in(folder / "csv").empty() && files_in(folder / "board").empty()));
  CHECK(train(1, "--trace " + (folder / "u.json") + monitors).code == 0);
  CHECK((files_in(folder / "csv").size() == 2 && files_in(folder / "board").size() == 1));
}

TEST_CASE("reports of DeepSpeed that a command does not write are noted, with what has the same",
          "[zerolab]") {
  const std::string keys =
      " --model tiny --set comms_logger.enabled=true --set steps_per_print=5 --set "
      "wall_clock_breakdown=true --set tensorboard.enabled=false";
  for (const std::string command :
       {"train --steps 1 --sample 0", "compare --steps 1 --stages ddp --ranks 1", "plan"}) {
    CAPTURE(command);
    const bool writes = command.starts_with("train");
    const Finished finished =
        call(command + keys + (writes ? "" : " --set csv_monitor.enabled=true"));
    CHECK(finished.code == 0);
    check_says(finished.err, {"--set comms_logger.enabled: note: has no effect: --trace FILE has",
                              "--set steps_per_print: note: has no effect: ",
                              "--set wall_clock_breakdown: note: has no effect"});
    CHECK(contains(finished.err,
                   "--set csv_monitor.enabled: note: has no effect: only zerolab train") ==
          !writes);
    CHECK_FALSE(contains(finished.err, "tensorboard"));
  }
}

}  // namespace cli
