// What a rank did in a check of exercise 04, and the judgement of its gradients.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutorials/exercises/04_ddp/ddp_case.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises::ddp {

using Failure = std::optional<Verdict>;  // empty: nothing is wrong

inline Verdict failed(std::string meaning, std::string details = "") {
  Verdict verdict;
  verdict.meaning = std::move(meaning);
  verdict.details = std::move(details);
  return verdict;
}

// An all-reduce that a rank made.
struct Reduced {
  size_t step = 0;
  int64_t unit = 0, count = 0;
  DdpEvent at;          // what the reducer was called for
  int64_t group = -1;   // number of its group, or -1: outside
  bool waited = false;  // before the update
  DdpEvent waited_at;   // what the reducer was called for then
};

// Whether all gradients are means. `calls` of rank 0 tell mistakes apart.
Failure judge_values(const DdpCase& c, const Record& record, const std::vector<Reduced>& calls);

std::string names(const DdpCase& c, const std::vector<size_t>& units);

}  // namespace zl::exercises::ddp
