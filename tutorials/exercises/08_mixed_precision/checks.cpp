#include <algorithm>
#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/08_mixed_precision/observed.h"

namespace zl::exercises {
namespace precision {

const std::vector<double>& Observed::all(int rank, const std::string& name) const {
  static const std::vector<double> none;
  const auto found = record_.numbers.find(str(rank, " ", name));
  return found == record_.numbers.end() ? none : found->second;
}

const std::vector<double>& Observed::all(int rank, const char* name, size_t step) const {
  return all(rank, str(name, " ", step));
}

std::optional<double> Observed::of_step(int rank, const char* name, size_t step) const {
  const std::vector<double>& values = all(rank, name);
  return step < values.size() ? std::optional(values[step]) : std::nullopt;
}

bool near(double is, double expected, double relative) {
  return std::abs(is - expected) <= relative * std::abs(expected);
}

namespace {

double in_f16(double x) { return double(float(f16(float(x)))); }

std::string at(size_t step, int rank) { return str("step ", step + 1, ", rank ", rank, ": "); }

// The parameters are the rounding of the master weights.
Failure judge_parameters(const PrecisionCase& c, const Observed& seen, size_t step) {
  for (int rank = 0; rank < c.ranks; ++rank) {
    const auto &master = seen.all(rank, "master", step), &f16s = seen.all(rank, "parameters", step);
    for (size_t i = 0; i < master.size() && i < f16s.size(); ++i)
      if (f16s[i] != in_f16(master[i]))
        return failed(step == 0 ? "the parameters do not begin as the rounded master weights"
                                : "the parameters are not the rounded master weights after a step",
                      str(step == 0 ? str("rank ", rank, ": ") : at(step - 1, rank), "parameter ",
                          i, " is ", f16s[i], "; the master weight is ", master[i]));
  }
  return {};
}

bool all_rounded(const std::vector<double>& master) {
  return std::ranges::all_of(master, [](double x) { return x == in_f16(x); });
}

// The master weights before step `step`, beside SGD from the initial values.
Failure judge_master(const PrecisionCase& c, const Observed& seen, size_t step,
                     const std::vector<std::vector<float>>& expected) {
  for (int rank = 0; rank < c.ranks; ++rank) {
    const std::vector<double>& is = seen.all(rank, "master", step);
    const std::vector<float>& right = expected[size_t(rank)];
    if (is.size() != right.size())
      return failed("master() has another size than the shard",
                    str(is.size(), " elements, not ", right.size()));
    for (size_t i = 0; i < is.size(); ++i) {
      if (std::abs(is[i] - double(right[i])) <= 2e-6) continue;
      const std::string details =
          str(step == 0 ? str("rank ", rank, ": ") : at(step - 1, rank), "master weight ", i,
              " is ", is[i], ", expected ", right[i], "; initially ", c.initial(rank, int64_t(i)));
      if (c.numbers != PrecisionCase::Numbers::exact && all_rounded(is))
        return failed("the master weights are rounded to f16: what f16 cannot hold is lost",
                      details);
      if (step > 0 && is == seen.all(rank, "master", step - 1))
        return failed("the master weights do not change in a step", details);
      return failed("the master weights are wrong", details);
    }
  }
  return {};
}

struct Skips {
  std::vector<int> skipped, updated;  // ranks
};
Skips skips(const PrecisionCase& c, const Observed& seen, size_t step) {
  Skips skips;
  for (int rank = 0; rank < c.ranks; ++rank)
    (seen.of_step(rank, "calls", step).value_or(0) == 0 ? skips.skipped : skips.updated)
        .push_back(rank);
  return skips;
}

std::string overflow_text(const PrecisionCase& c, size_t step) {
  for (const Overflow& o : c.overflows)
    if (o.step == step)
      return str("step ", step + 1, ": element ", o.element, " of rank ", o.rank, "'s gradient is ",
                 o.value);
  return "";
}

bool zeros(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return x == 0; });
}

Failure judge_overflow(const PrecisionCase& c, const Observed& seen, size_t step) {
  const std::string details = overflow_text(c, step);
  const Skips ranks = skips(c, seen, step);
  if (!ranks.updated.empty()) {
    const int rank = ranks.updated[0];
    if (seen.of_step(rank, "skipped", step) == 1)
      return failed(zeros(seen.all(rank, "gradient", step))
                        ? "a skipped step calls the optimizer with zeros: its moments and its "
                          "number of steps advance"
                        : "a skipped step calls the optimizer",
                    details);
    if (!ranks.skipped.empty())
      return failed("the ranks do not agree: some skip the step and others update",
                    str(details, "; ", ranks.updated.size(), " of ", c.ranks, " ranks update"));
    const auto first = std::ranges::find(c.overflows, step, &Overflow::step);
    const char* what = std::isnan(first->value) ? "a NaN" : first->value > 0 ? "inf" : "-inf";
    return failed(str(what, " in the gradient is not noticed: the step is not skipped"), details);
  }
  for (int rank = 0; rank < c.ranks; ++rank) {
    if (seen.of_step(rank, "skipped", step) != 1)
      return failed("step() returns skipped = false for a step that it skipped", details);
    const double norm = seen.of_step(rank, "norm", step).value_or(0);
    if (std::isfinite(norm))
      return failed("the norm of a gradient that is not finite is finite",
                    str(details, "; ", norm));
    for (const char* name : {"master", "parameters"})
      if (seen.all(rank, name, step) != seen.all(rank, name, step + 1))
        return failed(str("the ", name[0] == 'm' ? "master weights" : "parameters",
                          " change in a skipped step"),
                      str(details, "; on rank ", rank));
  }
  return {};
}

Failure judge_good_step(const PrecisionCase& c, const Observed& seen, size_t step, double scale) {
  const Skips ranks = skips(c, seen, step);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const double calls = seen.of_step(rank, "calls", step).value_or(0);
    const bool skipped = seen.of_step(rank, "skipped", step).value_or(1) == 1;
    if (calls == 0)
      return failed(step == 0 || !c.overflow(step - 1)
                        ? "a step is skipped although every gradient is finite"
                        : "the step after an overflow is skipped although every gradient is finite",
                    at(step, rank) + "no call of the optimizer");
    if (calls > 1)
      return failed("the optimizer is called more than once in a step", str(at(step, rank), calls));
    if (skipped)
      return failed("step() returns skipped = true for a step that it made", at(step, rank));
  }
  return judge_gradient(c, seen, step, scale);
}

void update(const PrecisionCase& c, const Observed& seen, size_t step,
            std::vector<std::vector<float>>& master) {
  for (size_t rank = 0; rank < master.size(); ++rank) {
    const std::vector<double>& gradient = seen.all(int(rank), "gradient", step);  // was judged
    for (size_t i = 0; i < master[rank].size(); ++i)
      master[rank][i] -= c.rate() * float(gradient[i]);
  }
}

Failure judge_steps(const PrecisionCase& c, const Observed& seen) {
  const std::vector<double> scales = right_scales(c);
  std::vector<std::vector<float>> master;
  for (int rank = 0; rank < c.ranks; ++rank)
    for (int64_t i = 0; i < c.n; ++i) {
      if (i == 0) master.emplace_back();
      master.back().push_back(c.initial(rank, i));
    }
  for (size_t step = 0;; ++step) {
    if (auto failure = judge_master(c, seen, step, master)) return failure;
    if (auto failure = judge_parameters(c, seen, step)) return failure;
    if (auto failure = judge_scale(c, seen, step)) return failure;
    if (step == c.steps) return {};
    if (c.overflow(step)) {
      if (auto failure = judge_overflow(c, seen, step)) return failure;
    } else {
      if (auto failure = judge_good_step(c, seen, step, scales[step])) return failure;
      update(c, seen, step, master);
    }
  }
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const PrecisionCase c = precision_case(check.name, options.seed);
  const auto error = record.texts.find("communication");
  Failure failure = judge_steps(c, Observed(record));
  if (error != record.texts.end())
    failure = failed(
        "the ranks do not make the same calls: all must take part in each step, also "
        "those without an overflow",
        error->second);
  if (failure) return *failure;
  Verdict passed;
  passed.passed = true;
  return passed;
}

}  // namespace
}  // namespace precision

Exercise exercise_08() {
  Exercise exercise;
  exercise.number = 8;
  exercise.name = "08_mixed_precision";
  exercise.title = "Mixed precision with dynamic loss scaling";
  const auto add = [&](const char* name, const char* group, int points) {
    Check& check = exercise.checks.emplace_back();
    check.name = name;
    check.group = group;
    check.points = points;
  };
  add("one rank", "one rank", 10);
  add("tiny updates", "precision", 10);
  add("small gradients", "precision", 10);
  add("norm and clipping", "clipping", 15);
  add("overflow", "overflow", 15);
  add("not a number", "overflow", 10);
  add("overflow on one rank", "overflow", 10);
  add("scale", "scale", 10);
  add("smallest scale", "scale", 10);
  exercise.headers = {"tutorials/exercises/08_mixed_precision/mixed_precision.h",
                      "optim/clip.h",
                      "stages/numerics/rank_numbers.h",
                      "dist/communicator.h",
                      "tensor/dtype.h",
                      "tensor/tensor.h"};
  exercise.functions = {"zl::sum_over_ranks(", "zl::Communicator::", "zl::Tensor::"};
  exercise.defines = {"zl::make_mixed_precision("};
  exercise.judge = precision::judge;
  return exercise;
}

}  // namespace zl::exercises
