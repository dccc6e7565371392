// What each check of exercise 02 plays: events of some steps, which follow from the seed.
#pragma once

#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "tutorials/exercises/02_final_gradient/final_gradient.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::final_gradient_checks {

// A call of ready().
struct ReadyCall {
  int step = 0, parameter = 0, event = 0;
};

enum class Kind { begin_step, use, begin_backward, contribution, end_backward };
struct Event {
  Kind kind{};
  int step = 0, micro_batch = 0;
  bool last = false;          // of the step's micro-batches
  int parameter = 0;          // of a use or contribution
  Use use = Use::recorded;    // of a use
  std::vector<float> values;  // of a contribution: small integers
};

struct Script {
  std::vector<int64_t> sizes;  // [n] by parameter
  std::vector<Event> events;
};

// The steps of a check, and the micro-batches of each. A letter is a parameter. Uses of evaluation
// stand before '?', those of the forward pass before '|': 'B' is checkpointed. Behind it 'b' is a
// contribution, and 'B' runs a checkpointed use again; neighbours run again together.
using Step = std::vector<std::string>;
inline std::vector<Step> steps_of(const std::string& check) {
  const std::string tied = "abcdefgbfa|afbgfedcba";  // the first and the last layer use a
  const Step even = {"abcdefbfa|afbfedcba", "abdefbfa|afbfedba"}, odd = {even[0], even[0]};
  const std::map<std::string, std::vector<Step>> all = {
      {"each parameter used once", {{"abcdefg|gfedcba"}}},
      {"tied weights", {{tied}}},
      {"unused parameters", {{"abdef|fedba"}}},
      {"three micro-batches", {{tied, tied, tied}}},
      {"used in the first micro-batch only", {{tied, "abcefgbfa|afbgfecba"}}},
      {"three steps", {even, odd, even}},
      {"evaluation in between", {{"abcdefg?" + tied, "abcdefg?" + tied}}},
      {"checkpointed passes", {Step(2, "ABcDEfGbfa|afbGgfDEedcABba")}},
      // The use of e, and then of f, before the last one does not reach the loss.
      {"a branch without a gradient", {{"abcdefgbfea|afbgfedcba", "abcdefgbffa|afbgfedcba"}}}};
  return all.at(check);
}

inline Script make_script(const CheckOptions& options) {
  Draw draw(options);
  Script script;
  std::vector<int> numbers;  // of the parameters a to g
  for (int p = 0; p < 7; ++p) {
    script.sizes.push_back(draw.between(3, 6));
    numbers.insert(numbers.begin() + draw.between(0, p), p);
  }
  Event now;
  const auto add = [&](Kind kind) {
    now.kind = kind, now.values.clear();
    for (int64_t i = 0; kind == Kind::contribution && i < script.sizes[size_t(now.parameter)]; ++i)
      now.values.push_back(float(draw.between(1, 99)));
    script.events.push_back(now);
  };
  for (const Step& step : steps_of(options.check)) {
    now.micro_batch = 0, now.last = false;
    add(Kind::begin_step);
    for (const std::string& passes : step) {
      now.last = &passes == &step.back();
      bool backward = false, evaluation = passes.find('?') != passes.npos;
      for (const char c : passes) {
        const bool checkpointed = std::isupper(c);
        if (c == '?') evaluation = false;
        if (c == '|') add(Kind::begin_backward), backward = true;
        if (!std::isalpha(c)) continue;
        now.parameter = numbers[size_t(std::tolower(c) - 'a')];
        now.use = evaluation      ? Use::evaluation
                  : !checkpointed ? Use::recorded
                  : backward      ? Use::again
                                  : Use::checkpointed;
        add(backward && !checkpointed ? Kind::contribution : Kind::use);
      }
      add(Kind::end_backward);
      ++now.micro_batch;
    }
    ++now.step;
  }
  return script;
}

}  // namespace zl::exercises::final_gradient_checks
