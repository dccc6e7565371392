// zerolab exercise check --all DIR --csv FILE, and board DIR: the files of a class.

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
  const Finished board = stopped_at("3/4 cid", SIGINT, "exercise board " + students);
  CHECK((board.code == 130 && board.out.empty()));
  CHECK(contains(board.err, "grading ended at student 'cid'\n"));
  const Finished early = graded(SIGINT, "1/4 ann");
  CHECK(early.code == 130);
  CHECK(contains(early.err, "grading ended at student '"));
  CHECK(std::filesystem::exists(csv) == contains(early.err, " rows\n"));
}

TEST_CASE("the board compares files with 100 points by bytes, then calls, then lines",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string solutions = ZEROLAB_SOURCE_DIR "/tests/exercises/right/",
                    students = folder / "class", name = "08_mixed_precision.cpp",
                    right = read_file(solutions + name);
  const auto changed = [&](const std::string& what, const std::string& by) {
    return std::string(right).replace(right.find(what), what.size(), by);
  };
  submit(students, "ann", name, right + "\nnamespace {\n  // int y;\n[[maybe_unused]] int x;\n}\n");
  submit(students, "ben", name, right);
  submit(students, "cid", name,  // sends each number twice, and has as many lines as ben
         changed("const bool overflow",
                 "sum_over_ranks(shard_.comm, shard_.memory, 0, {\"again\", Purpose::norm}); "
                 "const bool overflow"));
  submit(students, "dot", name, changed("scale_ *= 2", "scale_ *= 4"));
  submit(students, "eve", "notes.txt", "later");
  submit(students, "ben", "01_rms_norm.cpp", read_file(solutions + "01_rms_norm.cpp"));
  submit(folder / "zero1", "ann", "05_zero1.cpp", read_file(kSolution));
  using Json = nlohmann::ordered_json;
  const auto board = [](const std::string& line) {
    const Json all = Json::parse(document("exercise board " + line + " -q"));
    CHECK((all["schema"] == 1 && all["command"] == "exercise board"));
    return all;
  };
  const Json all = board(students + " --exercise 8"), &rows = all["submissions"];
  CAPTURE(all.dump());
  CHECK((all["exercise"] == "08_mixed_precision" && all["without_100_points"] == 2));
  REQUIRE(rows.size() == 3);
  const Json &ben = rows[0], &ann = rows[1], &cid = rows[2];
  CHECK((ben["student"] == "ben" && ann["student"] == "ann" && cid["student"] == "cid"));
  for (const char* key : {"bytes_at_peak", "bytes_sent", "calls"}) {
    CHECK((ben[key] == ann[key] && ben[key] > 0));
    const bool twice = key != std::string("bytes_at_peak");
    CHECK(cid[key] == ben[key].get<int>() * (twice ? 2 : 1));
  }
  CHECK((cid["lines"] == ben["lines"] && ann["lines"] == ben["lines"].get<int>() + 3));

  CHECK(board(students + " --exercise 8") == all);  // also in another run
  const Finished text = call("exercise board " + students + " --exercise 08");
  CHECK(contains(text.err, "5/5 eve, ETA "));
  check_says(text.out, {"  student  bytes at peak  bytes sent  calls  lines\n  ben  ", "\n  ann  ",
                        "\n  cid  ", "\nwithout 100 points  2\n"});

  const Json lines_only = board(students);  // an exercise without ranks
  CHECK((lines_only["exercise"] == "01_rms_norm" && lines_only["without_100_points"] == 4));
  CHECK(lines_only["submissions"][0]["calls"].is_null());
  CHECK(lines_only["submissions"][0]["lines"] > 40);

  const Json stage = board(folder / "zero1")["submissions"][0];
  for (const char* key : {"bytes_at_peak", "bytes_sent", "calls", "lines"}) CHECK(stage[key] > 0);
}

}  // namespace cli
