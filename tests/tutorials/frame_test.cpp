// The frame that the lessons share: wrong lessons, failing ranks, the picture of --step.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <functional>

#include "tensor/error.h"
#include "tests/zerolab/command.h"
#include "tutorials/lesson/lesson.h"
#include "tutorials/lesson/stepper.h"

namespace tutorials {
namespace {

using zl::lesson::Lesson;

struct Ran {
  int code;
  std::string out;
};

// Runs a lesson in this process, with stdout and stderr into a file meanwhile.
Ran run_here(std::vector<const char*> arguments, const std::function<void(Lesson&)>& body) {
  const cli::ScratchFolder folder;
  std::fflush(stdout);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
  FILE* file = std::fopen((folder / "out").c_str(), "w");
  dup2(fileno(file), STDOUT_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  arguments.insert(arguments.begin(), "99_test");
  const zl::lesson::About about{.name = "99_test", .question = "Does it work?", .ranks = 3};
  const int code = zl::lesson::run(int(arguments.size()), arguments.data(), about, body);
  std::fflush(stdout);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int fd : {out, err}) close(fd);
  std::fclose(file);
  return {code, cli::read_file(folder / "out")};
}

// A recording of one event on 8 ranks whose rows and numbers are as wide as they get.
zl::recording::Recording wide_recording(int ranks, int units) {
  zl::recording::Recording recording(ranks);
  std::vector<zl::recording::Row> rows;
  for (int u = 0; u < units; ++u)
    rows.push_back({u == 0 ? "root" : "h." + std::to_string(u - 1), "# + /"});
  zl::run_ranks(ranks, [&](zl::Communicator& comm) {
    zl::Memory memory({zl::DeviceKind::cpu}, zl::cpu_backend(), comm.events());
    for (int use = 0; use < zl::kMemoryUses; ++use)
      memory.ledger().add(zl::MemoryUse(use), 123'456'789 + comm.rank());
    comm.log().add(zl::Collective::reduce_scatter, zl::Purpose::gradient, 28'672, 114'688, ranks);
    comm.events().set_phase("backward");
    comm.events().set_unit("h.9");
    recording.watch(comm, memory, {[&] { return rows; }, {"letters", "more letters"}});
    comm.events().append(zl::EventKind::unit, "reduce_scatter", 0, 0, "h.9 gradient");
  });
  return recording;
}

}  // namespace

TEST_CASE("a lesson with a wrong number shows which one, and ends with FAIL and 1", "[tutorials]") {
  const Ran ran = run_here({}, [](Lesson& lesson) {
    lesson.number("right", int64_t(6), 6, "2 x 3");
    lesson.number("wrong", int64_t(7), 6, "2 x 3");
    lesson.number("near", 1.0, 1.1, 0.01, "11 / 10");
    lesson.check("two is three", false);
  });
  CHECK(ran.code == 1);
  cli::check_says(ran.out, {"7 = 2 x 3   WRONG: the formula gives 6", "WRONG: two is three"});
  CHECK(ran.out.ends_with("RESULT 99_test FAIL 1/4\n"));
}

TEST_CASE("an error of a lesson gives the exit code of its kind, and no RESULT", "[tutorials]") {
  const auto code_of = [](const std::function<void()>& fail) {
    const Ran ran = run_here({}, [&](Lesson&) { fail(); });
    cli::check_says(ran.out, {"99_test: ", "because"});
    CHECK_FALSE(cli::contains(ran.out, "RESULT"));
    return ran.code;
  };
  CHECK(code_of([] { throw zl::InputError("because"); }) == 2);
  CHECK(code_of([] { throw zl::OutOfMemory("because", 0, zl::Pool::device, "", "", 1); }) == 3);
  CHECK(code_of([] { throw zl::CommunicationError("because"); }) == 4);
  CHECK(code_of([] { throw std::runtime_error("because"); }) == 70);
}

TEST_CASE("--step shows the events before a rank failed, and then the error", "[tutorials]") {
  const Ran ran = run_here({"--step"}, [](Lesson& lesson) {
    lesson.run_ranks(3, [&](zl::Communicator& comm) {
      zl::Memory memory({zl::DeviceKind::cpu}, zl::cpu_backend(), comm.events());
      lesson.recording().watch(comm, memory, {});
      comm.events().set_phase("one");
      comm.barrier({"here", zl::Purpose::check}).wait();
      zl::require_input(comm.rank() != 1, "because of rank 1");
      comm.events().set_phase("two");
      comm.barrier({"never", zl::Purpose::check}).wait();
    });
  });
  CHECK(ran.code == 2);
  CHECK(cli::contains(ran.out, "event   1  one"));
  CHECK_FALSE(cli::contains(ran.out, "two"));
  CHECK(cli::contains(ran.out, "because of rank 1"));
}

TEST_CASE("the picture keeps to 80 columns and one screen, with 8 ranks and 13 units",
          "[tutorials]") {
  using zl::lesson::Panel;
  const auto wide = wide_recording(8, 13);
  REQUIRE(wide.events() == 1);
  for (const Panel panel : {Panel::none, Panel::memory, Panel::communication}) {
    const std::vector<std::string> lines = zl::lesson::picture(wide, 0, panel);
    for (const std::string& line : lines) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
    CHECK(lines.size() <= 36);
    CHECK(std::ranges::count_if(
              lines, [](const std::string& line) { return cli::contains(line, " > h.9 "); }) == 1);
  }
  for (const Panel panel : {Panel::none, Panel::memory, Panel::communication})
    CHECK(zl::lesson::picture(wide_recording(4, 4), 0, panel).size() <= 22);  // of 24: keys, cursor
}

TEST_CASE("of two predictions of one number the first is judged, and an unknown key is refused",
          "[tutorials]") {
  const auto body = [](Lesson& lesson) { lesson.number("n", int64_t(6), 6, "2 x 3"); };
  const Ran twice = run_here({"--predict", "n=6", "--predict", "n=7"}, body);
  CHECK(twice.code == 0);
  cli::check_says(twice.out, {"you said 6: right.", "1 of your 1 predictions is right"});
  const Ran unknown = run_here({"--predict", "m=6"}, body);
  CHECK(unknown.code == 2);
  cli::check_says(unknown.out, {"no number with this key; it has n"});
}

TEST_CASE("predictions are read in the notations that people use", "[tutorials]") {
  using zl::lesson::parse_number;
  CHECK(parse_number("57,344") == 57344);
  CHECK(parse_number("57 344 B") == 57344);
  CHECK(parse_number("1.5 KiB") == 1536);
  CHECK(parse_number("5e8") == 5e8);
  CHECK(parse_number("-3") == -3);
  CHECK(parse_number("+0.192k") == 192);
  for (const char* nonsense : {"", "B", "KiB", "nan", "inf", "1.2.3", "12x", "1e999"})
    CHECK_FALSE(parse_number(nonsense));
  CHECK(zl::lesson::with_commas(0) == "0");
  CHECK(zl::lesson::with_commas(999) == "999");
  CHECK(zl::lesson::with_commas(-1234567) == "-1,234,567");
}

TEST_CASE("a wrong prediction is explained by its factor if there is one", "[tutorials]") {
  using zl::lesson::judge;
  CHECK(judge(100, 100, 0, 0, 3).right);
  CHECK(judge(300, 100, 0, 0, 3).text == "you said 300: 3 times too much. Of one rank or of all?");
  CHECK(judge(25, 100, 0, 0, 3).text == "you said 25: 4 times too little. Elements or bytes?");
  CHECK(judge(90, 100, 0, 0, 3).text == "you said 90: 10 too little.");
  CHECK(judge(5, 0, 0, 0, 3).text == "you said 5: 5 too much.");
  CHECK(judge(0, 5, 0, 0, 3).text == "you said 0: 5 too little.");
}

}  // namespace tutorials
