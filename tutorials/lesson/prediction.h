// The learner's number beside the measured one: --predict.
#pragma once

#include <optional>
#include <string>

namespace zl::lesson {

struct Prediction {
  std::string key;              // of the number; empty: of every number
  std::optional<double> value;  // empty: ask for it
};
// Reads "KEY=VALUE", "KEY" or "". Throws InputError if VALUE is not a number.
Prediction parse_prediction(const std::string& text);

// Reads "57,600", "5e4", "56.25 KiB" or "57600 B". Commas, blanks and '_' are skipped; units are
// those of --device-memory, KiB of 1,024 and kB of 1,000 bytes; a sign may precede. Empty if that
// is not a number.
std::optional<double> parse_number(std::string text);

// Asks for `key` on stdin until the answer is a number. The question goes to stdout, or to stderr.
// Empty for an empty line and at the end of stdin.
std::optional<double> ask(const std::string& key, bool on_stderr);

struct Judgement {
  bool right = false;
  std::string text;  // "you said 230,400: 4 times too much. Elements or bytes?"
};
// Right from `below` less than `measured` to `above` more.
Judgement judge(double said, double measured, double below, double above, int ranks);

}  // namespace zl::lesson
