#include <algorithm>
#include <cmath>
#include <functional>

#include "tensor/error.h"
#include "tutorials/exercises/03_ring_all_reduce/shares.h"

namespace zl::exercises::ring_checks {
namespace {

constexpr double kRoundoff = 0x1p-24;  // of f32

// Solves A x = b in place by elimination with pivots; empty if A is singular.
Numbers solved(std::vector<Numbers> A, Numbers b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k; i < n; ++i)
      if (std::abs(A[i][k]) > std::abs(A[pivot][k])) pivot = i;
    if (std::abs(A[pivot][k]) < 1e-9) return {};
    std::swap(A[k], A[pivot]);
    std::swap(b[k], b[pivot]);
    for (size_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = A[i][k] / A[k][k];
      for (size_t j = k; j < n; ++j) A[i][j] -= factor * A[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = 0; k < n; ++k) b[k] /= A[k][k];
  return b;
}

bool is(double a, double b) { return std::abs(a - b) < 1e-3; }

bool all_are(const Shares& shares, double value) {
  return !shares.empty() && std::ranges::all_of(shares, [&](double a) { return is(a, value); });
}

double total(const Shares& shares) {
  double sum = 0;
  for (const double a : shares) sum += a;
  return sum;
}

}  // namespace

Results::Results(const Case& c, size_t call, std::vector<Numbers> of_rank)
    : case_(c), call_(call), of_rank_(std::move(of_rank)) {
  for (int64_t i = 0; i < c.n(call); ++i) {
    sums_.push_back(0);
    sizes_.push_back(0);
    for (int r = 0; r < c.ranks; ++r) {
      sums_.back() += input(r, i);
      sizes_.back() += std::abs(input(r, i));
    }
  }
}

// N - 1 additions, each rounded: Higham 2002, section 4.2. Sums of integers are exact, and the
// bound is less than 1 for them.
bool Results::right(int rank, size_t i) const {
  return std::abs(of(rank)[i] - sums_[i]) <= ranks() * kRoundoff * sizes_[i];
}

std::vector<size_t> Results::wrong(int rank) const {
  std::vector<size_t> which;
  for (size_t i = 0; i < sums_.size(); ++i)
    if (!right(rank, i)) which.push_back(i);
  return which;
}

bool Results::all_right(int rank) const { return wrong(rank).empty(); }

std::vector<Shares> Results::shares(int rank) const {
  std::vector<Shares> all;
  for (int chunk = 0; chunk < ranks(); ++chunk) all.push_back(shares_of(rank, chunk));
  return all;
}

// Least squares over the elements of the chunk; there must be more of them than ranks.
Shares Results::shares_of(int rank, int chunk) const {
  const int64_t first = begin(chunk) + 1, last = begin(chunk + 1) - 1;
  const size_t N = size_t(ranks());
  if (last - first <= int64_t(N)) return {};
  std::vector<Numbers> A(N, Numbers(N, 0));
  Numbers b(N, 0);
  for (int64_t i = first; i < last; ++i) {
    for (size_t s = 0; s < N; ++s) {
      b[s] += input(int(s), i) * of(rank)[size_t(i)];
      for (size_t t = 0; t < N; ++t) A[s][t] += input(int(s), i) * input(int(t), i);
    }
  }
  Shares shares = solved(A, b);
  if (shares.empty()) return {};
  for (int64_t i = first; i < last; ++i) {
    double sum = 0;
    for (size_t s = 0; s < N; ++s) sum += shares[s] * input(int(s), i);
    const double off = std::abs(sum - of(rank)[size_t(i)]);
    if (!(off <= 1e-3 * (1 + sizes_[size_t(i)]))) return {};
  }
  for (double& a : shares) {
    const double times_n = std::round(a * double(N));
    if (!is(a * double(N), times_n)) return {};
    a = times_n == 0 ? 0 : times_n / double(N);
  }
  return shares;
}

namespace {

using OfRanks = std::vector<std::vector<Shares>>;  // by rank and chunk

bool every(const OfRanks& of_ranks, const std::function<bool(int, int, const Shares&)>& holds) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    for (size_t c = 0; c < of_ranks[r].size(); ++c)
      if (of_ranks[r][c].empty() || !holds(int(r), int(c), of_ranks[r][c])) return false;
  return true;
}

bool is_own(int rank, const Shares& shares) {
  for (size_t s = 0; s < shares.size(); ++s)
    if (!is(shares[s], int(s) == rank ? 1 : 0)) return false;
  return true;
}

// Each rank has the sum in one chunk, its own values at least in the others.
bool only_reduce_scatter(const OfRanks& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    const auto right =
        std::ranges::count_if(of_ranks[r], [](const Shares& s) { return all_are(s, 1); });
    if (right != 1) return false;
    for (const Shares& shares : of_ranks[r])
      if (shares.empty() || !is(shares[r], 1)) return false;
  }
  return true;
}

std::string more_than_once(const OfRanks& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    for (const Shares& shares : of_ranks[r])
      for (size_t s = 0; s < shares.size(); ++s)
        if (shares[s] > 1.5)
          return str("values are counted more than once: the result of rank ", r,
                     " has those of rank ", s, " ", shares[s],
                     " times; in the second half what arrives must replace a chunk, not be added");
  return "";
}

std::string some_missing(const OfRanks& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    for (size_t c = 0; c < of_ranks[r].size(); ++c)
      for (size_t s = 0; s < of_ranks[r][c].size(); ++s)
        if (is(of_ranks[r][c][s], 0))
          return str("values are missing: those of rank ", s, " are not in chunk ", c, " of rank ",
                     r,
                     "; a chunk was sent on before they were added to it, or another chunk than "
                     "the one that was just reduced");
  return "";
}

std::string by_shares(const Results& results) {
  OfRanks of_ranks;
  for (int r = 0; r < results.ranks(); ++r) of_ranks.push_back(results.shares(r));
  const double N = results.ranks();
  const auto holds = [&](const auto& what) { return every(of_ranks, what); };
  if (holds([&](int, int, const Shares& s) { return all_are(s, 1 / N); }))
    return str("every value is 1/", N, " of the sum: a mean, not a sum");
  if (holds([](int r, int, const Shares& s) { return is_own(r, s); }))
    return "every rank still has the values that it began with";
  if (only_reduce_scatter(of_ranks))
    return "each rank has the sum in one chunk only: the second half, which sends the sums around, "
           "is missing or does not store what arrives";
  if (holds([](int, int, const Shares& s) { return is(total(s), 1); }))
    return "every chunk holds the values of one rank: what arrives in the first half must be added "
           "to the chunk, and each step must send the chunk that the step before has changed";
  const std::string twice = more_than_once(of_ranks);
  return twice.empty() ? some_missing(of_ranks) : twice;
}

// Only the elements after the last whole multiple of N.
bool only_the_rest(const Results& results) {
  const int64_t whole = results.n() / results.ranks() * results.ranks();
  for (int r = 0; r < results.ranks(); ++r)
    for (const size_t i : results.wrong(r))
      if (int64_t(i) < whole) return false;
  return whole < results.n();
}

std::vector<int> right_ranks(const Results& results) {
  std::vector<int> ranks;
  for (int r = 0; r < results.ranks(); ++r)
    if (results.all_right(r)) ranks.push_back(r);
  return ranks;
}

}  // namespace

std::string meaning(const Results& results) {
  for (int r = 0; r < results.ranks(); ++r)
    if (std::ranges::any_of(results.of(r), [](double x) { return std::isnan(x); }))
      return "a result has NaN: scratch holds NaN at first, so a part of it was used before "
             "anything "
             "was received into it";
  if (only_the_rest(results))
    return str("only what follows the first ", results.n() / results.ranks() * results.ranks(),
               " elements is wrong: n / N is rounded down, and what is left over is in no chunk");
  const std::vector<int> right = right_ranks(results);
  if (right.size() == 1)
    return str("only rank ", right[0], " has the sum; every rank must have it at the end");
  const std::string found = by_shares(results);
  if (!found.empty()) return found;
  return right.empty()
             ? "the result is not the sum over all ranks"
             : str(right.size(), " of ", results.ranks(), " ranks have the sum, the others do not");
}

std::string evidence(const Results& results) {
  int rank = 0;
  while (results.all_right(rank)) ++rank;
  const std::vector<size_t> wrong = results.wrong(rank);
  const size_t i = wrong.front();
  int chunk = 0;
  while (results.begin(chunk + 1) <= int64_t(i)) ++chunk;
  std::string text =
      str("rank ", rank, ", element ", i, " of ", results.n(), " (chunk ", chunk, " of ",
          results.ranks(), ") is ", results.of(rank)[i], ", the sum is ", results.sum(i));
  if (results.sum(i) != 0) text += str(" (ratio ", results.of(rank)[i] / results.sum(i), ")");
  text += str("; wrong elements of this rank: ", wrong.size());
  const Shares shares = results.shares(rank)[size_t(chunk)];
  if (shares.empty()) return text;
  text += str("\nchunk ", chunk, " of rank ", rank, " is");
  for (size_t s = 0; s < shares.size(); ++s) text += str(s ? " + " : " ", shares[s], " x rank ", s);
  return text;
}

}  // namespace zl::exercises::ring_checks
