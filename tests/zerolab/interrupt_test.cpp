// Ctrl-C: all ranks end, every line that was written is whole, and the exit code is 130.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

// Sends SIGINT once stderr shows `text`; twice if asked to.
Launch interrupted_at(const std::string& text, const std::string& out, bool twice = false) {
  Launch launch{.arguments = {"train", "--model", "tiny", "--ranks", "2", "--stage", "3", "--steps",
                              "1e6", "--eval-every", "2", "--out", out},
                .timeout = 30};
  launch.watch = [text, twice, sent = false](pid_t process, const std::string& err) mutable {
    if (sent || !contains(err, text)) return;
    sent = true;
    kill(process, SIGINT);
    if (twice) kill(process, SIGINT);
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
  CHECK(files_in(folder / "run") == std::vector<std::string>{"metrics.jsonl"});
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
  CHECK(files_in(folder / "run").empty());
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
  for (const std::string& file : files_in(folder / "run"))
    CHECK((file == "metrics.jsonl" || file == "model.safetensors"));
}

TEST_CASE("a second Ctrl-C ends the program at once", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = run(interrupted_at("held-out", folder / "run", true));
  CHECK(finished.code == 130);
  CHECK(read_file(folder / "run/metrics.jsonl").ends_with("\n"));
}

}  // namespace cli
