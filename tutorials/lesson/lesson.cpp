#include "tutorials/lesson/lesson.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/lesson/stepper.h"
#include "tutorials/zerolab/cli/failure.h"

namespace zl::lesson {
namespace {

std::string as_text(double number, bool integer) {
  return integer ? with_commas(int64_t(number)) : cli::format("%.6g", number);
}

nlohmann::json as_json(double number, bool integer) {
  return integer ? nlohmann::json(int64_t(number)) : nlohmann::json(number);
}

}  // namespace

void Lesson::say(const std::string& text) {
  if (silent()) return;
  std::lock_guard lock(printing_);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// What the learner expects: given with --predict, or asked for now.
std::optional<double> Lesson::prediction_for(const std::string& key) {
  bool asks = false;
  for (Prediction& p : options_.predictions) {
    if (!p.key.empty() && p.key != key) continue;
    p.used = asks = true;
    if (p.value) return p.value;
  }
  return asks ? ask(key, silent()) : std::nullopt;
}

void Lesson::add(const Number& n, double tolerance) {
  require(std::ranges::count(numbers_, n.key, &Number::key) == 0, "two numbers have the key '",
          n.key, "'");
  const std::optional<double> said = prediction_for(n.key);
  numbers_.push_back(n);
  std::string head = "  " + n.key, value = as_text(n.measured, n.integer);
  head.resize(std::max<size_t>(head.size() + 1, 28), ' ');
  value.insert(0, size_t(std::max(0, 12 - int(value.size()))), ' ');
  const bool bound = n.expected == 0 && tolerance > 0;
  const char* relation = tolerance == 0 ? " = " : bound ? " <= " : " ~ ";
  say(head + value + relation + n.formula +
      (n.ok ? "" : "   WRONG: the formula gives " + as_text(n.expected, n.integer)));
  if (!said) return;
  // Of a bound, what was measured and the bound are both right, and so is all between them.
  const Judgement judgement = judge(*said, n.measured, bound ? 0 : tolerance,
                                    bound ? tolerance - n.measured : tolerance, options_.ranks);
  predictions_.push_back({n.key, *said, n.measured, judgement.right});
  say("    " + judgement.text + (judgement.right ? "" : " It is " + n.formula + "."));
}

void Lesson::number(const std::string& key, int64_t measured, int64_t expected,
                    const std::string& formula) {
  add({key, formula, double(measured), double(expected), true, measured == expected}, 0);
}

void Lesson::number(const std::string& key, double measured, double expected, double tolerance,
                    const std::string& formula) {
  const bool ok = std::abs(measured - expected) <= tolerance;
  add({key, formula, measured, expected, false, ok}, tolerance);
}

void Lesson::check(const std::string& claim, bool holds) {
  checks_.push_back({claim, holds});
  say((holds ? "  holds: " : "  WRONG: ") + claim);
}

void Lesson::run_ranks(int size, const std::function<void(Communicator&)>& body,
                       RankOptions options) {
  recording_ = Recording(size);
  std::exception_ptr failure;
  try {
    zl::run_ranks(size, body, options);
  } catch (...) {
    failure = std::current_exception();
  }
  if (options_.step) {
    events_ += recording_.events();
    show_events(recording_);
  }
  if (failure) std::rethrow_exception(failure);
}

int Lesson::finish() {
  std::string keys;
  for (const Number& n : numbers_) keys += (keys.empty() ? "" : ", ") + n.key;
  for (const Prediction& p : options_.predictions)
    require_input(p.used || p.key.empty(), "--predict ", p.key, ": ", about_.name,
                  " has no number with this key; it has ", keys.empty() ? "none" : keys);
  if (options_.step && events_ == 0) say("This lesson has no events to step through.");
  const auto held = std::ranges::count(numbers_, true, &Number::ok) +
                    std::ranges::count(checks_, true, &Claim::ok);
  const size_t total = numbers_.size() + checks_.size();
  const bool pass = size_t(held) == total;
  const std::string verdict = str(pass ? "PASS " : "FAIL ", held, "/", total);
  if (options_.json) {
    print_document(pass, verdict);
    return pass ? 0 : 1;
  }
  if (const auto right = std::ranges::count(predictions_, true, &Judged::right);
      !predictions_.empty())
    std::printf("%d of your %zu predictions %s right\n", int(right), predictions_.size(),
                right == 1 ? "is" : "are");
  std::printf("RESULT %s %s\n", about_.name.c_str(), verdict.c_str());
  return pass ? 0 : 1;
}

void Lesson::print_document(bool pass, const std::string& verdict) const {
  using nlohmann::json;
  json numbers = json::array(), checks = json::array(), predictions = json::array();
  for (const Number& n : numbers_)
    numbers.push_back({{"key", n.key},
                       {"measured", as_json(n.measured, n.integer)},
                       {"expected", as_json(n.expected, n.integer)},
                       {"formula", n.formula},
                       {"ok", n.ok}});
  for (const Claim& c : checks_) checks.push_back({{"claim", c.text}, {"ok", c.ok}});
  for (const Judged& p : predictions_)
    predictions.push_back(
        {{"key", p.key}, {"said", p.said}, {"measured", p.measured}, {"right", p.right}});
  const json document = {{"schema", 1},
                         {"lesson", about_.name},
                         {"ok", pass},
                         {"ranks", options_.ranks},
                         {"seed", options_.seed},
                         {"numbers", numbers},
                         {"checks", checks},
                         {"predictions", predictions},
                         {"result", verdict}};
  std::printf("%s\n", document.dump(2).c_str());
}

int run(int argc, const char* const* argv, const About& about,
        const std::function<void(Lesson&)>& body) {
  cli::Failure failure;
  try {
    const std::optional<Options> options = parse_options(argc, argv, about);
    if (!options) return 0;  // --help
    Lesson lesson(about, *options);
    lesson.say(about.name + ": " + about.question);
    body(lesson);
    const int code = lesson.finish();
    if (std::fflush(stdout) == 0) return code;
    failure = {cli::kNotWritten, "the output cannot be written"};
  } catch (const Left& left) {
    failure = {130, left.what()};
  } catch (...) {
    failure = cli::failure_of(std::current_exception(), 0);
  }
  std::fprintf(stderr, "%s: %s\n", about.name.c_str(), failure.text.c_str());
  return failure.code;
}

}  // namespace zl::lesson
