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

using nlohmann::json;

std::string shown(int64_t number) { return with_commas(number); }
std::string shown(double number) { return cli::format("%.6g", number); }

int64_t rows_with(const json& list, const char* key, const json& value) {
  return std::count_if(list.begin(), list.end(),
                       [&](const json& row) { return row[key] == value; });
}

}  // namespace

// As --json prints them.
struct Lesson::Results {
  json numbers = json::array(), checks = json::array(), predictions = json::array();
};

Lesson::Lesson(const About& about, Options options)
    : about_(about), options_(std::move(options)), results_(std::make_shared<Results>()) {}

void Lesson::say(const std::string& text) {
  if (silent()) return;
  std::lock_guard lock(printing_);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// What the learner expects: given with --predict, or asked for now.
std::optional<double> Lesson::prediction_for(const std::string& key) const {
  bool asks = false;
  for (const Prediction& p : options_.predictions) {
    if (!p.key.empty() && p.key != key) continue;
    asks = true;
    if (p.value) return p.value;
  }
  return asks ? ask(key, silent()) : std::nullopt;
}

template <class T>
void Lesson::add(const std::string& key, T measured, T expected, double tolerance,
                 const std::string& formula) {
  require(rows_with(results_->numbers, "key", key) == 0, "two numbers have the key '", key, "'");
  const std::optional<double> said = prediction_for(key);
  const bool ok = measured == expected || std::abs(double(measured - expected)) <= tolerance;
  results_->numbers.push_back({{"key", key},
                               {"measured", measured},
                               {"expected", expected},
                               {"formula", formula},
                               {"ok", ok}});
  std::string head = "  " + key, value = shown(measured);
  head.resize(std::max<size_t>(head.size() + 1, 28), ' ');
  value.insert(0, size_t(std::max(0, 12 - int(value.size()))), ' ');
  const bool bound = expected == 0 && tolerance > 0;
  const char* relation = tolerance == 0 ? " = " : bound ? " <= " : " ~ ";
  say(head + value + relation + formula +
      (ok ? "" : "   WRONG: the formula gives " + shown(expected)));
  if (!said) return;
  // Of a bound, what was measured and the bound are both right, and so is all between them.
  const Judgement judgement =
      judge(*said, double(measured), bound ? 0 : tolerance,
            bound ? tolerance - double(measured) : tolerance, options_.ranks);
  results_->predictions.push_back(
      {{"key", key}, {"said", *said}, {"measured", double(measured)}, {"right", judgement.right}});
  say("    " + judgement.text + (judgement.right ? "" : " It is " + formula + "."));
}

void Lesson::number(const std::string& key, int64_t measured, int64_t expected,
                    const std::string& formula) {
  add(key, measured, expected, 0, formula);
}

void Lesson::number(const std::string& key, double measured, double expected, double tolerance,
                    const std::string& formula) {
  add(key, measured, expected, tolerance, formula);
}

void Lesson::check(const std::string& claim, bool holds) {
  results_->checks.push_back({{"claim", claim}, {"ok", holds}});
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
  const auto& [numbers, checks, predictions] = *results_;
  std::string keys;
  for (const json& n : numbers) keys += (keys.empty() ? "" : ", ") + n["key"].get<std::string>();
  for (const Prediction& p : options_.predictions)
    require_input(p.key.empty() || rows_with(numbers, "key", p.key) > 0, "--predict ", p.key, ": ",
                  about_.name, " has no number with this key; it has ",
                  keys.empty() ? "none" : keys);
  if (options_.step && events_ == 0) say("This lesson has no events to step through.");
  const int64_t held = rows_with(numbers, "ok", true) + rows_with(checks, "ok", true);
  const size_t total = numbers.size() + checks.size();
  const bool pass = size_t(held) == total;
  const std::string verdict = str(pass ? "PASS " : "FAIL ", held, "/", total);
  if (options_.json) {
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
    return pass ? 0 : 1;
  }
  if (const int64_t right = rows_with(predictions, "right", true); !predictions.empty())
    std::printf("%d of your %zu predictions %s right\n", int(right), predictions.size(),
                right == 1 ? "is" : "are");
  std::printf("RESULT %s %s\n", about_.name.c_str(), verdict.c_str());
  return pass ? 0 : 1;
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
    failure = {left.code, left.what()};
  } catch (...) {
    failure = cli::failure_of(std::current_exception(), 0);
  }
  std::fprintf(stderr, "%s: %s\n", about.name.c_str(), failure.text.c_str());
  return failure.code;
}

}  // namespace zl::lesson
