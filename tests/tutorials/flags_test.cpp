// What a lesson refuses, and with which message; --help, --json, --predict.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/tutorials/lesson_process.h"
#include "tests/zerolab/command.h"

namespace tutorials {
namespace {

void check_refused(const std::string& lesson, const std::string& arguments,
                   const std::string& sentence) {
  const cli::Finished finished = run_lesson(lesson, arguments);
  CAPTURE(arguments, finished.out, finished.err);
  CHECK(finished.code == 2);
  cli::check_says(finished.err, {lesson + ": ", sentence});
  CHECK(cli::lines(finished.err).size() == 1);
  CHECK_FALSE(cli::contains(finished.out, "RESULT"));
}

}  // namespace

TEST_CASE("a lesson refuses values and flags that make no sense, in one sentence", "[tutorials]") {
  for (const std::string n : {"0", "9", "3x"})
    check_refused("07_zero2", "--ranks " + n, "--ranks: Value " + n + " not in range");
  check_refused("07_zero2", "--ranks", "--ranks needs a value");
  check_refused("07_zero2", "--layers=13", "--layers: Value 13 not in range");
  check_refused("07_zero2", "--micro-batches 1.5", "--micro-batches: Value 1.5 not in range");
  check_refused("07_zero2", "--buckets", "there is no flag '--buckets'");
  check_refused("07_zero2", "4", "there is no argument '4'");
  check_refused("07_zero2", "--quiet=1", "--quiet takes no value");
  check_refused("07_zero2", "--step --quiet", "--quiet excludes --step");
  check_refused("07_zero2", "--json --step", "--json excludes --step");
  check_refused("07_zero2", "--step --color never",
                "'--color' was removed; lines are plain; NO_COLOR=1");
  check_refused("13_checkpoints", "--kills 3", "'--kills' was removed; kill a run while it saves");
}

TEST_CASE("--help of a lesson shows its question, its flags and the exit codes", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const cli::Finished finished = run_lesson(name, "--ranks 2 --help");
    CAPTURE(name, finished.out);
    CHECK(finished.code == 0);
    CHECK(finished.out.starts_with(name + ": "));
    cli::check_says(finished.out, {"--ranks N", "--step", "--predict", "--quiet", "--json",
                                   "--seed S", "Exit code", "./zl run " + name.substr(0, 2)});
  }
  CHECK(cli::contains(run_lesson("07_zero2", "--help").out, "--layers L"));
}

TEST_CASE("--json is one document with every number and check", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    if (name.starts_with("13")) continue;  // it takes seconds; lessons_test.cpp reads its document
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

// --predict: asks before it shows the number, judges the answer, explains it.

TEST_CASE("a wrong prediction gets its error and the formula", "[tutorials]") {
  const cli::Finished finished =
      run_lesson("06_zero1", "--predict optimizer_bytes=14336 --predict padding=97");
  CHECK(finished.code == 0);  // the lesson holds, the learner learns
  cli::check_says(finished.out, {"you said 14,336: 4 times too little. Elements or bytes?",
                                 "It is 8 x 28,672 / N.", "you said 97: 1 too much.",
                                 "0 of your 2 predictions are right"});
}

TEST_CASE("a bound is predicted right from what was measured up to it", "[tutorials]") {
  // The largest loss scale that fits is 2^16; the bound is 16 + log2 128 = 23.
  for (const int said : {15, 16, 23, 24}) {
    const std::string number = std::to_string(said);
    const std::string out = run_lesson("09_precision", "--predict first_that_fits=" + number).out;
    CAPTURE(out);
    const bool right = said >= 16 && said <= 23;
    CHECK(cli::contains(out, "you said " + number + ": right.") == right);
    CHECK(cli::contains(out, ": right.") == right);
  }
}

TEST_CASE("a prediction that is not a number, or for an unknown key, is refused", "[tutorials]") {
  check_refused("06_zero1", "--predict owned=many", "'many' is not a number");
  check_refused("06_zero1", "--predict owned=5potatoes", "'5potatoes' is not a number");
  check_refused("06_zero1", "--predict =5", "write --predict KEY, or --predict KEY=VALUE");
  check_refused("06_zero1", "--predict owend=7168",
                "06_zero1 has no number with this key; it has parameters, padding, owned, ");
}

TEST_CASE("--predict asks before it shows the number", "[tutorials]") {
  const std::string out = run_lesson("06_zero1", "--predict owned", "7168\n").out;
  CAPTURE(out);
  const size_t question = out.find("  owned? "), number = out.find("= 28,672 / N");
  REQUIRE(question != std::string::npos);
  REQUIRE(number != std::string::npos);
  CHECK(question < number);
  cli::check_says(
      out, {"you said 7,168: right.", "1 of your 1 predictions is right\nRESULT 06_zero1 PASS"});
}

TEST_CASE("an answer that is no number is asked for again; Enter skips", "[tutorials]") {
  const std::string again = run_lesson("06_zero1", "--predict owned", "seven\n7168\n").out;
  cli::check_says(again, {"'seven' is not a number", "you said 7,168: right."});
  const std::string skipped = run_lesson("06_zero1", "--predict owned", "\n").out;
  CHECK_FALSE(cli::contains(skipped, "you said"));
  CHECK(cli::contains(skipped, "RESULT 06_zero1 PASS"));
}

TEST_CASE("--predict alone asks for every number; the end of stdin is no answer", "[tutorials]") {
  const std::string out = run_lesson("06_zero1", "--predict --ranks 2", "28576\n0\n").out;
  CAPTURE(out);
  cli::check_says(out, {"parameters? ", "padding? ", "owned? ", "mistaken_bytes? ",
                        "2 of your 2 predictions are right"});
}

TEST_CASE("with --json questions go to stderr, answers into the document", "[tutorials]") {
  const cli::Finished finished =
      run_lesson("06_zero1", "--json --predict owned --predict padding=1", "7168\n");
  const nlohmann::json document = nlohmann::json::parse(finished.out);
  CHECK(cli::contains(finished.err, "owned? "));
  REQUIRE(document.at("predictions").size() == 2);
  CHECK(document.at("predictions")[0] ==
        nlohmann::json{{"key", "padding"}, {"said", 1.0}, {"measured", 96}, {"right", false}});
  CHECK(document.at("predictions")[1].at("right") == true);
}

}  // namespace tutorials
