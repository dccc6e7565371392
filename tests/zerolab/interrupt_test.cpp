// Ctrl-C, SIGTERM and SIGHUP: all ranks end, files are complete, and the exit code is 128 + signal.
// Runs that save checkpoints: checkpoint_test.cpp.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kEndless =
    "train --model tiny --ranks 2 --stage 3 --steps 1e6 --eval-every 2 --out ";

}  // namespace

TEST_CASE("signals in the middle of training end all ranks with 128 + signal and whole lines only",
          "[zerolab]") {
  for (const auto& [signal, by] : {std::pair{SIGINT, "interrupted"},
                                   {SIGTERM, "ended by SIGTERM"},
                                   {SIGHUP, "ended by SIGHUP"}}) {
    const ScratchFolder folder;
    const std::string out = folder / "run";
    const Finished finished = stopped_at("held-out", signal, kEndless + out);
    CHECK((finished.code == 128 + signal && finished.seconds < 5 && finished.out.empty()));
    check_says(finished.err, {std::string("zerolab: ") + by + " after step ",
                              "holds the steps so far, and no weights were written",
                              out + "/report.html shows the steps so far"});
    CHECK(files_in(out) == words("metrics.jsonl report.html report.json"));
    CHECK(Json::parse(report_in(out))["failure"]["interrupted"] == true);
    const std::string metrics = read_file(out + "/metrics.jsonl");
    REQUIRE(metrics.ends_with("\n"));
    for (const std::string& line : lines(metrics)) CHECK(Json::accept(line));
  }
}

TEST_CASE("Ctrl-C before the first step leaves nothing", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished =
      stopped_at("update ", SIGINT, kEndless + (folder / "run") + " --n-embd 256 --n-layer 8");
  CHECK(finished.code == 130);
  CHECK(contains(finished.err, "interrupted after step 0 of 1000000; nothing was kept"));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_CASE("Ctrl-C while the sample is written ends with 130 and keeps the weights", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = stopped_at(
      "step 2/2", SIGINT, "train --model tiny --steps 2 --sample 1e6 --out " + (folder / "run"));
  CHECK((finished.code == 130 && finished.seconds < 5));
  for (const std::string& file : files_in(folder / "run")) CHECK_FALSE(file.starts_with("."));
}

TEST_CASE("nohup keeps SIGHUP from ending a run", "[zerolab]") {
  const Finished finished = shell(
      "trap '' HUP; \"$ZEROLAB\" train --model tiny --steps 30 -q --sample 0 & sleep 0.1; "
      "kill -HUP $!; wait $!; echo $?");
  CHECK(finished.out.ends_with("0\n"));
}

TEST_CASE("compare ends with 143 on SIGTERM and leaves a page of the steps so far", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "run", ended = "ended by SIGTERM while ddp ran";
  const Finished finished =
      stopped_at("ddp step", SIGTERM, "compare --model tiny --steps 1e5 --ranks 2 --out " + out);
  CHECK(finished.code == 143);
  check_says(finished.err,
             {"zerolab: " + ended + "; " + out + "/report.html shows the steps so far"});
  CHECK(files_in(out) == words("report.html report.json"));
  const Json report = Json::parse(report_in(out)), &failure = report["failure"];
  CHECK(report["document"].is_null());
  CHECK(failure["message"] == ended);
  CHECK(failure["after_step"] == report["metrics"]["ddp"].back()["step"]);
  CHECK(report["recordings"][0]["stage"] == "ddp");
}

TEST_CASE("a second Ctrl-C ends the program at once, unless it comes with the first", "[zerolab]") {
  for (const useconds_t between : {200'000U, 0U}) {  // [us]
    const ScratchFolder folder;
    Launch launch{.arguments = words(kEndless + (folder / "run"))};
    launch.watch = [sent = false, between](pid_t process, const std::string& err) mutable {
      if (sent || !contains(err, "held-out")) return;
      sent = true;
      kill(process, SIGINT);
      usleep(between);
      kill(process, SIGINT);
    };
    const Finished finished = run(launch);
    CHECK(finished.code == 130);
    CHECK((between > 0 || contains(finished.err, "interrupted")));
    CHECK(read_file(folder / "run/metrics.jsonl").ends_with("\n"));
  }
}

TEST_CASE("Ctrl-C ends a program that looks for tokens beyond the vocabulary", "[zerolab]") {
  const ScratchFolder folder;
  const std::string data = write_file(folder / "zeros.bin", "");
  std::filesystem::resize_file(data, int64_t(256) << 30);  // a hole: reading it takes minutes
  const Finished finished = shell("$ZEROLAB train --model tiny --vocab-size 200 --data " + data +
                                  " & sleep 1; kill -INT $!; wait $!");
  CHECK((finished.code == 130 && !finished.timed_out));
  check_says(finished.err, {"interrupted"});
}

TEST_CASE("Ctrl-C ends a measurement with 130 and no table", "[zerolab]") {
  const ScratchFolder folder;
  for (const std::string& line : {std::string("kernels --samples 1000"),
                                  "machine --device cpu --save " + (folder / "here.json"),
                                  std::string("step --model tiny --ranks 2 --steps 100000")}) {
    const Finished finished = stopped_at("", SIGINT, "bench " + line);
    CAPTURE(line);
    check_refused(finished, "interrupted", 130);
    CHECK_FALSE(finished.timed_out);
  }
  CHECK(files_in(folder.path()).empty());
}

}  // namespace cli
