#include "tutorials/lesson/prediction.h"

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tensor/error.h"
#include "tutorials/lesson/lesson.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::lesson {
namespace {

constexpr const char* kHowToWrite = "' is not a number; write it as 57600, 57,600 or 56.25KiB";

std::string as_text(double number) {
  return std::nearbyint(number) == number && std::abs(number) < 1e15 ? with_commas(int64_t(number))
                                                                     : str(number);
}

// A whole factor says more than a difference: the learner forgot a unit or a divisor.
std::string what_is_off(double said, double measured, int ranks) {
  const bool much = said > measured;
  const double factor = much ? said / measured : measured / said;
  if (!(factor > 1.5 && factor <= 64 && std::abs(factor - std::nearbyint(factor)) < 1e-9))
    return as_text(std::abs(said - measured)) + (much ? " too much." : " too little.");
  const int rounded = int(std::nearbyint(factor));
  return str(rounded, " times too ", much ? "much." : "little.",
             rounded == 4 ? " Elements or bytes?" : "",
             rounded == ranks && ranks > 1 ? " Of one rank or of all?" : "");
}

}  // namespace

std::optional<double> parse_number(std::string text) try {
  std::erase_if(text, [](char c) { return c == ',' || c == '_' || c == ' '; });
  if (text.ends_with('k')) text += 'B';
  const bool negative = text.starts_with('-'), sign = negative || text.starts_with('+');
  const auto number = double(
      cli::read_scaled(std::string_view(text).substr(sign), cli::kByteUnits, "", 0, DBL_MAX));
  return negative ? -number : number;
} catch (const InputError&) {
  return std::nullopt;
}

Prediction parse_prediction(const std::string& text) {
  const size_t equals = text.find('=');
  Prediction prediction{text.substr(0, equals), {}};
  if (equals == std::string::npos) return prediction;
  require_input(equals > 0, "--predict ", text, ": write --predict KEY, or --predict KEY=VALUE");
  prediction.value = parse_number(text.substr(equals + 1));
  require_input(prediction.value.has_value(), "--predict ", text, ": '", text.substr(equals + 1),
                kHowToWrite);
  return prediction;
}

std::optional<double> ask(const std::string& key, bool on_stderr) {
  std::FILE* file = on_stderr ? stderr : stdout;
  for (std::string answer;;) {
    std::fprintf(file, "  %s? ", key.c_str());
    std::fflush(file);
    if (!std::getline(std::cin, answer) || answer.find_first_not_of(" \t\r") == std::string::npos)
      return std::nullopt;
    if (const auto number = parse_number(answer)) return number;
    std::fprintf(file, "  '%s%s. Enter alone skips it.\n", answer.c_str(), kHowToWrite);
  }
}

Judgement judge(double said, double measured, double below, double above, int ranks) {
  const bool right = said >= measured - below && said <= measured + above;
  return {right, "you said " + as_text(said) + ": " +
                     (right ? "right." : what_is_off(said, measured, ranks))};
}

}  // namespace zl::lesson
