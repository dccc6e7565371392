// zerolab exercise check --all DIR --csv FILE: the files of a class.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace cli {
namespace {

const std::string kSolution = std::string(ZEROLAB_SOURCE_DIR) + "/stages/zero1.cpp";

using Rows = std::vector<std::vector<std::string>>;

// As a program that knows RFC 4180 reads them.
Rows read_csv(const std::string& file) {
  const Finished read = shell(
      "python3 -c 'import csv, json, sys; print(json.dumps(list(csv.reader("
      "open(sys.argv[1], newline=\"\", encoding=\"utf-8\")))))' '" +
      file + "'");
  REQUIRE(read.code == 0);
  CHECK(count(read_file(file), "\r\n") == count(read_file(file), "\n"));
  return nlohmann::json::parse(read.out).get<Rows>();
}

// A file of one student.
void submit(const std::string& folder, const std::string& student, const std::string& name,
            const std::string& text) {
  std::filesystem::create_directories(folder + "/" + student);
  write_file(folder + "/" + student + "/" + name, text);
}

}  // namespace

TEST_CASE("a class is graded: one row per student, also for files that are missing or wrong",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string students = folder / "class", csv = folder / "grades.csv",
                    right = read_file(kSolution);
  submit(students, "ann", "05_zero1.cpp", right);
  submit(students, "doe, \"jane\"", "other name.cpp", right);
  submit(students, "=HYPERLINK(1)", "05_zero1.cpp", "Wrk x, y;\n");
  submit(students, "two", "a.cpp", right);
  submit(students, "two", "b.cpp", right);
  submit(students, "zed", "notes.txt", "later");
  std::filesystem::create_directories(students + "/link");
  std::filesystem::create_symlink(kSolution, students + "/link/05_zero1.cpp");
  submit(students, ".git", "05_zero1.cpp", right);
  submit(students, "__MACOSX", "05_zero1.cpp", right);
  write_file(students + "/05_zero1.cpp", right);
  const std::string line = "exercise check 05 --all " + students + " --csv " + csv;
  const Finished finished = call(line);
  CAPTURE(finished.out, finished.err);
  REQUIRE(finished.code == 0);
  check_says(finished.out, {"6 students, 2 with all points, mean 33.3\n",
                            "grades.csv: 6 rows, one per student\n"});
  CHECK(contains(finished.err, "6/6 zed, ETA "));

  const Rows rows = read_csv(csv);
  REQUIRE(rows.size() == 7);
  const auto expect = [&](size_t i, const std::string& student, int points, const char* meaning) {
    const auto& row = rows[i];
    CAPTURE(i, row);
    REQUIRE(row.size() == rows[0].size());
    CHECK(row[0] == student);
    CHECK(row[2] == std::to_string(points));
    CHECK(row[3] == "100");
    int sum = 0;
    for (size_t k = 5; k + 2 < row.size(); ++k) sum += std::stoi(row[k]);
    CHECK(sum == points);
    CHECK(contains(row.back(), meaning));
    CHECK(row.back().empty() == (points == 100));
  };
  CHECK((rows[0].back() == "meaning" && rows[0][4] == "version"));
  expect(1, "'=HYPERLINK(1)", 0, "'Wrk' does not name a type");  // no formula
  expect(2, "ann", 100, "");
  expect(3, "doe, \"jane\"", 100, "");
  expect(4, "link", 0, "it is a link");
  expect(5, "two", 0, "there are 2 .cpp files, but no 05_zero1.cpp");
  expect(6, "zed", 0, "there is no file 05_zero1.cpp");

  const std::string before = read_file(csv);
  CHECK(call(line).code == 2);  // exists
  CHECK(read_file(csv) == before);
}

TEST_CASE("a class whose grading is interrupted or killed keeps the rows that are finished",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string students = folder / "class", csv = folder / "grades.csv";
  std::string endless = read_file(kSolution);
  const std::string body = "{ return false; }";
  endless.replace(endless.find(body), body.size(), "{ for (volatile int i = 0;; i = i + 1) {} }");
  submit(students, "ann", "05_zero1.cpp", "Wrk x;\n");
  submit(students, "ben", "notes.txt", "later");
  submit(students, "cid", "05_zero1.cpp", endless);
  submit(students, "dot", "05_zero1.cpp", "Wrk x;\n");
  std::filesystem::create_directory(folder / "tmp");
  const auto graded = [&](int signal, const char* at) {
    bool sent = false;
    return run(
        {.arguments = words("exercise check 05 --all " + students + " --csv " + csv + " --force"),
         .environment = {{"TMPDIR", folder / "tmp"}},
         .watch = [&, signal, at](pid_t process, const std::string& err) {
           if (sent || !contains(err, at)) return;
           sent = true;
           kill(process, signal);
         }});
  };
  for (const int signal : {SIGINT, SIGKILL}) {
    const Finished finished = graded(signal, "3/4 cid");
    CAPTURE(signal, finished.out, finished.err);
    CHECK(finished.code == 128 + signal);
    const Rows rows = read_csv(csv);
    REQUIRE(rows.size() == 3);
    CHECK(rows[1][0] == "ann");
    CHECK(contains(rows[1].back(), "'Wrk' does not name a type"));
    CHECK(rows[2][0] == "ben");
    CHECK(contains(finished.err, "grading ended at student 'cid'; " + csv + " has 2 of 4 rows") ==
          (signal == SIGINT));
    if (signal == SIGINT) CHECK(files_in(folder / "tmp").empty());
    std::filesystem::remove(csv);
  }
  const Finished early = graded(SIGINT, "1/4 ann");
  CHECK(early.code == 130);
  CHECK(contains(early.err, "grading ended at student '"));
  CHECK(std::filesystem::exists(csv) == contains(early.err, " rows\n"));
}

}  // namespace cli
