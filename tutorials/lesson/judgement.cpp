#include "tutorials/lesson/judgement.h"

#include <cmath>
#include <cstdio>
#include <iostream>

#include "tensor/error.h"
#include "tutorials/lesson/flags.h"

namespace zl::lesson {
namespace {

std::string as_text(double number) {
  return std::nearbyint(number) == number && std::abs(number) < 1e15 ? with_commas(int64_t(number))
                                                                     : str(number);
}

// A whole factor between the two says more than their difference: it is a unit or a divisor that
// was forgotten.
std::string what_is_off(double said, double measured, int ranks) {
  const bool much = said > measured;
  const double factor = much ? said / measured : measured / said;
  if (!(factor > 1.5 && factor <= 64 && std::abs(factor - std::nearbyint(factor)) < 1e-9))
    return as_text(std::abs(said - measured)) + (much ? " too much." : " too little.");
  const int whole = int(std::nearbyint(factor));
  std::string text = str(whole, " times too ", much ? "much." : "little.");
  if (whole == 4) text += " Elements or bytes?";
  if (whole == ranks && ranks > 1) text += " Of one rank or of all?";
  return text;
}

}  // namespace

std::optional<double> ask(const std::string& key, bool on_stderr) {
  for (int tries = 0; tries < 3; ++tries) {
    std::fprintf(on_stderr ? stderr : stdout, "  %s? ", key.c_str());
    std::fflush(on_stderr ? stderr : stdout);
    std::string answer;
    if (!std::getline(std::cin, answer) || answer.find_first_not_of(" \t\r") == std::string::npos)
      return std::nullopt;
    if (const auto number = parse_number(answer)) return number;
    std::fprintf(
        on_stderr ? stderr : stdout,
        "  '%s' is not a number; write it as 57600, 57,600 or 56.25KiB. Enter alone skips it.\n",
        answer.c_str());
  }
  return std::nullopt;
}

Judgement judge(double said, double measured, double tolerance, int ranks) {
  const bool right = std::abs(said - measured) <= tolerance;
  return {right, "you said " + as_text(said) + ": " +
                     (right ? "right." : what_is_off(said, measured, ranks))};
}

}  // namespace zl::lesson
