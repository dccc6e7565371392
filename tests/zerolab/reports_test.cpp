// What DeepSpeed's keys make train tell beside its report.

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"
#include "tests/zerolab/event_file.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kTwo = "train --model tiny --sample 5 --ranks 2 ";

std::string monitor(const std::string& key, const std::string& folder,
                    const std::string& job = "DeepSpeedJobName") {
  return " --set '" + key + "=" +
         Json{{"enabled", true}, {"output_path", folder}, {"job_name", job}}.dump() + "'";
}

}  // namespace

TEST_CASE("steps_per_print adds DeepSpeed's line at each N-th step, also on a terminal",
          "[zerolab]") {
  const std::string line = kTwo + "--steps 7 --set steps_per_print=3";
  for (const bool terminal : {false, true}) {
    CAPTURE(terminal);
    const Finished finished = run({.arguments = words(line), .terminal = terminal});
    REQUIRE(finished.code == 0);
    std::string err = finished.err;
    // The line that is written over is wiped, and drawn anew below.
    if (terminal) CHECK(contains(err, "\r\x1b[Kstep=3, "));
    for (size_t at; (at = err.find("\x1b[K")) != std::string::npos;) err.replace(at, 3, "\n");
    std::erase(err, '\r');
    CHECK(starting(err, "step=") == Words{"step=3, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]",
                                          "step=6, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"});
  }
  CHECK(call(line + " -q").err.empty());
  check_says(call(kTwo + "--steps 2 --set steps_per_print=2 --set optimizer.type=SGD --set "
                         "optimizer.params.momentum=0.5 --set optimizer.params.lr=1e30")
                 .err,
             {"step=2, skipped=1, lr=[1e+30], mom=[0.5]"});
}

TEST_CASE("comms_logger ends with DeepSpeed's table on stderr, and stdout stays one document",
          "[zerolab]") {
  const Finished finished =
      call(kTwo + "--steps 4 --stage zero3 --eval-every 2 --json --set comms_logger.enabled=true");
  REQUIRE(finished.code == 0);
  CHECK(Json::parse(finished.out)["command"] == "train");
  const size_t head = finished.err.find("\nComm. Op            Message Size        Count ");
  REQUIRE(head != std::string::npos);
  check_says(finished.err.substr(head), {"\nBreakdown with straggler effect\n", "\nall_gather\n"});
  CHECK(starting(finished.err, "comm op: ").empty());
}

TEST_CASE("comms_logger tells of the chosen collectives only, and of each call if it is verbose",
          "[zerolab]") {
  const std::string some =
      kTwo +
      "--steps 1 --set comms_logger={\"enabled\":true,\"verbose\":true,\"debug\":true,"
      "\"prof_all\":false,\"prof_ops\":[\"reduce_scatter_tensor\",\"custom_op\"]} ";
  const Finished finished = call(some + "--stage zero1");
  REQUIRE(finished.code == 0);
  check_says(finished.err,
             {"note: comms_logger.prof_ops: no collective of zerolab is called custom_op"});
  const auto calls = starting(finished.err, "comm op: ");
  CHECK(calls.size() == 3);  // the units of tiny: embeddings with head, two blocks
  for (const std::string& line : calls) {
    CHECK(line.starts_with("comm op: reduce_scatter | time (ms): "));
    CHECK(contains(line, " gradient | waited (ms): "));
  }
  CHECK_FALSE(contains(finished.err, "all_gather\n"));
  check_says(call(some).err, {"rank 0 made no call of the chosen collectives"});  // none in ddp
}

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

TEST_CASE("compare and plan say once that these reports are train's", "[zerolab]") {
  for (const std::string command : {"compare --steps 1 --stages ddp --ranks 1", "plan"}) {
    const Finished finished =
        call(command + " --model tiny --set comms_logger.enabled=true --set steps_per_print=5");
    CHECK(finished.code == 0);
    CHECK(starting(finished.err, "note: steps_per_print, comms_logger: ") ==
          Words{"note: steps_per_print, comms_logger: ignored by zerolab " +
                command.substr(0, command.find(' ')) +
                "; only zerolab train writes these reports"});
    CHECK_FALSE(contains(finished.err, "Comm. Op"));
  }
}

}  // namespace cli
