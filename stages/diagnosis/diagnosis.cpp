#include "stages/diagnosis/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>

namespace zl {
namespace {

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// 2-norms in double.
double norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double(v) * double(v);
  return std::sqrt(sum);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double(a[i]) - double(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

bool near(const FlatValues& a, const FlatValues& b, double tolerance) {
  return a.size() == b.size() && distance(a, b) <= tolerance * norm(b);
}

// What values that are not finite mean; "" if all are finite.
std::string meaning_of_infinite(const char* what, const std::vector<FlatValues>& all) {
  const auto any = [&](auto is) {
    return std::ranges::any_of(
        all, [&](const FlatValues& values) { return std::ranges::any_of(values, is); });
  };
  if (any([](float v) { return std::isnan(v); }))
    return str(what, " NaN: memory is used that was never written, or was freed");
  if (any([](float v) { return std::isinf(v); }))
    return str(what, " infinite values: a division by 0, or a factor that is too large");
  return "";
}

FlatValues scaled(FlatValues values, double factor) {
  for (float& v : values) v = float(v * factor);
  return values;
}

void add(FlatValues& to, const FlatValues& values, double factor = 1) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = float(to[i] + factor * values[i]);
}

FlatValues mean_over_ranks(const std::vector<FlatValues>& of_ranks) {
  FlatValues mean(of_ranks[0].size(), 0.0f);
  for (const FlatValues& rank : of_ranks) add(mean, rank, 1.0 / double(of_ranks.size()));
  return mean;
}

// A mistake, and the full gradient that a rank would have with it.
struct Mistake {
  std::string meaning;
  std::function<FlatValues(int rank)> gradient;
};

class Mistakes {
 public:
  explicit Mistakes(const GradientCase& c) : c_(c), N_(c.layout.ranks()), A_(int(c.alone.size())) {
    for (const auto& of_ranks : c.alone) means_.push_back(mean_over_ranks(of_ranks));
    right_ = means_[0];
    for (int a = 1; a < A_; ++a) add(right_, means_[size_t(a)]);
  }

  const FlatValues& right() const { return right_; }

  // The gradient of this rank's own data, summed over micro-batches.
  FlatValues own_sum(int rank) const {
    FlatValues sum = c_.alone[0][size_t(rank)];
    for (int a = 1; a < A_; ++a) add(sum, c_.alone[size_t(a)][size_t(rank)]);
    return sum;
  }

  std::vector<Mistake> all() const {
    std::vector<Mistake> list;
    factors(list);
    unreduced(list);
    if (A_ > 1) accumulation(list);
    return list;
  }

 private:
  void factors(std::vector<Mistake>& list) const {
    const auto times = [&](double factor, const std::string& meaning) {
      list.push_back({meaning, [this, factor](int) { return scaled(right_, factor); }});
    };
    if (N_ > 1) {
      times(N_, number("every gradient is %.2f x ddp's: a sum over ranks, not a mean", N_));
      times(1.0 / N_, str("every gradient is 1/", N_, " of ddp's: it is divided by the number of ",
                          "ranks twice"));
    }
    times(0, "every gradient is zero: nothing was reduced, or the result was not kept");
    if (A_ > 1 && A_ != N_)
      times(1.0 / A_, str("every gradient is 1/", A_, " of ddp's: the update already divides by ",
                          "the number of micro-batches"));
    times(2, "every gradient is 2.00 x ddp's: it was added twice");
  }

  void unreduced(std::vector<Mistake>& list) const {
    if (N_ == 1) return;
    list.push_back({"each rank has the gradient of its local data only: it was never reduced",
                    [this](int rank) { return own_sum(rank); }});
    list.push_back({"each rank has 1/N of its local gradient: no other rank's was added",
                    [this](int rank) { return scaled(own_sum(rank), 1.0 / N_); }});
    list.push_back({"every rank has the gradient of rank 0's data: a broadcast, not a reduction",
                    [this](int) { return own_sum(0); }});
  }

  void accumulation(std::vector<Mistake>& list) const {
    list.push_back(
        {"only the last micro-batch's gradient is there: the others were overwritten, "
         "copied instead of accumulated",
         [this](int) { return means_.back(); }});
    list.push_back(
        {"only the first micro-batch's gradient is there", [this](int) { return means_.front(); }});
    list.push_back(
        {"grows with each micro-batch: the full gradient is not freed or cleared after "
         "it was reduced, so the next reduction adds it again",
         [this](int) {
           FlatValues sum(right_.size(), 0.0f);
           for (int a = 0; a < A_; ++a) add(sum, means_[size_t(a)], A_ - a);
           return sum;
         }});
    list.push_back(
        {"the full gradient is reduced after every micro-batch, and what was reduced "
         "before is reduced again",
         [this](int rank) { return reduced_in_place(rank, 1); }});
    list.push_back({"what was reduced before is reduced again after every micro-batch, as a sum",
                    [this](int rank) { return reduced_in_place(rank, N_); }});
    list.push_back(
        {"reduced with the last micro-batch only: the gradients of this rank's earlier "
         "micro-batches were never reduced",
         [this](int rank) {
           FlatValues sum = means_.back();
           for (int a = 0; a + 1 < A_; ++a) add(sum, c_.alone[size_t(a)][size_t(rank)]);
           return sum;
         }});
  }

  // Own shard: the result of the last reduction; the others keep adding their own gradients.
  FlatValues reduced_in_place(int rank, double factor) const {
    FlatValues mine(right_.size(), 0.0f), others = mine;
    for (int a = 0; a < A_; ++a) {
      add(mine, c_.alone[size_t(a)][size_t(rank)]);
      for (int r = 0; r < N_; ++r)
        if (r != rank) add(others, c_.alone[size_t(a)][size_t(r)]);
      FlatValues sum = others;
      add(sum, mine);
      mine = scaled(sum, factor / N_);
    }
    return mine;
  }

  const GradientCase& c_;
  int N_, A_;
  std::vector<FlatValues> means_;  // over ranks, of each micro-batch
  FlatValues right_;
};

// The elements of some units in the shards of all ranks, one after another.
FlatValues chosen(const FlatLayout& layout, const std::vector<FlatValues>& shards,
                  const std::vector<size_t>& units) {
  FlatValues values;
  for (const FlatValues& of_rank : shards) {
    int64_t begin = 0;
    for (size_t u = 0; u < layout.units().size(); ++u) {
      const int64_t n = layout.units()[u].size / layout.ranks();
      if (std::ranges::find(units, u) != units.end())
        values.insert(values.end(), of_rank.begin() + begin, of_rank.begin() + begin + n);
      begin += n;
    }
  }
  return values;
}

std::vector<FlatValues> shards_with(const FlatLayout& layout, const Mistake& mistake) {
  std::vector<FlatValues> shards;
  for (int r = 0; r < layout.ranks(); ++r) shards.push_back(layout.shards(mistake.gradient(r), r));
  return shards;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::string list(const std::vector<int>& numbers) {
  std::vector<std::string> names;
  for (const int n : numbers) names.push_back(str(n));
  return list(names);
}

// Which ranks are right, and whose shard the others take: outside its own shard, a rank has its own
// gradients after a reduce-scatter, and the mean after an all-reduce.
std::string shards_taken(const GradientCase& c, const Mistakes& mistakes,
                         const std::vector<FlatValues>& shards) {
  const FlatLayout& layout = c.layout;
  std::vector<int> right;
  std::vector<std::string> others;
  bool all_first = true;
  for (int r = 0; r < layout.ranks(); ++r) {
    const FlatValues own = mistakes.own_sum(r);
    int taken = -1;
    for (int s = 0; s < layout.ranks() && taken < 0; ++s)
      if (near(shards[size_t(r)], layout.shards(mistakes.right(), s), c.tolerance) ||
          (s != r && near(shards[size_t(r)], layout.shards(own, s), c.tolerance)))
        taken = s;
    if (taken == r)
      right.push_back(r);
    else if (taken >= 0)
      others.push_back(str("rank ", r, " takes the shard of rank ", taken));
    all_first = all_first && taken == 0;
  }
  if (others.empty() || (right.empty() && int(others.size()) < layout.ranks())) return "";
  if (all_first) return "right on rank 0 only: every rank takes the first shard";
  const std::string where =
      right.empty() ? ""
                    : str("right on rank", right.size() > 1 ? "s " : " ", list(right), " only");
  return where + (right.empty() ? "" : ": ") + list(others);
}

// The same factor in all elements that are not tiny, or 0.
double common_ratio(const FlatValues& values, const FlatValues& right) {
  const double scale = norm(right);
  double dot = 0;
  for (size_t i = 0; i < values.size(); ++i) dot += double(values[i]) * double(right[i]);
  const double ratio = scale > 0 ? dot / (scale * scale) : 0;
  return near(values, scaled(right, ratio), 1e-3) ? ratio : 0;
}

std::string meaning_of(const GradientCase& c, const Mistakes& mistakes,
                       const std::vector<FlatValues>& shards) {
  const FlatLayout& layout = c.layout;
  const std::vector<FlatValues> right =
      shards_with(layout, {"", [&](int) { return mistakes.right(); }});
  std::vector<size_t> wrong;
  std::vector<std::string> names;
  for (size_t u = 0; u < layout.units().size(); ++u)
    if (!near(chosen(layout, shards, {u}), chosen(layout, right, {u}), c.tolerance))
      wrong.push_back(u), names.push_back(layout.units()[u].name);
  if (wrong.empty()) return "";
  const std::string where =
      wrong.size() == layout.units().size() ? "" : "in " + list(names) + " only: ";
  if (const std::string infinite = meaning_of_infinite("the gradient has", shards);
      !infinite.empty())
    return where + infinite;
  const FlatValues values = chosen(layout, shards, wrong);
  std::string nearest;
  double distance_of_nearest = std::numeric_limits<double>::infinity();
  for (const Mistake& mistake : mistakes.all()) {
    const FlatValues of = chosen(layout, shards_with(layout, mistake), wrong);
    if (const double d = distance(values, of);
        d < distance_of_nearest && near(values, of, c.tolerance))
      nearest = mistake.meaning, distance_of_nearest = d;
  }
  if (!nearest.empty()) return where + nearest;
  if (const double ratio = common_ratio(values, chosen(layout, right, wrong)); ratio != 0)
    return where + number("every gradient is %.4g x ddp's", ratio);
  if (const std::string taken = shards_taken(c, mistakes, shards); !taken.empty()) return taken;
  return where.empty() ? "the gradient differs from ddp's" : where + "it differs from ddp's";
}

std::string compared(double is, double must) {
  const std::string ratio = must == 0 ? "1" : number("%.4g", is / must);
  return number(" is %.9g", is) + number(", must be %.9g", must) +
         (ratio == "1" ? "" : " (ratio " + ratio + ")");
}

// The first element of a rank's shards that differs by more than rounding.
std::string difference_in_shard(const GradientCase& c, const FlatValues& right,
                                const FlatValues& shard, int rank) {
  const FlatValues must = c.layout.shards(right, rank);
  const double typical = norm(must) / std::sqrt(double(std::max<size_t>(1, must.size())));
  for (size_t i = 0; i < must.size(); ++i) {
    const double is = double(shard[i]), allowed = std::abs(double(must[i])) + typical;
    if (std::abs(is - double(must[i])) <= 10 * c.tolerance * allowed) continue;
    return str("the gradient of ", c.layout.text(c.layout.position(rank, int64_t(i))), " on rank ",
               rank, compared(is, double(must[i])));
  }
  return "";
}

// One rank's weights, split into its own shard and the others'.
bool own_shard_is(const WeightsCase& c, const FlatValues& weights, int rank,
                  const FlatValues& what) {
  return near(c.layout.shards(weights, rank), c.layout.shards(what, rank), c.tolerance);
}

bool other_shards_are(const WeightsCase& c, const FlatValues& weights, int rank,
                      const FlatValues& what) {
  for (int other = 0; other < c.layout.ranks(); ++other)
    if (other != rank &&
        !near(c.layout.shards(weights, other), c.layout.shards(what, other), c.tolerance))
      return false;
  return true;
}

// The ranks whose shards have the new values everywhere, if all other shards have the old ones.
std::vector<int> changed_shards(const WeightsCase& c, const std::vector<FlatValues>& of_ranks) {
  std::vector<int> changed;
  for (int owner = 0; owner < c.layout.ranks(); ++owner) {
    const auto everywhere = [&](const FlatValues& what) {
      return std::ranges::all_of(of_ranks, [&](const FlatValues& weights) {
        return own_shard_is(c, weights, owner, what);
      });
    };
    if (everywhere(c.after))
      changed.push_back(owner);
    else if (!everywhere(c.before))
      return {};
  }
  return changed;
}

std::string meaning_of(const WeightsCase& c, const std::vector<FlatValues>& of_ranks) {
  const auto on_all_ranks = [&](const auto& holds) {
    for (int r = 0; r < int(of_ranks.size()); ++r)
      if (!holds(of_ranks[size_t(r)], r)) return false;
    return true;
  };
  if (const std::string infinite = meaning_of_infinite("the parameters have", of_ranks);
      !infinite.empty())
    return infinite;
  if (on_all_ranks([&](const FlatValues& w, int) { return near(w, c.before, 1e-12); }))
    return "no parameter has changed: the update does not reach the parameters";
  if (c.layout.ranks() > 1) {
    if (on_all_ranks([&](const FlatValues& w, int r) {
          return own_shard_is(c, w, r, c.after) && other_shards_are(c, w, r, c.before);
        }))
      return "each rank has the new values of its local shard only: the updated parameters were "
             "not "
             "all-gathered after the update";
    if (on_all_ranks([&](const FlatValues& w, int r) {
          return own_shard_is(c, w, r, c.before) && other_shards_are(c, w, r, c.after);
        }))
      return "each rank has the new values of the other ranks, but the old ones of its local shard";
    if (const std::vector<int> changed = changed_shards(c, of_ranks); !changed.empty())
      return changed == std::vector<int>{0}
                 ? "only the first shard has changed: every rank updates the shard of rank 0"
                 : str("only the shards of ranks ", list(changed), " have changed: not every rank ",
                       "updates its own");
    if (!on_all_ranks([&](const FlatValues& w, int) { return near(w, of_ranks[0], c.tolerance); }))
      return "the ranks have different parameters after the update";
  }
  return "the gradient is right, but the updated parameters are not: the optimizer must get this "
         "rank's shard of both, and the numbers of the step";
}

}  // namespace

Diagnosis diagnose_gradient(const GradientCase& c, const std::vector<FlatValues>& shards) {
  const Mistakes mistakes(c);
  const std::string meaning = meaning_of(c, mistakes, shards);
  if (meaning.empty()) return {};
  for (int r = 0; r < c.layout.ranks(); ++r)
    if (const std::string evidence = difference_in_shard(c, mistakes.right(), shards[size_t(r)], r);
        !evidence.empty())
      return {meaning, evidence};
  return {};
}

Diagnosis diagnose_weights(const WeightsCase& c, const std::vector<FlatValues>& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    if (!near(of_ranks[r], c.after, c.tolerance))
      return {.meaning = meaning_of(c, of_ranks),
              .evidence = first_difference(c.layout, of_ranks[r], c.after, int(r))};
  return {};
}

}  // namespace zl
