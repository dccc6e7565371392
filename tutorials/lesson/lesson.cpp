#include "tutorials/lesson/lesson.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/lesson/flags.h"
#include "tutorials/lesson/judgement.h"
#include "tutorials/lesson/stepper.h"

namespace zl::lesson {

struct Lesson::State {
  const About& about;
  Options options;
  std::unique_ptr<Stepper> stepper = {};  // with --step
  std::mutex printing = {};
  std::vector<std::string> keys = {};  // of numbers so far
  int total = 0, held = 0, predicted = 0, predicted_right = 0;
  nlohmann::json numbers = nlohmann::json::array(), checks = numbers, predictions = numbers;

  bool silent() const { return options.quiet || options.json; }
  void line(const std::string& text);
  void count(bool holds) { ++total, held += holds; }
  std::optional<double> prediction_for(const std::string& key);
  template <class Number>
  void number(const std::string& key, Number measured, Number expected, double tolerance,
              const std::string& formula);
  std::string verdict() const { return str(held == total ? "PASS " : "FAIL ", held, "/", total); }
  int finish() const;
};

namespace {

std::string as_text(int64_t number) { return with_commas(number); }
std::string as_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

}  // namespace

void Lesson::State::line(const std::string& text) {
  if (silent()) return;
  std::lock_guard lock(printing);
  if (stepper) stepper->other_output();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// What the learner expects: given, or asked for now.
std::optional<double> Lesson::State::prediction_for(const std::string& key) {
  bool asks = options.predict_all;
  for (Prediction& p : options.predictions) {
    if (p.key != key) continue;
    p.used = true;
    if (p.value) return p.value;
    asks = true;
  }
  return asks ? ask(key, silent()) : std::nullopt;
}

template <class Number>
void Lesson::State::number(const std::string& key, Number measured, Number expected,
                           double tolerance, const std::string& formula) {
  require(std::ranges::count(keys, key) == 0, "two numbers are called '", key, "'");
  keys.push_back(key);
  const std::optional<double> said = prediction_for(key);
  const bool holds = std::abs(double(measured) - double(expected)) <= tolerance;
  count(holds);
  std::string head = "  " + key, value = as_text(measured);
  head.resize(std::max<size_t>(head.size() + 1, 28), ' ');
  value.insert(0, size_t(std::max(0, 12 - int(value.size()))), ' ');
  line(head + value + " = " + formula + (holds ? "" : "   WRONG: that is " + as_text(expected)));
  numbers.push_back({{"key", key},
                     {"measured", measured},
                     {"expected", expected},
                     {"formula", formula},
                     {"ok", holds}});
  if (!said) return;
  const Judgement judgement = judge(*said, double(measured), tolerance, options.ranks);
  ++predicted, predicted_right += judgement.right;
  line("    " + judgement.text + (judgement.right ? "" : " It is " + formula + "."));
  predictions.push_back(
      {{"key", key}, {"said", *said}, {"measured", measured}, {"right", judgement.right}});
}

int Lesson::State::finish() const {
  for (const Prediction& p : options.predictions) {
    if (p.used) continue;
    std::string known;
    for (const std::string& key : keys) known += str(known.empty() ? "" : ", ", key);
    throw InputError(str("--predict ", p.key, ": ", about.name,
                         " has no number of this name; it has ", known.empty() ? "none" : known));
  }
  const bool pass = held == total;
  if (options.json) {
    const nlohmann::json document = {{"schema", 1},          {"lesson", about.name},
                                     {"ok", pass},           {"ranks", options.ranks},
                                     {"seed", options.seed}, {"numbers", numbers},
                                     {"checks", checks},     {"predictions", predictions},
                                     {"result", verdict()}};
    std::printf("%s\n", document.dump(2).c_str());
  } else {
    if (predicted > 0)
      std::printf("%d of your %d predictions %s right\n", predicted_right, predicted,
                  predicted_right == 1 ? "is" : "are");
    std::printf("RESULT %s %s\n", about.name.c_str(), verdict().c_str());
  }
  return pass ? 0 : 1;
}

int Lesson::ranks() const { return state_.options.ranks; }
uint64_t Lesson::seed() const { return state_.options.seed; }
bool Lesson::quiet() const { return state_.silent(); }
bool Lesson::stepping() const { return state_.options.step; }

bool Lesson::on(const std::string& flag) const {
  require(own_flag(state_.about, flag).argument.empty(), flag, " is not a switch");
  return state_.options.own.contains(flag);
}

std::string Lesson::value(const std::string& flag) const {
  const auto given = state_.options.own.find(flag);
  return given != state_.options.own.end() ? given->second : own_flag(state_.about, flag).value;
}

int64_t Lesson::count(const std::string& flag) const {
  require(own_flag(state_.about, flag).most > 0, flag, " is not a whole number");
  return std::stoll(value(flag));
}

void Lesson::say(const std::string& line) { state_.line(line); }

void Lesson::number(const std::string& key, int64_t measured, int64_t expected,
                    const std::string& formula) {
  state_.number(key, measured, expected, 0, formula);
}

void Lesson::number(const std::string& key, double measured, double expected, double tolerance,
                    const std::string& formula) {
  state_.number(key, measured, expected, tolerance, formula);
}

void Lesson::check(const std::string& claim, bool holds) {
  state_.count(holds);
  state_.line((holds ? "  holds: " : "  WRONG: ") + claim);
  state_.checks.push_back({{"claim", claim}, {"ok", holds}});
}

void Lesson::run_ranks(int size, const std::function<void(Communicator&)>& body) {
  runner()(size, body, {});
}

RunRanks Lesson::runner() {
  return [this](int size, const std::function<void(Communicator&)>& body, RankOptions options) {
    Stepper* stepper = state_.stepper.get();
    if (!stepper) return zl::run_ranks(size, body, options);
    options.timeout =
        std::chrono::milliseconds(0);  // the others wait for as long as the learner looks
    stepper->begin(size);
    zl::run_ranks(
        size,
        [&](Communicator& comm) {
          struct End {
            Stepper& stepper;
            int rank;
            ~End() { stepper.left(rank); }
          } const end{*stepper, comm.rank()};
          body(comm);
        },
        options);
  };
}

void Lesson::watch(Communicator& comm, Memory& memory, const Stage* stage,
                   const std::vector<Unit>* units) {
  if (state_.stepper) state_.stepper->watch(comm, memory, stage, units);
}

void Lesson::unwatch(Communicator& comm) {
  if (state_.stepper) state_.stepper->unwatch(comm.rank());
}

int run(int argc, const char* const* argv, const About& about,
        const std::function<void(Lesson&)>& body) {
  const auto failed = [&](int code, const char* why) {
    std::fprintf(stderr, "%s: %s\n", about.name.c_str(), why);
    return code;
  };
  try {
    Lesson::State state{.about = about, .options = parse_options({argv + 1, argv + argc}, about)};
    if (state.options.help) {
      std::fputs(help_text(about).c_str(), stdout);
      return 0;
    }
    if (state.options.step) state.stepper = std::make_unique<Stepper>(about.name);
    Lesson lesson(state);
    state.line(about.name + ": " + about.question);
    body(lesson);
    return state.finish();
  } catch (const Left&) {
    return failed(130, "left before the end; nothing was judged");
  } catch (const InputError& error) {
    return failed(2, error.what());
  } catch (const OutOfMemory& error) {
    return failed(3, error.what());
  } catch (const CommunicationError& error) {
    return failed(4, error.what());
  } catch (const std::exception& error) {
    return failed(70, error.what());
  }
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int at = int(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

}  // namespace zl::lesson
