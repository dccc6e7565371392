// Ctrl-C, SIGTERM and SIGHUP: all ranks end, files are complete, and the exit code is 128 + signal.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

// Sends `signal` once stderr shows `text`; twice if asked to.
Launch interrupted_at(const std::string& text, const std::string& out, bool twice = false,
                      int signal = SIGINT) {
  Launch launch{.arguments = {"train", "--model", "tiny", "--ranks", "2", "--stage", "3", "--steps",
                              "1e6", "--eval-every", "2", "--out", out},
                .timeout = 30};
  launch.watch = [text, twice, signal, sent = false](pid_t process,
                                                     const std::string& err) mutable {
    if (sent || !contains(err, text)) return;
    sent = true;
    kill(process, signal);
    if (twice) kill(process, signal);
  };
  return launch;
}

}  // namespace

TEST_CASE("Ctrl-C in the middle of training ends all ranks with 130 and whole lines only",
          "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = run(interrupted_at("held-out", folder / "run"));
  CHECK(finished.code == 130);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.seconds < 5);
  CHECK(finished.out.empty());
  CHECK(contains(finished.err, "zerolab: interrupted after step "));
  CHECK(contains(finished.err, "holds the steps so far, and no weights were written"));
  CHECK(contains(finished.err, (folder / "run/report.html") + " shows the steps so far"));
  CHECK(files_in(folder / "run") ==
        std::vector<std::string>{"metrics.jsonl", "report.html", "report.json"});
  const auto report = nlohmann::json::parse(read_file(folder / "run/report.json"));
  CHECK(report["failure"]["interrupted"] == true);
  const std::string metrics = read_file(folder / "run/metrics.jsonl");
  REQUIRE(metrics.ends_with("\n"));
  for (const std::string& line : lines(metrics)) CHECK(nlohmann::json::accept(line));
}

TEST_CASE("Ctrl-C before the first step leaves nothing", "[zerolab]") {
  const ScratchFolder folder;
  Launch launch = interrupted_at("update ", folder / "run");
  launch.arguments.insert(launch.arguments.end(), {"--n-embd", "256", "--n-layer", "8"});
  const Finished finished = run(launch);
  CHECK(finished.code == 130);
  CHECK(contains(finished.err, "interrupted after step 0 of 1000000; nothing was kept"));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_CASE("Ctrl-C while the sample is written ends with 130 and keeps the weights", "[zerolab]") {
  const ScratchFolder folder;
  Launch launch{.arguments = {"train", "--model", "tiny", "--steps", "2", "--sample", "1e6",
                              "--out", folder / "run"},
                .timeout = 30};
  launch.watch = [](pid_t process, const std::string& err) {
    if (contains(err, "step 2/2")) kill(process, SIGINT);
  };
  const Finished finished = run(launch);
  CHECK(finished.code == 130);
  CHECK(finished.seconds < 5);
  for (const std::string& file : files_in(folder / "run")) CHECK_FALSE(file.starts_with("."));
}

TEST_CASE("SIGTERM and SIGHUP end training between steps as Ctrl-C does", "[zerolab]") {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}) {
    const ScratchFolder folder;
    const Finished finished = run(interrupted_at("held-out", folder / "run", false, signal));
    CAPTURE(name, finished.err);
    CHECK(finished.code == 128 + signal);
    CHECK(finished.seconds < 5);
    CHECK(contains(finished.err, std::string("zerolab: ended by ") + name + " after step "));
    CHECK(contains(finished.err, "holds the steps so far, and no weights were written"));
    CHECK(files_in(folder / "run") ==
          std::vector<std::string>{"metrics.jsonl", "report.html", "report.json"});
    for (const std::string& line : lines(read_file(folder / "run/metrics.jsonl")))
      CHECK(nlohmann::json::accept(line));
  }
}

TEST_CASE("SIGTERM while the weights are saved leaves no temporary file", "[zerolab]") {
  const ScratchFolder folder;
  Launch launch{
      .arguments = {"train", "--n-layer", "8", "--n-embd", "384", "--n-head", "6", "--block-size",
                    "8", "--steps", "1", "--sample", "0", "--out", folder / "run"},
      .timeout = 60};
  launch.watch = [](pid_t process, const std::string& err) {
    if (contains(err, "step 1/1")) kill(process, SIGTERM);
  };
  const Finished finished = run(launch);
  CHECK((finished.code == 143 || finished.code == 0));  // 0: the file was complete before
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
  Launch launch{.arguments = {"compare", "--model", "tiny", "--steps", "1e5", "--ranks", "2",
                              "--out", folder / "run"},
                .timeout = 30};
  launch.watch = [](pid_t process, const std::string& err) {
    if (contains(err, "ddp step")) kill(process, SIGTERM);
  };
  const Finished finished = run(launch);
  CHECK(finished.code == 143);
  CHECK(contains(finished.err, "zerolab: ended by SIGTERM while ddp ran; " +
                                   (folder / "run/report.html") + " shows the steps so far"));
  CHECK(files_in(folder / "run") == std::vector<std::string>{"report.html", "report.json"});
  const auto report = nlohmann::json::parse(read_file(folder / "run/report.json"));
  CHECK(report["document"].is_null());
  CHECK(report["failure"]["message"] == "ended by SIGTERM while ddp ran");
  CHECK(report["failure"]["after_step"] == report["metrics"]["ddp"].back()["step"]);
  CHECK(report["recordings"][0]["stage"] == "ddp");
}

TEST_CASE("a second Ctrl-C ends the program at once", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = run(interrupted_at("held-out", folder / "run", true));
  CHECK(finished.code == 130);
  CHECK(read_file(folder / "run/metrics.jsonl").ends_with("\n"));
}

TEST_CASE("Ctrl-C ends a program that looks for tokens beyond the vocabulary", "[zerolab]") {
  const ScratchFolder folder;
  const std::string data = write_file(folder / "zeros.bin", "");
  std::filesystem::resize_file(data, int64_t(256) << 30);  // a hole: reading it takes minutes
  const Finished finished = shell("$ZEROLAB train --model tiny --vocab-size 200 --data " + data +
                                  " & sleep 1; kill -INT $!; wait $!");
  INFO(finished.err);
  CHECK(finished.code == 130);
  CHECK_FALSE(finished.timed_out);
  CHECK(contains(finished.err, "interrupted"));
}

}  // namespace cli
