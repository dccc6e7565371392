#include <cmath>

#include "tutorials/exercises/01_rms_norm/formulas.h"

namespace zl::exercises::rms_norm_checks {

const std::vector<Meaning<ValueMistake>> kValueMistakes = {
    {ValueMistake::sum, "rms is the root of the sum of the squares: it must be that of their mean"},
    {ValueMistake::no_root, "x is divided by the mean of the squares: its square root is missing"},
    {ValueMistake::eps_outside, "eps is added to the root: it belongs under it, to the mean"},
    {ValueMistake::no_eps, "eps is missing: it matters where a row is small"},
    {ValueMistake::no_weight, "the values are not multiplied by weight"},
    {ValueMistake::centred, "this is a layer norm: RMSNorm does not subtract the mean"},
    {ValueMistake::one_rms, "all rows share one rms: each row has its own"},
    {ValueMistake::first_row, "every row is divided by the rms of the first row"},
    {ValueMistake::times_rms, "x is multiplied by rms: it must be divided"},
    {ValueMistake::standard_deviation,
     "x is divided by its standard deviation: rms does not subtract the mean either"}};

const std::vector<Meaning<GradientMistake>> kXMistakes = {
    {GradientMistake::constant_rms,
     "the gradient of x treats rms as a constant: rms depends on every x of the row, which gives a "
     "second term"},
    {GradientMistake::sum,
     "the second term of the gradient of x is a sum over the row: it must be a mean, because rms "
     "is "
     "the root of a mean"},
    {GradientMistake::sign,
     "the second term of the gradient of x has the wrong sign: a larger x makes rms larger and "
     "every y smaller"},
    {GradientMistake::no_weight_in_mean,
     "the second term of the gradient of x lacks weight: the mean is over dy * weight * x"},
    {GradientMistake::no_weight,
     "the gradient of x lacks weight: what reaches x / rms(x) is dy * weight"},
    {GradientMistake::square,
     "the second term of the gradient of x has 1/rms^2: the derivative of 1/rms gives 1/rms^3"},
    {GradientMistake::no_x,
     "the second term of the gradient of x lacks the factor x: the derivative of x^2 is 2 x"}};

const std::vector<Meaning<GradientMistake>> kWeightMistakes = {
    {GradientMistake::last_row,
     "the gradient of weight is that of the last row alone: each row overwrites the one before; "
     "the rows must be added"},
    {GradientMistake::first_row,
     "the gradient of weight is that of the first row alone: add those of all rows"},
    {GradientMistake::not_normalised,
     "the gradient of weight is the sum of dy * x: weight multiplies x / rms(x), not x"},
    {GradientMistake::mean_of_rows,
     "the gradient of weight is a mean over the rows: it must be their sum"}};

namespace {

double mean_square(const Numbers& x, size_t begin, size_t n, double centre = 0) {
  double sum = 0;
  for (size_t i = begin; i < begin + n; ++i) sum += (x[i] - centre) * (x[i] - centre);
  return sum / double(n);
}

double mean(const Numbers& x, size_t begin, size_t n) {
  double sum = 0;
  for (size_t i = begin; i < begin + n; ++i) sum += x[i];
  return sum / double(n);
}

// What x of the row that begins at `begin` is divided by.
double divisor(const Case& c, const Numbers& x, size_t begin, ValueMistake mistake) {
  const size_t C = size_t(c.C());
  const double centre = mean(x, begin, C), square = mean_square(x, begin, C);
  switch (mistake) {
    case ValueMistake::sum: return std::sqrt(square * double(C) + c.eps);
    case ValueMistake::no_root: return square + c.eps;
    case ValueMistake::eps_outside: return std::sqrt(square) + c.eps;
    case ValueMistake::no_eps: return std::sqrt(square);
    case ValueMistake::centred:
    case ValueMistake::standard_deviation:
      return std::sqrt(mean_square(x, begin, C, centre) + c.eps);
    case ValueMistake::one_rms: return std::sqrt(mean_square(x, 0, x.size()) + c.eps);
    case ValueMistake::first_row: return std::sqrt(mean_square(x, 0, C) + c.eps);
    case ValueMistake::times_rms: return 1 / std::sqrt(square + c.eps);
    default: return std::sqrt(square + c.eps);
  }
}

// The factor of x in the second term of the gradient of x.
double second_term(const Case& c, double r, double sum, double plain_sum, GradientMistake mistake) {
  const double C = double(c.C());
  switch (mistake) {
    case GradientMistake::constant_rms: return 0;
    case GradientMistake::sum: return -r * r * r * sum;
    case GradientMistake::sign: return r * r * r * sum / C;
    case GradientMistake::no_weight_in_mean:
    case GradientMistake::no_weight: return -r * r * r * plain_sum / C;
    case GradientMistake::square: return -r * r * sum / C;
    default: return -r * r * r * sum / C;
  }
}

}  // namespace

Numbers value(const Case& c, const Numbers& x, const Numbers& weight, ValueMistake mistake) {
  const size_t C = size_t(c.C());
  Numbers y;
  for (size_t begin = 0; begin < x.size(); begin += C) {
    const double by = divisor(c, x, begin, mistake),
                 centre = mistake == ValueMistake::centred ? mean(x, begin, C) : 0;
    for (size_t k = 0; k < C; ++k)
      y.push_back((x[begin + k] - centre) / by *
                  (mistake == ValueMistake::no_weight ? 1 : weight[k]));
  }
  return y;
}

Gradients gradients(const Case& c, const Numbers& x, const Numbers& dy, GradientMistake mistake) {
  const size_t C = size_t(c.C());
  const auto is = [&](GradientMistake other) { return mistake == other; };
  Gradients result{.x = {}, .weight = Numbers(C, 0)};
  for (size_t begin = 0; begin < x.size(); begin += C) {
    const double r = 1 / divisor(c, x, begin, ValueMistake::none);
    double sum = 0, plain_sum = 0;
    for (size_t k = 0; k < C; ++k) {
      sum += dy[begin + k] * c.weight[k] * x[begin + k];
      plain_sum += dy[begin + k] * x[begin + k];
    }
    const double second = second_term(c, r, sum, plain_sum, mistake);
    const bool counts = is(GradientMistake::last_row)    ? begin + C == x.size()
                        : is(GradientMistake::first_row) ? begin == 0
                                                         : true;
    for (size_t k = 0; k < C; ++k) {
      const double w = is(GradientMistake::no_weight) ? 1 : c.weight[k];
      result.x.push_back(r * dy[begin + k] * w +
                         (is(GradientMistake::no_x) ? 1 : x[begin + k]) * second);
      const double part =
          dy[begin + k] * x[begin + k] * (is(GradientMistake::not_normalised) ? 1 : r);
      if (counts)
        result.weight[k] += part / (is(GradientMistake::mean_of_rows) ? double(c.rows()) : 1);
    }
  }
  return result;
}

Gradients differences(const Case& c, const Program& y) {
  Gradients at{.x = c.x, .weight = c.weight};
  const auto loss = [&] {
    const Numbers values = y(at.x, at.weight);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += c.dy[i] * values[i];
    return sum;
  };
  const auto derivative = [&](double& of) {
    const double before = of, step = 1e-4;
    const auto beside = [&](double steps) {
      of = before + steps * step;
      const double value = loss();
      of = before;
      return value;
    };
    return (8 * (beside(1) - beside(-1)) - (beside(2) - beside(-2))) / (12 * step);
  };
  Gradients result;
  for (double& x : at.x) result.x.push_back(derivative(x));
  for (double& w : at.weight) result.weight.push_back(derivative(w));
  return result;
}

}  // namespace zl::exercises::rms_norm_checks
