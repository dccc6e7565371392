// The frame of the lessons by itself: what it says of a lesson that is wrong, and that --step
// cannot hang.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <functional>

#include "tensor/error.h"
#include "tests/zerolab/process.h"
#include "tutorials/lesson/flags.h"
#include "tutorials/lesson/judgement.h"
#include "tutorials/lesson/picture.h"
#include "tutorials/lesson/trial.h"

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
  const zl::lesson::About about{.name = "99_test", .question = "Does it tell?", .ranks = 3};
  const int code = zl::lesson::run(int(arguments.size()), arguments.data(), about, body);
  std::fflush(stdout);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int fd : {out, err}) close(fd);
  std::fclose(file);
  return {code, cli::read_file(folder / "out")};
}

zl::lesson::Moment moment_of(int ranks, int units) {
  zl::lesson::Moment moment{.lesson = "08_zero3", .event = 1234, .size = ranks, .ranks = {}};
  for (int r = 0; r < ranks; ++r) {
    zl::lesson::RankMoment rank{.rank = r,
                                .phase = "backward",
                                .unit = "h.9",
                                .what = "reduce_scatter",
                                .detail = "h.9 gradient"};
    for (int use = 0; use < zl::kMemoryUses; ++use)
      rank.ledger.add(zl::MemoryUse(use), 123'456'789 + r);
    rank.log.add(zl::Collective::reduce_scatter, zl::Purpose::gradient, 28'672, 114'688, ranks);
    for (int u = 0; u < units; ++u)
      rank.units.push_back({u == 0 ? "root" : "h." + std::to_string(u - 1), 'P', 'G', 'o'});
    moment.ranks.push_back(rank);
  }
  return moment;
}

}  // namespace

TEST_CASE("a lesson with a wrong number says which, and ends with FAIL and 1", "[tutorials]") {
  const Ran ran = run_here({}, [](Lesson& lesson) {
    lesson.number("right", int64_t(6), 6, "2 x 3");
    lesson.number("wrong", int64_t(7), 6, "2 x 3");
    lesson.number("near", 1.0, 1.1, 0.01, "11 / 10");
    lesson.check("two is three", false);
  });
  CHECK(ran.code == 1);
  CHECK(cli::contains(ran.out, "7 = 2 x 3   WRONG: that is 6"));
  CHECK(cli::contains(ran.out, "WRONG: two is three"));
  CHECK(ran.out.ends_with("RESULT 99_test FAIL 1/4\n"));
}

TEST_CASE("an error of a lesson gives the exit code of its kind, and no RESULT", "[tutorials]") {
  const auto code_of = [](const std::function<void()>& fail) {
    const Ran ran = run_here({}, [&](Lesson&) { fail(); });
    CHECK(cli::contains(ran.out, "99_test: because"));
    CHECK_FALSE(cli::contains(ran.out, "RESULT"));
    return ran.code;
  };
  CHECK(code_of([] { throw zl::InputError("because"); }) == 2);
  CHECK(code_of([] { throw zl::OutOfMemory("because", 0, zl::Pool::device, "", "", 1); }) == 3);
  CHECK(code_of([] { throw zl::CommunicationError("because"); }) == 4);
  CHECK(code_of([] { throw std::runtime_error("because"); }) == 70);
}

TEST_CASE("a rank that fails while the others wait in --step does not hang them", "[tutorials]") {
  const Ran ran = run_here({"--step"}, [](Lesson& lesson) {
    lesson.run_ranks(3, [&](zl::Communicator& comm) {
      zl::Memory memory({zl::DeviceKind::cpu}, zl::cpu_backend(), comm.events());
      lesson.watch(comm, memory);
      comm.events().set_phase("one");
      zl::require_input(comm.rank() != 1, "because of rank 1");
      comm.events().set_phase("two");
      comm.barrier({"never", zl::Purpose::check}).wait();
    });
  });
  CHECK(ran.code == 2);
  CHECK(cli::contains(ran.out, "step    1  one"));
  CHECK(cli::contains(ran.out, "because of rank 1"));
}

TEST_CASE("the picture keeps to 80 columns and one screen, with 8 ranks and 13 units",
          "[tutorials]") {
  using zl::lesson::Panel;
  for (const Panel panel : {Panel::none, Panel::memory, Panel::communication}) {
    const std::vector<std::string> lines = zl::lesson::picture(moment_of(8, 13), panel);
    for (const std::string& line : lines) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
    CHECK(lines.size() <= 36);
    CHECK(std::ranges::count_if(
              lines, [](const std::string& line) { return cli::contains(line, " > h.9 "); }) == 1);
  }
  CHECK(zl::lesson::picture(moment_of(4, 3), Panel::none).size() <= 18);
}

TEST_CASE("numbers are read as people write them", "[tutorials]") {
  using zl::lesson::parse_number;
  CHECK(parse_number("57,344") == 57344);
  CHECK(parse_number("57 344 B") == 57344);
  CHECK(parse_number("1.5 KiB") == 1536);
  CHECK(parse_number("5e8") == 5e8);
  CHECK(parse_number("-3") == -3);
  for (const char* nonsense : {"", "B", "KiB", "nan", "inf", "1.2.3", "12x", "1e999"})
    CHECK_FALSE(parse_number(nonsense));
  CHECK(zl::lesson::with_commas(0) == "0");
  CHECK(zl::lesson::with_commas(999) == "999");
  CHECK(zl::lesson::with_commas(-1234567) == "-1,234,567");
}

TEST_CASE("a wrong number is told by its factor where there is one", "[tutorials]") {
  using zl::lesson::judge;
  CHECK(judge(100, 100, 0, 3).right);
  CHECK(judge(300, 100, 0, 3).text == "you said 300: 3 times too much. Of one rank or of all?");
  CHECK(judge(25, 100, 0, 3).text == "you said 25: 4 times too little. Elements or bytes?");
  CHECK(judge(90, 100, 0, 3).text == "you said 90: 10 too little.");
  CHECK(judge(5, 0, 0, 3).text == "you said 5: 5 too much.");
  CHECK(judge(0, 5, 0, 3).text == "you said 0: 5 too little.");
}

TEST_CASE("a trial has the bits of the library's own loop", "[tutorials]") {
  run_here({}, [](Lesson& lesson) {
    for (const zl::StageKind stage : zl::kStages) {
      zl::TrainingSpec spec = zl::lesson::training_m(lesson, stage);
      spec.config.steps = 3;
      const auto train = zl::lesson::train_m(lesson, spec);
      const auto make = [stage](auto&... arguments) {
        constexpr decltype(&zl::make_ddp) kMake[] = {zl::make_ddp, zl::make_zero1, zl::make_zero2,
                                                     zl::make_zero3};
        return kMake[size_t(stage)](arguments...);
      };
      const auto trial =
          zl::lesson::run_trial(lesson, {.make = make, .ranks = lesson.ranks(), .steps = 3});
      for (size_t step = 0; step < 3; ++step) {
        CHECK(trial[0].losses[step] == train.steps[step].loss);
        CHECK(trial[0].norms[step] == train.steps[step].grad_norm);
      }
    }
  });
}

}  // namespace tutorials
