// --step on a terminal: all ranks stop together, keys, and the terminal as it was in every exit.
// Elsewhere plain lines.

#include <catch2/catch_test_macros.hpp>

#include "tests/tutorials/lesson_process.h"

namespace tutorials {
namespace {

const std::string kKeys = "[n]ext  [u]nit  [m]emory  [c]ommunication  [q]uit";

// The picture that comes last in what was printed.
std::string next_picture(LessonOnTerminal& lesson) { return lesson.until(kKeys); }

}  // namespace

TEST_CASE("--step goes from event to event to the end", "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "3", "--step"});
  std::string picture = next_picture(lesson);
  int events = 1;
  CHECK(cli::contains(picture, "08_zero3  event 1  data"));
  for (; !cli::contains(picture, "all_gather 'loss'"); ++events) {
    lesson.press("n");
    picture = next_picture(lesson);
    CAPTURE(picture);
    REQUIRE(cli::contains(picture,
                          "event " + std::to_string(events + 1) + "  "));  // every one, in order
    for (const std::string& line : cli::lines(picture))
      CHECK(line.size() <= 81);  // 80 columns and "\r"
  }
  CHECK(events == 32);
  lesson.press("n");
  const auto [rest, code] = lesson.end();
  CHECK(code == 0);
  CHECK(cli::contains(rest, "RESULT 08_zero3 PASS"));
  CHECK(lesson.is_cooked());
}

TEST_CASE("--step shows the same moment of every rank: gathered inside a unit, a shard outside",
          "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "3", "--step"});
  std::string picture;
  while (!cli::contains(picture = next_picture(lesson), "h.1   after_forward")) lesson.press("n");
  CAPTURE(picture);
  CHECK(cli::contains(picture, "   root    P g o   P g o   P g o"));
  CHECK(cli::contains(picture, "   h.0     p g o   p g o   p g o"));
  CHECK(cli::contains(picture, " > h.1     P g o   P g o   P g o"));
  for (const char* rank : {"rank 0 |PPP", "rank 1 |PPP", "rank 2 |PPP"})
    CHECK(cli::contains(picture, rank));
  lesson.press("n");
  CHECK(cli::contains(next_picture(lesson), "h.1     p g o   p g o   p g o"));
}

TEST_CASE("u goes on to another unit, m and c add what they name", "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "2", "--step"});
  std::string picture;
  while (!cli::contains(picture = next_picture(lesson), "h.0   before_forward")) lesson.press("u");
  lesson.press("u");
  CHECK(cli::contains(next_picture(lesson), "h.1   before_forward"));
  lesson.press("m");
  picture = next_picture(lesson);
  CHECK(cli::contains(picture, "h.1   before_forward"));  // the same event
  CHECK(cli::contains(picture, "memory [B]"));
  CHECK(cli::contains(picture, "optimizer_state"));
  lesson.press("c");
  picture = next_picture(lesson);
  CHECK_FALSE(cli::contains(picture, "memory [B]"));
  CHECK(cli::contains(picture, "all_gather, parameter"));
  lesson.press("c");
  CHECK_FALSE(cli::contains(next_picture(lesson), "all_gather, parameter"));
}

TEST_CASE("q leaves at once with 130 and the terminal as it was", "[tutorials]") {
  LessonOnTerminal lesson("06_zero1", {"--ranks", "4", "--step"});
  next_picture(lesson);
  CHECK_FALSE(lesson.is_cooked());
  lesson.press("q");
  const auto [rest, code] = lesson.end();
  CHECK(code == 130);
  CHECK(cli::contains(rest, "left before the end; nothing was judged"));
  CHECK_FALSE(cli::contains(rest, "RESULT"));
  CHECK(lesson.is_cooked());
}

TEST_CASE("Ctrl-C in --step ends the lesson and leaves the terminal as it was", "[tutorials]") {
  LessonOnTerminal lesson("07_zero2", {"--ranks", "2", "--step"});
  next_picture(lesson);
  CHECK_FALSE(lesson.is_cooked());
  lesson.press("\x03");
  CHECK(lesson.end().second == 130);
  CHECK(lesson.is_cooked());
}

TEST_CASE("without a terminal --step prints a line per event and waits for nobody", "[tutorials]") {
  const cli::Finished finished = run_lesson("08_zero3", "--ranks 3 --step");
  CHECK(finished.code == 0);
  CHECK_FALSE(cli::contains(finished.out, "\x1b"));
  CHECK(cli::contains(finished.out, "step    1  data"));
  CHECK(cli::contains(finished.out, "step   16  backward   h.1   reduce "));
  CHECK(cli::contains(finished.out, "h.1:PGo"));
  CHECK(cli::contains(finished.out, "\nRESULT 08_zero3 PASS"));
  CHECK(run_lesson("08_zero3", "--ranks 3 --step").out ==
        finished.out);  // and they are the same every time
}

TEST_CASE("every lesson can be stepped through without a terminal", "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const cli::Finished finished = run_lesson(name, "--ranks 2 --step");
    CAPTURE(name, finished.err);
    CHECK(finished.code == 0);
    CHECK(cli::lines(finished.out).back().starts_with("RESULT " + name + " PASS"));
  }
}

}  // namespace tutorials
