// RMSNorm and its gradients in double, right and with typical mistakes: what the grader compares
// with.
#pragma once

#include <functional>
#include <vector>

#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

namespace zl::exercises::rms_norm_checks {

using Numbers = std::vector<double>;

// One formula per mistake that a value may have, and the sentence for it.
enum class ValueMistake {
  none,
  sum,
  no_root,
  eps_outside,
  no_eps,
  no_weight,
  centred,
  one_rms,
  first_row,
  times_rms,
  standard_deviation
};
enum class GradientMistake {
  none,
  constant_rms,
  sum,
  sign,
  no_weight_in_mean,
  no_weight,
  square,
  no_x,
  last_row,
  first_row,
  not_normalised,
  mean_of_rows
};

template <class Mistake>
struct Meaning {
  Mistake mistake;
  const char* text;
};
extern const std::vector<Meaning<ValueMistake>> kValueMistakes;
extern const std::vector<Meaning<GradientMistake>> kXMistakes, kWeightMistakes;

Numbers value(const Case& c, const Numbers& x, const Numbers& weight,
              ValueMistake mistake = ValueMistake::none);

struct Gradients {
  Numbers x, weight;
};
// Of sum(dy * y), by the formula.
Gradients gradients(const Case& c, const Numbers& x, const Numbers& dy,
                    GradientMistake mistake = GradientMistake::none);

// Of sum(dy * y(x, weight)), by central differences of fourth order.
using Program = std::function<Numbers(const Numbers& x, const Numbers& weight)>;
Gradients differences(const Case& c, const Program& y);

}  // namespace zl::exercises::rms_norm_checks
