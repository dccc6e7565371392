// What a wrong result of exercise 03 is made of: how often each rank's values are in each chunk.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/03_ring_all_reduce/ring_case.h"

namespace zl::exercises::ring_checks {

using Numbers = std::vector<double>;

// Factor a_s of each rank s: the chunk is the sum of a_s x the values of rank s. Empty if it is no
// such sum with whole factors, or with multiples of 1/N.
using Shares = Numbers;

// The results of one call, by rank and element.
class Results {
 public:
  Results(const Case& c, size_t call, std::vector<Numbers> of_rank);

  const Case& layout() const { return case_; }
  int ranks() const { return case_.ranks; }
  int64_t n() const { return int64_t(sums_.size()); }
  const Numbers& of(int rank) const { return of_rank_[size_t(rank)]; }
  double sum(size_t i) const { return sums_[i]; }         // over ranks, in double
  double magnitude(size_t i) const { return sizes_[i]; }  // the sum of the absolute values
  bool right(int rank, size_t i) const;
  bool all_right(int rank) const;
  std::vector<size_t> wrong(int rank) const;

  int64_t begin(int chunk) const { return n() * chunk / ranks(); }
  // By chunk. The first and the last element of each are left out, so that another way to round the
  // sizes of chunks does not matter.
  std::vector<Shares> shares(int rank) const;

 private:
  Shares shares_of(int rank, int chunk) const;
  double input(int rank, int64_t i) const { return case_.values[call_][size_t(rank)][size_t(i)]; }

  const Case& case_;
  size_t call_;
  std::vector<Numbers> of_rank_;
  Numbers sums_, sizes_;
};

// Why the results are wrong, in one sentence, and the numbers that show it. Only if one is wrong.
std::string meaning(const Results& results);
std::string evidence(const Results& results);

}  // namespace zl::exercises::ring_checks
