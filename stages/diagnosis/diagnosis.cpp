#include "stages/diagnosis/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <span>

#include "stages/schedule/step_schedule.h"
#include "stages/train/gradient_bound.h"
#include "tensor/kernels.h"

namespace zl {
namespace {

// The 2-norm of a - factor * b, in double.
double distance(std::span<const float> a, std::span<const float> b, double factor = 1) {
  const auto square = [=](double x, double y) { return (x - factor * y) * (x - factor * y); };
  return std::sqrt(std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus(), square));
}

double norm(std::span<const float> values) { return distance(values, values, 0); }

bool near(std::span<const float> a, std::span<const float> b, double tolerance) {
  return a.size() == b.size() && distance(a, b) <= tolerance * norm(b);
}

// What values that are not finite mean; "" if all are finite.
std::string meaning_of_infinite(const char* what, const std::vector<FlatValues>& all) {
  bool nan = false, infinite = false;
  for (const FlatValues& values : all)
    for (const float v : values) nan |= std::isnan(v), infinite |= std::isinf(v);
  return nan        ? str(what, " NaN: memory is used that was never written, or was freed")
         : infinite ? str(what, " infinite values: a division by 0, or a factor that is too large")
                    : "";
}

// A mistake, and what it makes of a gradient: `part` of the gradient of micro-batch a on rank r is
// in the shard of rank `mine`. `factor`: the right gradient times this; negative: no multiple.
struct Mistake {
  std::string meaning;
  std::function<double(int a, int r, int mine)> part;
  double factor = -1;
};

// The values that the ranks then have, each in its shard.
FlatValues gradient_with(const GradientCase& c, const Mistake& mistake) {
  const int N = c.layout.ranks();
  const FlatValues zeros(size_t(c.layout.size() / N));
  std::vector<FlatValues> shards(size_t(N), zeros);
  for (int mine = 0; mine < N; ++mine)
    for (size_t a = 0; a < c.alone.size(); ++a) {
      FlatValues of_ranks = zeros, &sum = shards[size_t(mine)];
      for (int r = 0; r < N; ++r) {
        const double part = mistake.part(int(a), r, mine);
        const FlatValues values = c.layout.shards(c.alone[a][size_t(r)], mine);
        for (size_t i = 0; part != 0 && i < sum.size(); ++i)
          of_ranks[i] = float(of_ranks[i] + part * values[i]);
      }
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_ranks[i];
    }
  return c.layout.full(shards);
}

// Own shard: the result of the last reduction, which multiplies by `factor`; the others keep adding
// their own gradients. `left`: reductions from this micro-batch on.
double reduced_in_place(int left, bool own, double factor) {
  double sum = 0;
  for (int i = own ? left : 1; i <= left; ++i) sum += std::pow(factor, i);
  return sum;
}

// Those that multiply the right gradient, then those of ranks, then those of micro-batches. With
// one rank or micro-batch some of them yield the right gradient: those are no mistakes.
std::vector<Mistake> mistakes(int N, int A) {
  const double mean = 1.0 / N;
  const auto times = [=](double factor, const std::string& is) {
    return Mistake{"every gradient is " + is, [=](int, int, int) { return factor * mean; }, factor};
  };
  return {times(0, "zero: nothing was reduced, or the result was not kept"),
          times(N, str(N, ".00 x ddp's: a sum over ranks, not a mean")),
          times(mean, str("1/", N, " of ddp's: it is divided by the number of ranks twice")),
          times(1.0 / A, str("1/", A, " of ddp's: the update already divides by the number of ",
                             "micro-batches")),
          times(2, "2.00 x ddp's: it was added twice"),
          {"each rank has the gradient of its local data only: it was never reduced",
           [](int, int r, int mine) { return r == mine; }},
          {"each rank has 1/N of its local gradient: no other rank's was added",
           [=](int, int r, int mine) { return r == mine ? mean : 0; }},
          {"every rank has the gradient of rank 0's data: a broadcast, not a reduction",
           [](int, int r, int) { return r == 0; }},
          {"only the last micro-batch's gradient is there: the others were overwritten, "
           "copied instead of accumulated",
           [=](int a, int, int) { return a == A - 1 ? mean : 0; }},
          {"only the first micro-batch's gradient is there",
           [=](int a, int, int) { return a == 0 ? mean : 0; }},
          {"grows with each micro-batch: the full gradient is not freed or cleared after "
           "it was reduced, so the next reduction adds it again",
           [=](int a, int, int) { return (A - a) * mean; }},
          {"the full gradient is reduced after every micro-batch, and what was reduced "
           "before is reduced again",
           [=](int a, int r, int mine) { return reduced_in_place(A - a, r == mine, mean); }},
          {"what was reduced before is reduced again after every micro-batch, as a sum",
           [=](int a, int r, int mine) { return reduced_in_place(A - a, r == mine, 1); }},
          {"reduced with the last micro-batch only: the gradients of this rank's earlier "
           "micro-batches were never reduced",
           [=](int a, int r, int mine) { return a == A - 1 ? mean : double(r == mine); }}};
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

// Which ranks are right, and whose shard the others take: outside its own shard, a rank has its own
// gradients after a reduce-scatter, and the mean after an all-reduce.
std::string shards_taken(const GradientCase& c, const FlatValues& mean,
                         const std::vector<FlatValues>& shards) {
  const int N = c.layout.ranks();
  uint64_t right = 0;
  std::vector<std::string> others;
  bool all_first = true;
  for (int r = 0; r < N; ++r) {
    const FlatValues own = gradient_with(c, {"", [=](int, int of, int) { return of == r; }});
    const auto takes = [&](int s) {
      return near(shards[size_t(r)], c.layout.shards(mean, s), c.tolerance) ||
             (s != r && near(shards[size_t(r)], c.layout.shards(own, s), c.tolerance));
    };
    int taken = 0;
    while (taken < N && !takes(taken)) ++taken;
    if (taken == r)
      right |= uint64_t(1) << r;
    else if (taken < N)
      others.push_back(str("rank ", r, " takes the shard of rank ", taken));
    all_first = all_first && taken == 0;
  }
  if (others.empty() || (!right && int(others.size()) < N)) return "";
  if (all_first) return "right on rank 0 only: every rank takes the first shard";
  if (!right) return list(others);
  return str("right on ", ranks_text(right), " only: ", list(others));
}

// By which b must be multiplied to come nearest to a.
double common_factor(std::span<const float> a, std::span<const float> b) {
  double dot = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i)
    dot += double(a[i]) * double(b[i]), squares += double(b[i]) * double(b[i]);
  return squares > 0 ? dot / squares : 0;
}

std::string meaning_of(const GradientCase& c, const FlatValues& mean,
                       const std::vector<FlatValues>& shards) {
  const FlatValues all = c.layout.full(shards);
  const auto in = [](const FlatLayout::UnitRange& unit, const FlatValues& full) {
    return std::span(full).subspan(size_t(unit.begin), size_t(unit.partition.full()));
  };
  std::vector<FlatLayout::UnitRange> wrong;
  std::vector<std::string> names;
  for (const FlatLayout::UnitRange& u : c.layout.units())
    if (!near(in(u, all), in(u, mean), c.tolerance)) wrong.push_back(u), names.push_back(u.name);
  if (wrong.empty()) return "";
  const std::string where =
      wrong.size() == c.layout.units().size() ? "" : "in " + list(names) + " only: ";
  if (const std::string infinite = meaning_of_infinite("the gradient has", shards);
      !infinite.empty())
    return where + infinite;
  // How far the wrong units are from factor * expected, in parts of that: the one that is furthest.
  const auto deviation = [&](const FlatValues& expected, double factor) {
    double most = 0;
    for (const FlatLayout::UnitRange& u : wrong) {
      const double d = distance(in(u, all), in(u, expected), factor);
      const double part = d == 0 ? 0 : d / (std::abs(factor) * norm(in(u, expected)));
      if (!(part <= 1)) return HUGE_VAL;  // also where it is not a number
      most = std::max(most, part);
    }
    return most;
  };
  std::string nearest;
  const double tolerance = std::max(1e-3, c.tolerance);  // other mistakes are further away
  double least = tolerance;
  const double factor = common_factor(in(wrong[0], all), in(wrong[0], mean));
  for (const Mistake& m : mistakes(c.layout.ranks(), int(c.alone.size()))) {
    const FlatValues expected = gradient_with(c, m);
    const double d = deviation(expected, 1);
    // A multiple is named only where the factor is right to 1e-3, also in bf16.
    const bool is = m.factor < 0 || std::abs(factor - m.factor) <= 1e-3 * m.factor;
    if (is && d < least && !near(expected, mean, tolerance)) nearest = m.meaning, least = d;
  }
  if (!nearest.empty()) return where + nearest;
  if (deviation(mean, factor) <= tolerance) {
    char text[64];
    std::snprintf(text, sizeof text, "every gradient is %.4g x ddp's", factor);
    return where + text;
  }
  if (const std::string taken = shards_taken(c, mean, shards); !taken.empty()) return taken;
  return where.empty() ? "the gradient differs from ddp's" : where + "it differs from ddp's";
}

std::string meaning_of(const WeightsCase& c, const std::vector<FlatValues>& of_ranks) {
  if (const std::string infinite = meaning_of_infinite("the parameters have", of_ranks);
      !infinite.empty())
    return infinite;
  if (std::ranges::count(of_ranks, c.before) == std::ssize(of_ranks))
    return "no parameter has changed: the update does not reach the parameters";
  const int N = c.layout.ranks();
  const auto has = [&](int rank, int owner, bool updated) {
    return near(c.layout.shards(of_ranks[size_t(rank)], owner),
                c.layout.shards(updated ? c.after : c.before, owner), c.tolerance);
  };
  // Whether each rank has the updated values of just those shards that `updated` names.
  const auto updated_are = [&](auto updated) {
    for (int i = 0; i < N * N; ++i)
      if (!has(i / N, i % N, updated(i / N, i % N))) return false;
    return N > 1;
  };
  if (updated_are([](int rank, int owner) { return owner == rank; }))
    return "each rank has the new values of its local shard only: the updated parameters were "
           "not all-gathered after the update";
  if (updated_are([](int rank, int owner) { return owner != rank; }))
    return "each rank has the new values of the other ranks, but the old ones of its local shard";
  uint64_t changed = 0;
  for (int owner = 0; owner < N; ++owner)
    if (has(0, owner, true)) changed |= uint64_t(1) << owner;
  if (changed && updated_are([=](int, int owner) { return changed >> owner & 1; }))
    return changed == 1 ? "only the first shard has changed: every rank updates the shard of rank 0"
                        : str("only the shards of ", ranks_text(changed),
                              " have changed: not every rank updates its own");
  if (!std::ranges::all_of(of_ranks, [&](const FlatValues& weights) {
        return near(weights, of_ranks[0], c.tolerance);
      }))
    return "the ranks have different parameters after the update";
  return "the gradient is right, but the updated parameters are not: the optimizer must get this "
         "rank's shard of both, and the numbers of the step";
}

}  // namespace

// The evidence is the first element of a rank's shards that differs by more than rounding.
Diagnosis diagnose_gradient(const GradientCase& c, const std::vector<FlatValues>& shards) {
  const double N = c.layout.ranks();
  const FlatValues mean = gradient_with(c, {"", [=](int, int, int) { return 1 / N; }});
  const std::string meaning = meaning_of(c, mean, shards);
  for (int r = 0; r < c.layout.ranks() && !meaning.empty(); ++r) {
    const FlatValues right = c.layout.shards(mean, r);
    const double typical = norm(right) / std::sqrt(double(right.size()));
    size_t i = 0;
    for (const FlatLayout::UnitRange& u : c.layout.units())
      for (int64_t at = 0; at < u.partition.shard(); ++at, ++i) {
        const double is = double(shards[size_t(r)][i]), must = double(right[i]);
        if (!(std::abs(is - must) <= 10 * c.tolerance * (std::abs(must) + typical)))
          return {meaning,
                  str("the gradient of ", c.layout.text(u.begin + r * u.partition.shard() + at),
                      " on rank ", r, compared(is, must))};
      }
  }
  return {};
}

Diagnosis diagnose_weights(const WeightsCase& c, const std::vector<FlatValues>& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    if (!near(of_ranks[r], c.after, c.tolerance))
      return {.meaning = meaning_of(c, of_ranks),
              .evidence = first_difference(c.layout, of_ranks[r], c.after, int(r))};
  return {};
}

FlatValues full_parameters(Stage& stage) {
  FlatValues all;
  for (UnitState& u : stage.units()) {
    unshard(stage, u);
    const FlatValues unit = kernel::download_floats(u.full_parameter);
    reshard(stage, u);
    all.insert(all.end(), unit.begin(), unit.end());
  }
  return all;
}

Diagnosis diagnose_stage(const TrainingSpec& spec) {
  const Options& o = spec.engine;
  if (spec.run_ranks || o.precision == Dtype::f16 || o.grad_accum_dtype ||
      o.communication_data_type || o.reproducible)
    return {};
  TrainingSpec once = spec;
  once.steps = 1;
  once.eval_every = once.device_memory = once.host_memory = 0;
  once.checkpoint = {};
  // By rank: the shards of the gradient after the last backward pass, and the updated weights.
  std::vector<FlatValues> gradients(size_t(spec.ranks)), weights(size_t(spec.ranks));
  TrainingCallbacks callbacks;
  callbacks.after_backward = [&](Trainer& t) {
    if (t.engine().is_gradient_accumulation_boundary())
      gradients[size_t(t.comm().rank())] = gradient_shards(t);
  };
  callbacks.at_end = [&](Trainer& t) {
    weights[size_t(t.comm().rank())] = full_parameters(t.engine().stage());
  };
  const double lr = run_training(once, callbacks).steps[0].lr;
  PlainTraining plain(once);
  const FlatLayout& layout = plain.layout();
  const auto alone = plain.gradients_alone();
  const FlatValues before = plain.weights();
  const PlainStep right = plain.step(lr);
  for (int r = 0; r < spec.ranks; ++r)
    if (gradients[size_t(r)] != layout.shards(right.gradient, r))
      return diagnose_gradient({layout, alone, o.precision == Dtype::bf16 ? 2e-2 : 1e-4},
                               gradients);
  return diagnose_weights({layout, before, plain.weights()}, weights);
}

}  // namespace zl
