// --step shows a run event by event: the keys on a terminal, and plain lines elsewhere.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "tests/tutorials/lesson_process.h"
#include "tests/zerolab/command.h"

namespace tutorials {
namespace {

const std::string kKeys = "[n]ext  [b]ack  [u]nit  [m]emory  [c]ommunication  [?] help  [q]uit";

std::string next_picture(LessonOnTerminal& lesson) { return lesson.until(kKeys); }
std::string press(LessonOnTerminal& lesson, const char* key) {
  lesson.press(key);
  return next_picture(lesson);
}

// Presses `key` until the picture contains `text`, beginning with `picture`, the one that is shown
// now, or with the first one. Returns that picture.
std::string until_event(LessonOnTerminal& lesson, const std::string& text, std::string picture = "",
                        const char* key = "n") {
  if (picture.empty()) picture = next_picture(lesson);
  while (!cli::contains(picture, text)) picture = press(lesson, key);
  return picture;
}

// The line of the picture that contains `text`, from there on.
std::string line_with(const std::string& picture, const std::string& text) {
  const size_t at = picture.find(text);
  return at == std::string::npos ? "" : picture.substr(at, picture.find('\r', at) - at);
}

}  // namespace

TEST_CASE("--step goes from event to event to the end and counts them", "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "3", "--step"});
  std::string picture = next_picture(lesson);
  CHECK(cli::contains(picture, "event 1 of 40: data"));
  int losses = 0;  // the all-gather of the losses is issued before the updates
  for (int event = 2; event <= 40; ++event) {
    picture = press(lesson, "n");
    CAPTURE(picture);
    losses += cli::contains(picture, "all_gather 'loss'");
    REQUIRE(cli::contains(picture, "event " + std::to_string(event) + " of 40: "));
    for (const std::string& line : cli::lines(picture))
      CHECK(line.size() <= 81);  // 80 columns and "\r"
  }
  CHECK(losses == 1);
  CHECK(cli::contains(picture, "h.1   update"));
  lesson.press("n");
  const auto [rest, code] = lesson.end();
  CHECK(code == 0);
  CHECK(cli::contains(rest, "RESULT 08_zero3 PASS"));
  CHECK(lesson.is_cooked());
}

TEST_CASE("--step shows every rank: full parameters while a unit runs, a shard otherwise",
          "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "3", "--step"});
  const std::string picture = until_event(lesson, "h.1   after_forward");
  CAPTURE(picture);
  cli::check_says(picture,
                  {"   root  # / /   # / /   # / /", "   h.0   / / /   / / /   / / /",
                   " > h.1   # / /   # / /   # / /", "rank 0 |PPP", "rank 1 |PPP", "rank 2 |PPP"});
  CHECK(cli::contains(press(lesson, "n"), "h.1   / / /   / / /   / / /"));
}

TEST_CASE("--step tells stale parameters and unreduced gradients from valid ones", "[tutorials]") {
  LessonOnTerminal lesson("06_zero1", {"--ranks", "2", "--steps", "1", "--step"});
  std::string picture = until_event(lesson, "'h.1 gradient' begins");
  CHECK(cli::contains(picture, " > h.1   # +*/"));  // in flight
  picture = until_event(lesson, "h.1   after_backward", picture);
  CHECK(cli::contains(picture, " > h.1   # ~ /"));  // reduce-scatter: only the own slice is a mean
  CHECK(cli::contains(picture, "   root  # + /"));  // backward still adds to it
  picture = until_event(lesson, "all_gather 'h.1 parameter' begins", picture);
  CHECK(cli::contains(picture, " > h.1   ~*0 /"));  // updated: the other slices are in flight
  CHECK(cli::contains(press(lesson, "n"), " > h.1   # 0 /"));
}

TEST_CASE("--step draws all bars of a run to one scale, which it prints", "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "2", "--step"});
  const std::string first = next_picture(lesson);
  const std::string scale = line_with(first, "memory: 40 letters are ").substr(0, 45);
  CHECK(scale.size() > 30);
  const std::string later = until_event(lesson, "h.1   before_backward", first);
  CHECK(cli::contains(later, scale));
  const auto letters = [](const std::string& picture) {
    const std::string bar = line_with(picture, "rank 0 |");
    return std::count_if(bar.begin() + 8, bar.begin() + 48, [](char c) { return c != ' '; });
  };
  CHECK(letters(first) < 15);  // model states alone
  CHECK(letters(later) > 25);  // and the activations
}

TEST_CASE("--step shows what each rank has sent, and the steps of the ring", "[tutorials]") {
  LessonOnTerminal lesson("04_collectives", {"--step"});
  std::string picture = until_event(lesson, "tree     -     begins");
  CHECK(cli::contains(line_with(picture, "rank 0 |"), " 342,912"));  // 3 messages of 28,576 x 4 B
  for (const char* rank : {"rank 1 |", "rank 2 |", "rank 3 |"})
    CHECK(cli::contains(line_with(picture, rank), " 114,304"));  // one message
  picture = until_event(lesson, "reduce-scatter step", picture);
  CHECK(cli::contains(picture, "ring  1112    2111    1211    1121"));
  picture = until_event(lesson, "all-gather step", picture);
  CHECK(cli::contains(picture, "ring  4432    2443    3244    4324"));
}

TEST_CASE("b goes back, ? lists the keys, and an unknown key says so", "[tutorials]") {
  LessonOnTerminal lesson("06_zero1", {"--ranks", "2", "--step"});
  next_picture(lesson);
  CHECK(cli::contains(press(lesson, "b"), "this is the first event"));
  CHECK(cli::contains(press(lesson, "n"), "event 2 of "));
  CHECK(cli::contains(press(lesson, "b"), "event 1 of "));
  CHECK(cli::contains(press(lesson, "?"), "b: event before"));
  CHECK(cli::contains(press(lesson, "x"), "'x' does nothing"));
}

TEST_CASE("u goes on to another unit, m and c add what they name", "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "2", "--step"});
  until_event(lesson, "h.0   before_forward", "", "u");
  std::string picture = press(lesson, "u");
  CHECK(cli::contains(picture, "h.1   before_forward"));
  CHECK_FALSE(cli::contains(picture, "memory [B]"));
  picture = press(lesson, "m");
  CHECK(cli::contains(picture, "h.1   before_forward"));  // the same event
  cli::check_says(picture, {"memory [B]", "optimizer_state"});
  picture = press(lesson, "c");
  CHECK_FALSE(cli::contains(picture, "memory [B]"));
  CHECK(cli::contains(picture, "all_gather, parameter"));
  CHECK_FALSE(cli::contains(press(lesson, "c"), "all_gather, parameter"));
}

TEST_CASE("--step draws over its last picture on 80 x 24, with 4 ranks, 4 units and each panel",
          "[tutorials]") {
  LessonOnTerminal lesson("08_zero3", {"--ranks", "4", "--layers", "3", "--step"});
  std::string picture = next_picture(lesson);
  cli::check_says(picture, {"   root", "   h.0", "   h.1", "   h.2"});
  picture.erase(0, picture.find("event 1 of "));
  auto height = std::count(picture.begin(), picture.end(), '\n') + 1;
  for (const char* key : {"n", "m", "n", "?", "c", "n", "x", "u"}) {
    picture = press(lesson, key);
    CAPTURE(key, picture);
    const std::string over = "\x1b[" + std::to_string(height) + "F\x1b[J";
    REQUIRE(cli::contains(picture, over));
    picture.erase(0, picture.find(over) + over.size());
    height = std::count(picture.begin(), picture.end(), '\n') + 1;  // with the line of keys
    CHECK(height <= 23);  // the cursor is in the line below
    for (const std::string& line : cli::lines(picture)) CHECK(line.size() <= 81);
  }
}

TEST_CASE("colours of --step change nothing else, and NO_COLOR switches them off", "[tutorials]") {
  const std::regex color("\x1b\\[[0-9;]*m");
  const auto pictures = [](bool colors) {
    LessonOnTerminal lesson("06_zero1", {"--ranks", "2", "--step"}, colors);
    std::string all = next_picture(lesson);
    for (int i = 0; i < 30; ++i) all += press(lesson, "n");
    return all;
  };
  const std::string plain = pictures(false), colored = pictures(true);
  CHECK_FALSE(std::regex_search(plain, color));
  CHECK(colored != plain);
  CHECK(std::regex_replace(colored, color, "") == plain);
  CHECK(cli::contains(colored, "\x1b[1;34m#\x1b[0m"));  // a full parameter is blue, as in the bars
  CHECK(cli::contains(colored, "|\x1b[34mPPP"));
  CHECK(cli::contains(colored, "~\x1b[0m\x1b[7m*\x1b[0m"));  // in flight
}

TEST_CASE("q leaves --step with 0, Ctrl-C with 130, and both restore the terminal", "[tutorials]") {
  for (const auto& [key, left_with] : {std::pair{"q", 0}, {"\x03", 130}}) {
    LessonOnTerminal lesson("06_zero1", {"--ranks", "4", "--step"});
    next_picture(lesson);
    CHECK_FALSE(lesson.is_cooked());
    lesson.press(key);
    const auto [rest, code] = lesson.end();
    CHECK(code == left_with);
    CHECK(cli::contains(rest, "left before the end; nothing was judged"));
    CHECK_FALSE(cli::contains(rest, "RESULT"));
    CHECK(lesson.is_cooked());
  }
}

TEST_CASE("--step shows a skipped step, and calls that are in flight", "[tutorials]") {
  const std::string skipped = run_lesson("09_precision", "--ranks 2 --step").out;
  const size_t first = skipped.find("step     -     begins"),
               second = skipped.find("step     -     begins", first + 1);
  REQUIRE(second != std::string::npos);
  const std::string of_step_1 = skipped.substr(first, second - first),
                    of_step_2 = skipped.substr(second);
  for (const char* event :
       {"h.1   update", "all_gather 'gradient norm'", "all_gather 'h.1 parameter'"}) {
    CAPTURE(event);
    CHECK(cli::contains(of_step_1, event));
    CHECK(cli::contains(of_step_2, event) == !cli::contains(event, "parameter"));
  }

  LessonOnTerminal lesson("11_overlap", {"--ranks", "2", "--step"});
  const std::string picture = until_event(lesson, "h.2   before_backward");
  CHECK(cli::contains(picture, "   h.3   # +*/"));  // while h.2 runs
  CHECK(cli::contains(picture, " > h.2   # "));
}

TEST_CASE("without a terminal --step prints a line per event", "[tutorials]") {
  const cli::Finished finished = run_lesson("08_zero3", "--ranks 3 --step");
  CHECK(finished.code == 0);
  CHECK_FALSE(cli::contains(finished.out, "\x1b"));
  cli::check_says(finished.out,
                  {"\neach line: the state before its event acts\n", "event   1  data",
                   "event  20  backward h.1   reduce ", "h.1:#+/", "\nRESULT 08_zero3 PASS"});
  CHECK(run_lesson("08_zero3", "--ranks 3 --step").out == finished.out);
}

TEST_CASE("every lesson passes with --step on the reference, and 00 says that it has no events",
          "[tutorials]") {
  for (const std::string& name : lesson_names()) {
    const cli::Finished finished = run_lesson(name, "--ranks 3 --device reference --step");
    CAPTURE(name, finished.err);
    CHECK(finished.code == 0);
    CHECK(finished.err.empty());
    CHECK(cli::lines(finished.out).back().starts_with("RESULT " + name + " PASS"));
    CHECK(cli::contains(finished.out, "no events to step through") == (name == "00_doctor"));
    CHECK(cli::contains(finished.out, "\nevent   1 ") == (name != "00_doctor"));
  }
}

}  // namespace tutorials
