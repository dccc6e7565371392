// What the ranks did in a check of exercise 08, and parts of its judgement.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutorials/exercises/08_mixed_precision/precision_case.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises::precision {

using Failure = std::optional<Verdict>;  // empty: nothing is wrong

inline Verdict failed(std::string meaning, std::string details = "") {
  Verdict verdict;
  verdict.meaning = std::move(meaning);
  verdict.details = std::move(details);
  return verdict;
}

// The record by rank. What was not recorded is empty.
class Observed {
 public:
  explicit Observed(const Record& record) : record_(record) {}
  const std::vector<double>& all(int rank, const std::string& name) const;
  const std::vector<double>& all(int rank, const char* name, size_t step) const;
  // Number `step` of those that each step appends.
  std::optional<double> of_step(int rank, const char* name, size_t step) const;

 private:
  const Record& record_;
};

bool near(double is, double expected, double relative);

// By this rule after each step: the scale of steps 0, 1, …
std::vector<double> right_scales(const PrecisionCase& c);
// The scale that each rank reports before step `step`.
Failure judge_scale(const PrecisionCase& c, const Observed& seen, size_t step);
// The gradients that the optimizers got in a step without overflow, and the norm.
Failure judge_gradient(const PrecisionCase& c, const Observed& seen, size_t step, double scale);

}  // namespace zl::exercises::precision
