// Progress on a terminal and elsewhere.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/zerolab/process.h"

namespace cli {
namespace {

const std::vector<std::string> kRun = {"train", "--model",  "tiny", "--steps",
                                       "60",    "--sample", "5"};

Finished on_terminal(const std::vector<std::string>& more = {},
                     const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> arguments = kRun;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run({.arguments = arguments, .environment = environment, .terminal = true});
}

const std::string kColor = "\x1b[2m";

}  // namespace

TEST_CASE("on a terminal progress is one line that is written over", "[zerolab]") {
  const Finished finished = on_terminal();
  REQUIRE(finished.code == 0);
  const std::string& err = finished.err;
  const std::string progress = err.substr(err.find("no clipping"));
  CHECK(contains(progress, "\r 1/60 "));
  CHECK(contains(progress, "\r60/60 "));
  CHECK(contains(progress, "[==="));
  CHECK(contains(progress, "\x1b[K"));
  for (const char* part : {"loss ", "norm ", "lr 0.001", "tokens/s", "ETA "})
    CHECK(contains(progress, part));
  CHECK(std::count(progress.begin(), progress.end(), '\n') ==
        2);  // of the last heading, and at the end
  CHECK(contains(finished.out, "sample"));
}

TEST_CASE("elsewhere progress is about twenty plain lines, first and last among them",
          "[zerolab]") {
  const Finished finished = zerolab(kRun);
  REQUIRE(finished.code == 0);
  std::vector<std::string> steps;
  for (const std::string& line : lines(finished.err))
    if (line.starts_with("step ")) steps.push_back(line);
  CHECK(steps.size() >= 10);
  CHECK(steps.size() <= 22);
  REQUIRE(!steps.empty());
  CHECK(steps.front().starts_with("step  1/60  loss "));
  CHECK(steps.back().starts_with("step 60/60  loss "));
  CHECK_FALSE(contains(finished.err, "\r"));
  CHECK_FALSE(contains(finished.err, "\x1b"));
}

TEST_CASE("colour is for terminals, and NO_COLOR and --color have their say", "[zerolab]") {
  CHECK(contains(on_terminal().err, kColor));
  CHECK_FALSE(contains(on_terminal({}, {{"NO_COLOR", "1"}}).err, kColor));
  CHECK(contains(on_terminal({}, {{"NO_COLOR", ""}}).err, kColor));
  CHECK_FALSE(contains(on_terminal({"--color", "never"}).err, kColor));
  CHECK(contains(on_terminal({"--color", "always"}, {{"NO_COLOR", "1"}}).err, kColor));
  CHECK_FALSE(contains(on_terminal({}, {{"TERM", "dumb"}}).err, "\x1b"));
}

TEST_CASE("-q shows no progress and keeps the report", "[zerolab]") {
  const Finished finished = on_terminal({"-q"});
  CHECK(finished.code == 0);
  CHECK(finished.err.empty());
  CHECK(finished.out.starts_with("loss "));
}

}  // namespace cli
