// Whether the gradients are right, and if not, which mistake explains them.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tensor/error.h"
#include "tutorials/exercises/04_ddp/observed.h"

namespace zl::exercises::ddp {
namespace {

struct Element {
  int rank;
  size_t step, unit;
  int64_t i;
};
using Expected = std::function<double(const Element&)>;

// What backward added to this element in one micro-batch.
double added(const DdpCase& c, const Element& e, int rank, size_t m) {
  if (std::ranges::count(c.ready[e.step][m], e.unit) == 0) return 0;
  return double(c.gradient(rank, e.step, m, e.unit, e.i));
}

// Micro-batches before `first` are averaged (or summed) over ranks, and the others are local.
double mixture(const DdpCase& c, const Element& e, size_t first, bool mean) {
  double value = 0;
  for (size_t m = 0; m < c.ready[e.step].size(); ++m) {
    if (m >= first) {
      value += added(c, e, e.rank, m);
      continue;
    }
    for (int r = 0; r < c.ranks; ++r) value += added(c, e, r, m) / (mean ? c.ranks : 1);
  }
  return value;
}

// A sum over ranks after each micro-batch, in place, so that earlier ones are summed again.
double summed_again(const DdpCase& c, const Element& e) {
  double value = 0;
  for (size_t m = 0; m < c.ready[e.step].size(); ++m) {
    if (std::ranges::count(c.ready[e.step][m], e.unit) == 0) continue;
    value *= c.ranks;
    for (int r = 0; r < c.ranks; ++r) value += added(c, e, r, m);
  }
  return value;
}

class Values {
 public:
  Values(const DdpCase& c, const Record& record) : c_(c), record_(record) {}

  bool complete(size_t step) const {
    for (int r = 0; r < c_.ranks; ++r) {
      const auto found = record_.numbers.find(str("values ", r, " ", step));
      if (found == record_.numbers.end() || int64_t(found->second.size()) != c_.elements())
        return false;
    }
    return true;
  }
  // The first element that is not as expected, over all ranks, or those of one unit.
  std::optional<Element> first_difference(size_t step, const Expected& expected,
                                          std::optional<size_t> unit = {}) const {
    for (int rank = 0; rank < c_.ranks; ++rank)
      for (size_t u = 0; u < c_.sizes.size(); ++u)
        for (int64_t i = 0; i < c_.sizes[u] && (!unit || *unit == u); ++i) {
          const Element e{rank, step, u, i};
          const double want = expected(e), is = at(e);
          if (!(std::abs(is - want) <= 1e-5 * std::max(1.0, std::abs(want)))) return e;
        }
    return {};
  }
  bool all(size_t step, const Expected& expected) const {
    return !first_difference(step, expected);
  }
  double at(const Element& e) const {
    int64_t before = 0;
    for (size_t u = 0; u < e.unit; ++u) before += c_.sizes[u];
    return record_.numbers.at(str("values ", e.rank, " ", e.step))[size_t(before + e.i)];
  }

 private:
  const DdpCase& c_;
  const Record& record_;
};

std::string evidence(const DdpCase& c, const Values& values, const Element& e, double expected) {
  const double is = values.at(e);
  std::string text = str("step ", e.step + 1, ", rank ", e.rank, ": ", c.unit_name(e.unit),
                         " gradient, element ", e.i, " is ", is, ", expected ", expected);
  if (expected != 0 && is != 0) text += str(" (ratio ", is / expected, ")");
  return text;
}

// What it means that the units `wrong` have this rank's gradient on each rank.
std::string not_reduced(const DdpCase& c, size_t step, const std::vector<size_t>& wrong,
                        const std::vector<Reduced>& calls) {
  const auto started = [&](size_t u) {
    return std::ranges::any_of(calls, [&](const Reduced& call) {
      return call.step == step && call.unit == int64_t(u) && !call.waited;
    });
  };
  const auto ends = [&](const auto& units, size_t u) { return std::ranges::count(units, u) > 0; };
  const std::string which = str(": ", names(c, wrong));
  if (std::ranges::all_of(wrong, started))
    return "the all-reduce was started, but the update began before its Work was waited for" +
           which;
  const auto buckets = ddp_buckets(c, step, BucketRule::right);
  size_t used = 0;
  for (const DdpBucket& bucket : buckets) used += bucket.units.size();
  if (wrong.size() == used) return "no gradient was reduced: each rank has its local gradient";
  const auto& last_pass = c.ready[step].back();
  if (std::ranges::none_of(wrong, [&](size_t u) { return ends(last_pass, u); }))
    return "units that were ready in earlier micro-batches only are never reduced" + which;
  if (std::ranges::all_of(wrong, [&](size_t u) { return ends(buckets.back().units, u); }))
    return "the last bucket, which is not full, is never reduced" + which;
  return "some units are never reduced" + which;
}

std::string meaning_of_values(const DdpCase& c, const Values& values, size_t step,
                              const Expected& mean, const std::vector<Reduced>& calls) {
  const size_t passes = c.ready[step].size();
  const double n = c.ranks, a = double(passes);
  const auto times = [&](double factor) {
    return values.all(step, [&](const Element& e) { return factor * mean(e); });
  };
  const Expected first_only = [&](const Element& e) {
    double sum = 0;
    for (int r = 0; r < c.ranks; ++r) sum += added(c, e, r, 0);
    return sum / n;
  };
  if (times(n)) return str("every value is ", n, " x the mean: a sum over ranks, not a mean");
  if (c.ranks > 2 && times(n / 2)) return "every value is the sum / 2: right at 2 ranks only";
  if (times(1 / n)) return str("every value is the mean / ", n, ": divided by N twice");
  if (times(1 / a))
    return str("every value is the mean / ", a,
               ": divided by the number of micro-batches, which the optimizer does later");
  if (times(0)) return "every gradient is zero";
  if (passes > 1 && (values.all(step, [&](const Element& e) { return mixture(c, e, 1, true); }) ||
                     values.all(step, first_only)))
    return "only the first micro-batch is reduced; what later ones add is lost";
  if (values.all(step, [&](const Element& e) { return summed_again(c, e); }))
    return "a sum over ranks after every micro-batch: what is summed already is summed again";
  const Expected local = [&](const Element& e) { return mixture(c, e, 0, true); };
  std::vector<size_t> wrong;
  bool all_local = true;
  for (size_t u = 0; u < c.sizes.size(); ++u) {
    if (!values.first_difference(step, mean, u)) continue;
    wrong.push_back(u);
    all_local = all_local && !values.first_difference(step, local, u);
  }
  if (all_local) return not_reduced(c, step, wrong, calls);
  return "the gradient is not the mean over ranks: " + names(c, wrong);
}

}  // namespace

std::string names(const DdpCase& c, const std::vector<size_t>& units) {
  std::string text;
  for (const size_t u : units) text += (text.empty() ? "" : ", ") + c.unit_name(u);
  return text.empty() ? "none" : text;
}

Failure judge_values(const DdpCase& c, const Record& record, const std::vector<Reduced>& calls) {
  const Values values(c, record);
  const Expected mean = [&](const Element& e) { return mixture(c, e, SIZE_MAX, true); };
  for (size_t step = 0; step < c.ready.size(); ++step) {
    if (!values.complete(step)) return failed("the check recorded no gradients");
    const auto difference = values.first_difference(step, mean);
    if (!difference) continue;
    const std::string before =
        step == 0 ? ""
                  : "right in the first step, wrong in the second: is the state of a step "
                    "cleared? ";
    return failed(before + meaning_of_values(c, values, step, mean, calls),
                  evidence(c, values, *difference, mean(*difference)));
  }
  return {};
}

}  // namespace zl::exercises::ddp
