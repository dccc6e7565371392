// zerolab exercise: list, start, check of one file, hint. exercise_class_test.cpp has check --all,
// exercise_pack_test.cpp has pack. What the grader finds is tested in tests/exercises.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kExerciseSource = ZEROLAB_SOURCE_DIR;
const std::string kExerciseSolution = kExerciseSource + "/stages/zero1.cpp",
                  kCheck = "exercise check 05 ";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

// A solution that prints, and whose updates are half as large.
std::string half_updates() {
  const std::string begin = "void update(UnitState& u, const Update& step) override {";
  return "#include <cstdio>\n" +
         replaced(replaced(read_file(kExerciseSolution), "step.lr,", "step.lr * 0.5,"), begin,
                  begin + " std::printf(\"\\033[31mupdate\\n\");");
}

std::string version_of(const std::string& exercise) {
  const Json list = Json::parse(document("exercise list"));
  for (const Json& one : list["exercises"])
    if (one["name"] == exercise) return one["version"];
  return "";
}

}  // namespace

TEST_CASE("exercise list names exercises whose checks have 100 points together", "[zerolab]") {
  const Json list = Json::parse(document("exercise list"));
  CHECK(list["command"] == "exercise list");
  REQUIRE(list["exercises"].size() == 12);
  int number = 0;
  const std::string text = call("exercise list").out;
  for (const Json& exercise : list["exercises"]) {
    int points = 0;
    for (const Json& one : exercise["checks"]) points += one["points"].get<int>();
    const std::string name = exercise["name"], title = exercise["title"];
    CAPTURE(name);
    CHECK(points == 100);
    CHECK(contains(text, title));
    CHECK(std::stoi(name) == ++number);
    CHECK(lines(read_file(kExerciseSource + "/tutorials/exercises/" + name + "/task.md"))[0] ==
          "# Exercise " + name.substr(0, 2) + " · " + title);
    CHECK(exercise["file"] == name + ".cpp");
  }
}

TEST_CASE("exercise start copies the task and the file, and replaces nothing", "[zerolab]") {
  const ScratchFolder folder;
  const std::string work = folder / "my work",
                    exercise = kExerciseSource + "/tutorials/exercises/05_zero1";
  const Launch launch{.arguments = {"exercise", "start", "5", work},
                      .environment = {{"ZL_COMMAND", "../zl --preset course"}}};
  const Finished started = run(launch);
  CAPTURE(started.err);
  REQUIRE(started.code == 0);
  CHECK(contains(started.out, "next: ../zl --preset course exercise check 05 '" + work + "'\n"));
  CHECK(files_in(work) == words("05_zero1.cpp 05_zero1.md"));
  CHECK(read_file(work + "/05_zero1.md") == read_file(exercise + "/task.md"));
  const std::string file = read_file(work + "/05_zero1.cpp");  // made of stages/start.cpp
  CHECK((file.starts_with("// Exercise 05, ") && contains(file, "\nZL_STAGE(zero1, ")));
  for (const char* of : {"//{", "//}", "before_backward", "zero2"}) CHECK(!contains(file, of));

  write_file(work + "/05_zero1.cpp", "my solution");
  check_refused(run(launch), "exists and is kept");
  std::filesystem::remove(work + "/05_zero1.md");
  check_refused(run(launch), "05_zero1.cpp' exists and is kept");
  CHECK(read_file(work + "/05_zero1.cpp") == "my solution");
  CHECK(files_in(work).size() == 1);
}

TEST_CASE("a file is graded with a table, what failures mean, and the next command", "[zerolab]") {
  const ScratchFolder folder;
  REQUIRE(call("exercise start 05 " + folder.path()).code == 0);
  const Finished unfinished = call(kCheck + folder.path() + " -q");
  CHECK((unfinished.code == 1 && unfinished.err.empty()));
  check_says(unfinished.out, {"not written yet: ", "\n0 of 100 points", "exercise hint 05"});

  const Finished right = call(kCheck + kExerciseSolution);
  CHECK(right.code == 0);
  CHECK(contains(right.out, "\n100 of 100 points"));
  for (const char* word : {"FAILED", "next:"}) CHECK_FALSE(contains(right.out, word));
  CHECK(contains(right.err, "1/"));

  const std::string wrong = write_file(folder / "half.cpp", half_updates());
  const Finished half = call("exercise check 05_zero1 " + wrong + " --student ann");
  CHECK(half.code == 1);
  check_says(half.out,
             {"half.cpp, sizes and data of student ann\n",
              "Your code printed:\n  | \\u001b[31mupdate", "next: zerolab exercise hint 05"});
  CHECK_FALSE(contains(half.out, "\x1b"));

  const Finished refused = call(kCheck + write_file(folder / "typo.cpp", "Wrk x;\n") + " -q");
  CHECK(refused.code == 1);
  check_says(refused.out, {"REFUSED: no check ran.\n", "Wrk"});
}

// The documented fields of results.json: gradescope-autograders.readthedocs.io, "Autograder
// Specifications". Gradescope refuses a test whose status is something else.
TEST_CASE(
    "--gradescope writes Gradescope's results.json, --json prints it, --junit writes JUnit's XML",
    "[zerolab]") {
  const ScratchFolder folder;
  const auto within = [](const Json& object, const std::string& allowed) {
    for (const std::string& key : keys(object.dump()))
      CHECK(contains(" " + allowed + " ", " " + key + " "));
  };
  const std::string wrong = write_file(folder / "half.cpp", half_updates()),
                    typo = write_file(folder / "typo.cpp", "Wrk<int> x; // & \"\n"),
                    results = folder / "results.json", xml = folder / "junit.xml";
  for (const auto& [file, says] : {std::pair{kExerciseSolution, ""},
                                   {wrong, ""},
                                   {typo, "Wrk"},
                                   {folder / "none.cpp", "no file"}}) {
    const int code = file == kExerciseSolution ? 0 : 1;
    const Finished finished =
        call(kCheck + file + " --json -q --force --gradescope " + results + " --junit " + xml);
    CAPTURE(file, finished.out, finished.err);
    CHECK(finished.code == code);
    CHECK(read_file(results) == finished.out);
    const Json json = Json::parse(finished.out);
    within(json,
           "score execution_time output output_format test_output_format visibility "
           "stdout_visibility tests extra_data");
    CHECK((json["visibility"] == "visible" && json["output"].is_string()));
    CHECK(contains(json["output"], says));
    double score = 0, most = 0;
    for (const Json& one : json["tests"]) {
      within(one, "score max_score status name number output tags extra_data");
      score += one["score"].get<double>();
      most += one["max_score"].get<double>();
      CHECK((one["status"] == "passed" || one["status"] == "failed"));
      CHECK((one["status"] == "passed") == (one["score"] == one["max_score"]));
      CHECK((one["name"].is_string() && one["output"].is_string()));
    }
    CHECK(json["score"] == score);
    CHECK(most == 100);
    CHECK((score == 100) == (code == 0));
    CHECK(json["extra_data"]["exercise"] == "05_zero1");
    CHECK(json["extra_data"]["version"] == version_of("05_zero1"));
    // A case has a name, a class and a time; what failed is an element of the case.
    const std::string text = read_file(xml);
    const bool judged = file == kExerciseSolution || file == wrong;
    CHECK(text.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"));
    CHECK(shell("python3 -c 'import xml.dom.minidom as x; x.parse(\"" + xml + "\")'").code == 0);
    CHECK(contains(text, "<testsuite name=\"05_zero1 " + version_of("05_zero1") + "\""));
    CHECK(count(text, "<testcase classname=\"05_zero1 ") == (judged ? json["tests"].size() : 1));
    CHECK(contains(text, "<failure ") == (file == wrong));
    CHECK(contains(text, "<error ") == !judged);
    for (const Json& one : json["tests"])
      CHECK(contains(text, " name=\"" + one["name"].get<std::string>() + "\" time=\"") == judged);
  }
  check_refused(call(kCheck + wrong + " -q --gradescope " + results), "results.json' exists");
  check_refused(call(kCheck + wrong + " -q --force"), "--force has no effect without a file");
}

TEST_CASE("a compiler that does not work is not blamed on the student", "[zerolab]") {
  const ScratchFolder folder;
  const Finished finished = run({.arguments = words(kCheck + kExerciseSolution + " -q"),
                                 .environment = {{"PATH", folder.path()}}});
  check_refused(finished, "does not work here");
  // A compiler cache that cannot be written is left out.
  const Finished uncached = run({.arguments = words(kCheck + kExerciseSolution + " -q"),
                                 .environment = {{"CCACHE_DIR", "/dev/null/cache"}}});
  CHECK(uncached.code == 0);
}

TEST_CASE("exercise hint shows one hint and the command for the next", "[zerolab]") {
  const std::string page = read_file(kExerciseSource + "/tutorials/exercises/05_zero1/hints.md");
  const int hints = int(count(page, "## Hint "));
  REQUIRE(hints >= 4);
  for (int k = 1; k <= hints; ++k) {
    const std::string out = call("exercise hint 05 " + std::to_string(k)).out;
    const std::string next = "the next hint: zerolab exercise hint 05 " + std::to_string(k + 1);
    CAPTURE(out);
    CHECK(contains(out, k < hints ? next : "This was the last hint."));
    const size_t begin = out.find("\n\n") + 2, end = out.rfind("\n\n");
    const std::string text = out.substr(begin, end - begin);
    CHECK(contains(page, "## Hint " + std::to_string(k) + "\n" + text));
  }
}

TEST_CASE("without hints.md or a start file, the commands say so", "[zerolab]") {
  const ScratchFolder folder;
  const std::string built = "\"$(dirname \"$ZEROLAB\")\"/exercises",
                    json = folder / "exercises/exercises.json";
  REQUIRE(shell("cd '" + folder.path() +
                "' && mkdir exercises && cp -r \"$ZEROLAB\" \"$ZEROLAB-exercise\" . && cp -r " +
                built + "/exercises.json " + built +
                "/05_zero1 exercises && rm exercises/05_zero1/hints.md")
              .code == 0);
  std::string text = read_file(json);
  const size_t at = text.find("\"exercises\": \"") + 14;
  write_file(json, text.replace(at, text.find('"', at) - at, folder / "exercises"));
  const auto here = [&](const std::string& words) {
    return shell("'" + folder.path() + "/zerolab' exercise " + words);
  };
  check_refused(here("hint 05"), "the hints of exercise 05 were left out of this zerolab");
  const std::string wrong = write_file(folder / "half.cpp", half_updates());
  const Finished failed = here("check 05 -q '" + wrong + "'");
  CAPTURE(failed.out);
  CHECK(failed.code == 1);
  CHECK(contains(failed.out, "\nnext: repeat the command with --step"));
  CHECK_FALSE(contains(failed.out, "hint"));

  // A second copy that fails leaves no first one, which the next start would refuse to replace.
  const std::string start = folder / "exercises/05_zero1/start.cpp",
                    text_of_start = read_file(start);
  std::filesystem::remove(start);
  CHECK(here("start 05 '" + folder.path() + "/work'").code != 0);
  CHECK(files_in(folder / "work").empty());
  std::filesystem::permissions(write_file(start, text_of_start), std::filesystem::perms(0444));
  CHECK(here("start 05 '" + folder.path() + "/work'").code == 0);
  using std::filesystem::perms;
  const perms mode = std::filesystem::status(folder / "work/05_zero1.cpp").permissions();
  CHECK((mode & perms::owner_write) != perms::none);
}

}  // namespace cli
