// What exercise check shows of texts from outside, of failures that repeat, and with --step.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kReportSource = ZEROLAB_SOURCE_DIR;

// Stage 1 whose `function`, a piece of zero1.cpp, first executes `statement`.
std::string stage_with(const std::string& function, const std::string& statement) {
  std::string text = read_file(kReportSource + "/stages/zero1.cpp");
  const size_t at = text.find(function);
  REQUIRE(at != std::string::npos);
  text.insert(at + function.size(), " " + statement);
  return "#include <cstdio>\n#include <stdexcept>\n#include <string>\n" + text;
}

// No escape sequence, no other control character but line ends and tabs.
bool is_clean(const std::string& text) {
  return std::ranges::none_of(
      text, [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; });
}

constexpr const char* kUpdate = "void update(UnitState& u, const Update& step) override {";

}  // namespace

TEST_CASE("a name of a file or student with control characters does not break the header",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string file =
      write_file(folder / "a\nb\x1b[31m.cpp", read_file(kReportSource + "/stages/zero1.cpp"));
  const Finished odd = zerolab({"exercise", "check", "05", file});
  CAPTURE(odd.out, odd.err);
  CHECK(odd.code == 0);
  CHECK(lines(odd.out)[0].ends_with("a\\nb\\u001b[31m.cpp"));
  CHECK(contains(odd.err, "a\\nb\\u001b[31m.cpp"));
  for (const char* id : {"ann\n100 of 100 points", "ann\t", "\x1b[2J"}) {
    const Finished named = zerolab({"exercise", "check", "05", file, "--student", id});
    CHECK(named.code == 0);
    CHECK(is_clean(named.out));
    CHECK(lines(named.out)[0].find("data of student ") < lines(named.out)[0].rfind('\\'));
  }
  CHECK(
      contains(zerolab({"exercise", "check", "05", file, "--student", "Ann Ö."}).out, " Ann Ö.\n"));
}

TEST_CASE("what a student's code throws and prints is cut at 8 KiB and cannot control a terminal",
          "[zerolab]") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "ann");
  const std::string file = write_file(
      folder / "ann/05_zero1.cpp",
      stage_with(kUpdate,
                 "std::printf(\"\\033[31m%s\\n\", std::string(6000, '\\007').c_str());\n"
                 "throw std::runtime_error(\"\\033[2J\" + std::string(500'000, '\\033') + "
                 "\"\\n\" + std::string(500'000, '\\001'));"));
  const Finished text = zerolab({"exercise", "check", "05", file, "-q"});
  CHECK(text.code == 1);
  CHECK(text.out.size() < 30'000);
  CHECK(is_clean(text.out));
  check_says(text.out, {"the code threw an exception: ", "\\u001b[2J", " more bytes\n"});

  const Json json = Json::parse(zerolab({"exercise", "check", "05", file, "-q", "--json"}).out);
  bool thrown = false;
  for (const Json& test : json["tests"]) {
    const std::string output = test["output"];
    CHECK(output.size() < 3 * 8192 + 100);  // meaning, details, what was printed
    CHECK(is_clean(output));
    thrown = thrown || contains(output, "\\u001b[2J");
  }
  CHECK(thrown);

  const std::string csv = folder / "grades.csv";
  REQUIRE(zerolab({"exercise", "check", "05", "--all", folder.path(), "--csv", csv, "-q"}).code ==
          0);
  std::string row = lines(read_file(csv)).back();
  CHECK(row.size() < 1000);
  std::erase(row, '\r');
  CHECK(is_clean(row));
  CHECK(contains(row, "\\u001b[2J"));
}

TEST_CASE("a failure that repeats is shown once, and named after that", "[zerolab]") {
  const ScratchFolder folder;
  std::string text = read_file(kReportSource + "/tests/exercises/right/01_rms_norm.cpp");
  const std::string to_weight = "if (saved.weight.needs_gradient())";
  text.insert(text.find(to_weight), to_weight + " throw std::runtime_error(\"no rows\");\n");
  const std::string file = write_file(folder / "mine.cpp", "#include <stdexcept>\n" + text);
  const std::string shown = zerolab({"exercise", "check", "01", file, "-q"}).out;
  CAPTURE(shown);
  const size_t failed = count(shown, "\nFAILED ");
  REQUIRE(failed >= 3);
  CHECK(count(shown, "no rows") == 1);
  CHECK(count(shown, "\n  the same as in 'gradient of weight'\n") == failed - 1);
  size_t all = 0;
  const Json json = Json::parse(zerolab({"exercise", "check", "01", file, "-q", "--json"}).out);
  for (const Json& test : json["tests"]) all += contains(test["output"], "no rows");
  CHECK(all == failed);
}

TEST_CASE("the documented script for Classroom 50 writes its result.json, or fails", "[zerolab]") {
  const ScratchFolder folder;
  std::filesystem::copy_file(kReportSource + "/stages/zero1.cpp", folder / "05_zero1.cpp");
  const std::string page = read_file(kReportSource + "/tutorials/exercises/README.md"),
                    begin = "```python\n";
  const size_t at = page.find(begin) + begin.size();
  write_file(folder / "autograder.py", page.substr(at, page.find("```", at) - at));
  const auto code = [&](const std::string& assignment) {
    return shell("cd '" + folder.path() + "' && git init -q . && GIT_COMMITTER_DATE='1780324321 " +
                 "+0900' git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && " +
                 "PATH=$(dirname \"$ZEROLAB\"):$PATH CLASSROOM=zero ASSIGNMENT=" + assignment +
                 " OWNER=ann SUBMISSION_TAG=t COMMIT_URL=c RELEASE_URL=r python3 autograder.py")
        .code;
  };
  REQUIRE(code("05-zero1") == 0);
  Json result = Json::parse(read_file(folder / "result.json"));
  for (const Json& test : result["tests"])
    CHECK((test.at("passed") == true && test.at("score") == test.at("max-score")));
  CHECK(result["tests"].size() == 8);
  for (const char* beyond : {"tests", "zerolab"}) CHECK(result.erase(beyond) == 1);
  CHECK(result == Json{{"schema", "classroom50/result/v1"},
                       {"classroom", "zero"},
                       {"assignment", "05-zero1"},
                       {"owner", "ann"},
                       {"submission", "t"},
                       {"commit", "c"},
                       {"release", "r"},
                       {"review", "c"},
                       {"datetime", "2026-06-01T14:32:01Z"},
                       {"score", 100},
                       {"max-score", 100}});
  CHECK(code("99-none") == 2);
}

TEST_CASE("exercise check --step explains its letters and marks where the check failed",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string mark = "  <- here the check saw", frees = "    u.full_gradient = {};\n";
  std::string text = read_file(kReportSource + "/stages/zero2.cpp");
  REQUIRE(count(text, frees) == 1);
  const std::string keeps =
      write_file(folder / "keeps.cpp", text.erase(text.find(frees), frees.size()));
  const Finished bytes = zerolab({"exercise", "check", "06", keeps, "--step"});
  CAPTURE(bytes.out, bytes.err);
  CHECK(bytes.code == 1);
  const size_t begin = bytes.out.find("from where it fails:\n");
  REQUIRE(begin != std::string::npos);
  const auto shown = lines(bytes.out.substr(begin));
  CHECK(contains(shown[1], "# full"));
  CHECK(contains(shown[2], "~ full, only the local slice valid"));
  CHECK(shown[4].starts_with("event"));
  CHECK(contains(shown[4], mark));
  CHECK(count(bytes.out, mark) == 1);
  CHECK(count(bytes.out, "# full") == 1);

  const std::string sum = "for (float& x : u.full_gradient.data<float>()) x *= 2;";
  const Finished bits =
      zerolab({"exercise", "check", "05",
               write_file(folder / "sum.cpp", stage_with(kUpdate, "if (comm().size() > 1) " + sum)),
               "--step"});
  CAPTURE(bits.out);
  check_says(bits.out, {"from the first event; the check does not know", "\nevent   1 "});
  CHECK_FALSE(contains(bits.out, mark));
}

}  // namespace cli
