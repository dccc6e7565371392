// What a lesson refuses, and with which message; --help, --json.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

void check_refused(const std::string& arguments, const std::string& sentence) {
  const cli::Finished finished = run_lesson("07_zero2", arguments);
  CAPTURE(arguments, finished.out, finished.err);
  CHECK(finished.code == 2);
  CHECK(cli::contains(finished.err, "07_zero2: "));
  CHECK(cli::contains(finished.err, sentence));
  CHECK(cli::lines(finished.err).size() == 1);
  CHECK_FALSE(cli::contains(finished.out, "RESULT"));
}

}  // namespace

TEST_CASE("a lesson refuses ranks and sizes that make no sense, in one sentence", "[tutorials]") {
  check_refused("--ranks 0", "--ranks: Value 0 not in range");
  check_refused("--ranks 9", "--ranks: Value 9 not in range");
  check_refused("--ranks 3x", "--ranks: Value 3x not in range");
  check_refused("--ranks", "--ranks: 1 required N missing");
  check_refused("--ranks --quiet", "--ranks: Value --quiet not in range");
  check_refused("--layers 0", "--layers: Value 0 not in range");
  check_refused("--layers=13", "--layers: Value 13 not in range");
  check_refused("--micro-batches 1.5", "--micro-batches: Value 1.5 not in range");
  check_refused("--seed -1", "--seed: Value -1 not in range");
}

TEST_CASE("a lesson refuses flags that it does not have or that contradict each other",
          "[tutorials]") {
  check_refused("--buckets", "The following argument was not expected: --buckets");
  check_refused("4", "The following argument was not expected: 4");
  check_refused("--quiet=1", "quiet was given a disallowed flag override");
  check_refused("--recompute=1", "recompute was given a disallowed flag override");
  check_refused("--step --quiet", "--quiet excludes --step");
  check_refused("--json --step", "--json excludes --step");
  check_refused("--color never", "--color requires --step");
  check_refused("--step --color blue", "--color: blue not in {auto,always,never}");
}

TEST_CASE("--help of a lesson shows its question, its flags and the exit codes", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const cli::Finished finished = run_lesson(name, "--ranks 2 --help");
    CAPTURE(name, finished.out);
    CHECK(finished.code == 0);
    CHECK(finished.out.starts_with(name + ": "));
    for (const char* part :
         {"--ranks N", "--step", "--predict", "--quiet", "--json", "--seed S", "Exit code"})
      CHECK(cli::contains(finished.out, part));
    CHECK(cli::contains(finished.out, "./zl run " + name.substr(0, 2)));
  }
  CHECK(cli::contains(run_lesson("07_zero2", "--help").out, "--layers L"));
}

TEST_CASE("--json is one document with every number and check", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const nlohmann::json document = nlohmann::json::parse(lesson_document(name, "--ranks 2"));
    CAPTURE(name, document.dump(1));
    CHECK(document.at("schema") == 1);
    CHECK(document.at("lesson") == name);
    CHECK(document.at("ok") == true);
    CHECK(document.at("ranks") == 2);
    const size_t all = document.at("numbers").size() + document.at("checks").size();
    CHECK(document.at("result") == "PASS " + std::to_string(all) + "/" + std::to_string(all));
    for (const auto& number : document.at("numbers")) CHECK(number.at("ok") == true);
  }
}

TEST_CASE("the seed changes the weights but no number of bytes", "[tutorials]") {
  const std::string a = lesson_document("06_zero1", "--seed 1"),
                    b = lesson_document("06_zero1", "--seed 2");
  for (const char* key : {"owned", "state_bytes", "mistaken_bytes"})
    CHECK(measured(a, key) == measured(b, key));
  CHECK(run_lesson("05_ddp", "--seed 1").out != run_lesson("05_ddp", "--seed 2").out);
}

}  // namespace tutorials
