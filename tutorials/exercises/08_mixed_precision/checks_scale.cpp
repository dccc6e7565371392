// Whether the loss scale follows its rule, and if not, which other rule it follows.
#include <algorithm>

#include "tensor/error.h"
#include "tutorials/exercises/08_mixed_precision/observed.h"

namespace zl::exercises::precision {
namespace {

struct Rule {
  int window_off = 0;             // doubled after so many more good steps
  bool overflow_restarts = true;  // the count
  bool doubling_restarts = true;
  bool overflow_counts = false;  // as a good step
  double down = 0.5, up = 2;
  int hysteresis = 1;
  double least = 1;  // times min_scale
};

std::vector<double> scales(const PrecisionCase& c, const Rule& rule) {
  std::vector<double> all = {c.scale};
  double scale = c.scale;
  int good = 0, overflows = 0;
  for (size_t step = 0; step < c.steps; ++step) {
    const bool overflow = c.overflow(step);
    if (overflow && ++overflows % rule.hysteresis == 0)
      scale = std::max(scale * rule.down, rule.least * c.min_scale);
    if (overflow && rule.overflow_restarts) good = 0;
    if ((!overflow || rule.overflow_counts) && ++good >= c.window + rule.window_off) {
      scale *= rule.up;
      if (rule.doubling_restarts) good = 0;
    }
    all.push_back(scale);
  }
  return all;
}

struct Mistake {
  Rule rule;
  const char* meaning;
};

Rule with(auto Rule::*member, auto value) {
  Rule rule;
  rule.*member = value;
  return rule;
}

std::vector<Mistake> mistakes() {
  return {
      {with(&Rule::window_off, 1), "the scale doubles one step too late"},
      {with(&Rule::window_off, -1), "the scale doubles one step too early"},
      {with(&Rule::overflow_restarts, false),
       "an overflow does not restart the count of good steps: they must be in a row"},
      {with(&Rule::doubling_restarts, false),
       "the scale doubles in every good step after the first window: the count does not restart"},
      {with(&Rule::overflow_counts, true), "the step with the overflow counts as a good one"},
      {with(&Rule::down, 1.0), "an overflow does not halve the scale"},
      {with(&Rule::down, 0.25), "an overflow quarters the scale"},
      {with(&Rule::down, 2.0), "an overflow doubles the scale"},
      {with(&Rule::up, 1.0), "the scale never doubles"},
      {with(&Rule::up, 0.5), "the scale halves after good steps"},
      {with(&Rule::hysteresis, 2), "only every second overflow halves the scale"},
      {with(&Rule::least, 0.0), "the scale falls below min_scale"},
      {with(&Rule::least, 2.0), "the scale stops at 2 x min_scale"},
  };
}

std::string text_of(const std::vector<double>& scales) {
  std::string text;
  for (const double scale : scales) text += str(" ", scale);
  return text;
}

}  // namespace

std::vector<double> right_scales(const PrecisionCase& c) { return scales(c, Rule()); }

Failure judge_scale(const PrecisionCase& c, const Observed& seen, size_t step) {
  const std::vector<double> right = right_scales(c);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const double is = seen.of_step(rank, "scale", step).value_or(0);
    if (is == right[step]) continue;
    const std::vector<double>& all = seen.all(rank, "scale");
    std::string overflows;
    for (size_t s = 0; s < c.steps; ++s) overflows += c.overflow(s) ? str(" ", s + 1) : "";
    const std::string details =
        str("rank ", rank, ", window ", c.window, ", min_scale ", c.min_scale,
            ", overflows in steps", overflows.empty() ? " none" : overflows, "; scales",
            text_of(all), "\nexpected", text_of(right));
    if (step == 0) return failed("the first scale is not initial_scale", details);
    const bool same = seen.of_step(0, "scale", step) == seen.of_step(c.ranks - 1, "scale", step);
    if (!same) return failed("the ranks have different scales", details);
    for (const Mistake& mistake : mistakes())
      if (all == scales(c, mistake.rule)) return failed(mistake.meaning, details);
    return failed(str("the scale is ", is, ", not ", right[step], ", after step ", step), details);
  }
  return {};
}

}  // namespace zl::exercises::precision
