// What a run did beside the plan: each difference with its name.

#include <algorithm>
#include <iterator>
#include <utility>

#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

// Calls that are alike: a collective, and [n] its size.
using Alike = std::pair<std::string, int64_t>;

// "2 all-gathers of 12,704 elements".
std::string calls_of(int64_t n, Alike calls) {
  auto& [collective, size] = calls;
  std::ranges::replace(collective, '_', '-');
  return plural(n, collective.c_str()) + " of " +
         (size < 0 ? "an unknown size" : plural(size, "element"));
}

std::string list_of(const std::vector<std::string>& names) {  // "root, h.0 and h.1"
  if (names.size() > 4) return names[0] + " … " + names.back();
  std::string all;
  for (const std::string& name : names)
    all += (all.empty() ? "" : &name == &names.back() ? " and " : ", ") + name;
  return all;
}

struct Sum {  // of calls
  int64_t calls = 0, size = 0;
  std::map<Alike, int64_t> alike = {};
};

// One rank and step. What is said of the units and of padding comes first: all else goes by sizes.
class Comparison : public TrafficVerdict {
 public:
  Comparison(const TrafficCase& given, const std::vector<SeenCall>& calls)
      : c_(given), A_(given.config.accumulation), marked_(!calls.empty() && calls[0].step >= 0) {
    left_ = calls;
    fit_units();
    if (!plan_.note.empty()) notes.insert(plan_.note);
    find_paddings();
    match_each();
    match_sums(Purpose::gradient);
    match_sums(Purpose::parameter);
    name_numbers();
    name_all_reduces();
    name_times();
    name_the_rest();
  }

 private:
  void say(const auto&... parts) { differences.emplace(false, str(parts...)); }

  // Of the calls that are left, those that `is` names. With a purpose they are explained, and no
  // longer left; they should have this `dtype`.
  Sum sum(const auto& is, const std::string& purpose = "", const std::string& dtype = "") {
    Sum all;
    std::erase_if(left_, [&](const SeenCall& s) {
      if (!is(s)) return false;
      ++all.calls, all.size += s.elements, ++all.alike[{s.collective, s.elements}];
      if (purpose.empty()) return false;
      auto& row = rows[{s.collective, purpose}];
      ++row[0], row[2] += std::max<int64_t>(0, s.elements + s.padding);
      const bool same = s.dtype.empty() || s.dtype == dtype || dtype.empty() ||
                        (s.dtype == "16-bit" && dtype.ends_with("f16"));
      if (!same && s.elements > small_size())
        ++other_types_[str(s.collective, " of ", purpose, " is ", s.dtype, " where ", dtype,
                           " is planned")];
      return true;
    });
    return all;
  }
  static auto of(const std::string& collective, int64_t more_than = 0) {
    return [=](const SeenCall& s) { return s.collective == collective && s.elements > more_than; };
  }
  // Numbers of a step, which have nothing to do with how parameters are sharded, are at most this.
  int64_t small_size() const { return std::max<int64_t>(16, parameters() + 1); }
  int64_t parameters() const { return std::ssize(c_.model.all().parameters); }

  // ---- the units, as the run shows them by the sizes of its reduce-scatters ---------------------

  // The planned calls of this size; or those that differ by padding only, and how. Null: none.
  std::pair<PlannedCalls*, const char*> calls_of_size(int64_t size) {
    for (PlannedCalls& p : plan_.calls)
      if (p.elements == size) return {&p, nullptr};
    for (PlannedCalls& p : plan_.calls)
      for (const Unit& unit : c_.model.units)
        if (const char* how = c_.padding(size * p.part, unit))
          if (std::ranges::count(p.units, unit.name) > 0) return {&p, how};
    return {};
  }

  void fit_units() {
    const auto planned = [&](int64_t size) {
      plan_ = plan_traffic(c_);
      return calls_of_size(size).first != nullptr;
    };
    for (const auto& [calls, n] : sum(of("reduce_scatter")).alike) {
      const int64_t size = calls.second;
      if (planned(size) || std::ranges::any_of(plan_.calls, &PlannedCalls::sum_only)) continue;
      const bool before = std::exchange(c_.model.transposed, c_.model.either_layout);
      if (planned(size)) {
        notes = {"linear weights are (out, in), as in nn.Linear: so is their padding"};
        continue;
      }
      c_.model.transposed = before;
      regroup(size);
    }
    planned(0);
  }

  // Other units, one of which has this size.
  void regroup(int64_t size) {
    std::vector<Unit>& units = c_.model.units;
    // Units that are one in the run: a sequence of blocks, with root or without.
    for (size_t first = units.size(); first-- > 1;)
      for (const size_t into : {size_t(0), first - 1}) {
        Unit one = units[into];
        std::vector<std::string> names(1, one.name);
        for (size_t last = first; last < units.size(); ++last) {
          std::ranges::copy(units[last].parameters, std::back_inserter(one.parameters));
          names.push_back(units[last].name);
          if (!c_.padding(size, one)) continue;
          units[into] = one;
          units.erase(units.begin() + int64_t(first), units.begin() + int64_t(last) + 1);
          return say("a unit is missing: ", list_of(names), " are one unit of ", with_commas(size),
                     " elements; fully_shard was not called for each of them");
        }
      }
    // A module that is a unit by itself, as fully_shard(model.wte) makes it; or one that is there
    // twice, such as a head that is not tied to the embedding.
    const auto module_of = [](const Parameter* p) { return p->name.substr(0, p->name.rfind('.')); };
    for (Unit& unit : units)
      for (Parameter* p : unit.parameters) {
        Unit part{module_of(p), {}}, rest{unit.name, {}}, twice = unit;
        for (Parameter* other : unit.parameters)
          (module_of(other) == part.name ? part : rest).parameters.push_back(other);
        twice.parameters.push_back(p);
        if (p->shape.size() == 2 && c_.padding(size, twice)) {
          unit = twice;
          return say(unit.name, " has ", with_commas(size), " elements, as many as with a second ",
                     p->name, ": is the head not tied to the embedding?");
        }
        if (!c_.padding(size, part)) continue;
        const Sum whole = sum([&](const SeenCall& s) {
          return of("reduce_scatter")(s) && c_.padding(s.elements, unit);
        });
        say("an extra unit: ", part.name, " of ", with_commas(size),
            " elements is gathered and reduced by itself",
            whole.calls > 0 ? ", beside all of " + unit.name : "");
        if (whole.calls == 0) unit = rest;
        return units.push_back(part);
      }
  }

  // ---- calls that are planned -------------------------------------------------------------------

  // Sizes that differ from the plan's only by padding.
  void find_paddings() {
    std::map<std::string, int64_t> more;
    for (SeenCall& s : left_)
      if (const auto [calls, how] = calls_of_size(s.elements); how != nullptr) {
        s.padding = s.elements - calls->elements;
        s.elements = calls->elements;
        more[how] += s.padding;
      }
    for (const auto& [how, n] : more)
      say("padding: ", how, "; elements of a step that differ: ", with_commas(n));
  }

  void match_each() {
    for (PlannedCalls& p : plan_.calls) {
      auto& row = rows[{p.collective, name(p.purpose)}];
      row[1] += p.planned, row[3] += p.planned * p.elements;
      const auto is = [&](const SeenCall& s) {
        return s.collective == p.collective && s.elements == p.elements &&
               (s.group == 0 || s.group == p.group) && (p.differs() || !p.number()) && ++p.made;
      };
      if (!p.sum_only) sum(is, name(p.purpose), p.dtype);
    }
  }

  // Calls whose sizes depend on buckets: all but the small ones must have the planned sum.
  void match_sums(Purpose purpose) {
    std::vector<PlannedCalls*> lacking;
    int64_t planned = 0, wanted = 0, least = 0;
    for (PlannedCalls& p : plan_.calls) {
      const bool in_sum = p.sum_only || p.collective == "all_reduce";
      if (p.purpose != purpose || p.missing() <= 0 || !in_sum) continue;
      lacking.push_back(&p);
      planned += p.missing(), wanted += p.missing() * p.elements;
    }
    if (lacking.empty()) return;
    const PlannedCalls& call = *lacking[0];
    Sum made = sum(of(call.collective));
    for (const int64_t small : {int64_t(1), small_size()})
      if (made.size % wanted != 0) made = sum(of(call.collective, least = small));
    const bool fits = made.size % wanted == 0;
    if (made.size == 0 || !(fits || call.sum_only)) return;
    sum(of(call.collective, least), name(purpose), call.dtype);
    const std::string calls =
        calls_of(made.calls, {call.collective, made.size}) + " in all, planned: ";
    if (!fits)
      say(name(purpose), "s: ", calls, planned, " of ", with_commas(wanted));
    else if (made.size == wanted && made.calls != planned)
      differences.emplace(true, str("buckets: ", calls, planned));
    for (PlannedCalls* p : lacking) p->named = !fits, p->made += made.size / wanted * p->missing();
  }

  // ---- calls that are not -----------------------------------------------------------------------

  void name_numbers() {
    harmless("barrier", "it waits, and moves nothing", of("barrier", -1));
    harmless(
        "integers",
        "integers, such as counters, overflow flags, the order of buckets, used parameters "
        "(find_unused_parameters), a pickled object",
        [](const SeenCall& s) { return s.elements <= 4096 && s.dtype.find_first_of("iu") == 0; });
    harmless("norm", "the gradient norm (clip_grad_norm_)",
             [&](const SeenCall& s) { return of("all_reduce")(s) && s.elements == parameters(); });
    harmless("numbers", "numbers of a step, such as the loss mean or a norm",
             [&](const SeenCall& s) { return s.elements <= small_size(); });
  }
  // The calls that `is` names, each size with this text.
  void harmless(const char* purpose, const char* text, const auto& is) {
    const auto known = [&](const SeenCall& s) { return s.elements >= 0 && is(s); };
    for (const auto& [what, n] : sum(known, purpose).alike)
      differences.emplace(true, calls_of(n, what) + ": " + text);
  }

  // All-reduces in the place of reduce-scatters.
  void name_all_reduces() {
    const Sum made = sum(of("all_reduce"));
    int64_t missing = 0;
    for (PlannedCalls& p : plan_.calls)
      if (made.calls > 0 && p.is("reduce_scatter", Purpose::gradient) && p.missing() > 0)
        p.named = true, missing += p.missing() * p.elements;
    if (missing == 0) return;
    sum(of("all_reduce"), name(Purpose::gradient));
    const std::string n = with_commas(made.size);
    say("all-reduce instead of reduce-scatter: ", n, " elements, where ", with_commas(missing),
        " are to be reduce-scattered; each rank sends (N-1)/N × ", n, " elements more");
  }

  // Planned calls that are made more or less often: all of a purpose alike, or gathers of some
  // units.
  void name_times() {
    std::map<Purpose, std::set<double>> times;  // made, for each that is planned
    for (const PlannedCalls& p : plan_.calls)
      if (!p.named) times[p.purpose].insert(double(p.made) / double(p.planned));
    for (PlannedCalls& p : plan_.calls) {
      if (!p.differs() || p.made == 0 || p.number()) continue;
      const bool both = times[Purpose::gradient] == times[Purpose::parameter];
      const std::string what = both ? "gradients and parameters" : str(name(p.purpose), "s");
      const int64_t k = p.made / p.planned;
      const bool alike = times[p.purpose].size() == 1, multiple = alike && p.made % p.planned == 0;
      const auto more = marked_ ? "" : str("; or the file holds more steps: --steps ", k);
      p.named = true;
      if (alike && p.purpose == Purpose::gradient && p.planned == p.made * A_)
        say("gradients are reduced with the last of ", A_, " micro-batches only ",
            "(set_requires_gradient_sync(False)): full gradients stay in between");
      else if (multiple && what == "gradients" && !plan_.each)
        say("× ", k, ": gradients are reduced in each micro-batch, not once per step: ",
            "no_sync() is missing", more);
      else if (multiple)
        say("× ", k, ": ", what, " are communicated ", k, " times as often as planned; ",
            "of more micro-batches: --set gradient_accumulation_steps=", k * A_, more);
      else if (p.gather())
        say(gathered(p), " (", calls_of(p.made, {"all_gather", p.elements}),
            ", planned: ", p.planned, ")");
      else
        p.named = false;
    }
  }
  // Of units of one size, as blocks have it.
  std::string gathered(const PlannedCalls& p) const {
    // Root is, from one micro-batch to the next.
    const bool kept = A_ > 1 && std::ranges::any_of(plan_.calls, [&](const PlannedCalls& of) {
                        return of.gather() && of.planned == A_ && of.made == 1;
                      });
    const int64_t units = std::ssize(p.units), once = units * A_, less = p.missing();
    const std::string all = list_of(p.units);
    return -less == once && p.planned == once
               ? all + " gathered twice: resharded after forward (reshard_after_forward=True)"
           : kept && less == units * (A_ - 1) ? "units not resharded after backward: " + all +
                                                    " (set_reshard_after_backward(False))"
           : p.planned == 2 * once && less > 0 && less % A_ == 0
               ? str("units not resharded: one gather is missing for ", less / A_, " of the ",
                     units, " units ", all, " (reshard_after_forward=False)")
               : (less < 0 ? "gathered more often than planned: " : "gathered less often: ") + all;
  }

  void name_the_rest() {
    for (const auto& [text, n] : other_types_)
      say("another dtype: ", text, " (", plural(n, "call"), ")");
    if (sum(of("broadcast")).size == c_.model.all().numel()) {
      sum(of("broadcast"), "other");
      say("parameters are broadcast by their owners (ZeroRedundancyOptimizer), not all-gathered");
    }
    std::map<Alike, int64_t> extra = sum([](const SeenCall&) { return true; }, "other").alike;
    for (const PlannedCalls& p : plan_.calls) {
      const Alike calls(p.collective, p.elements);
      if (p.differs() && p.missing() < 0)
        extra[calls] -= p.missing();
      else if (p.differs())
        differences.emplace(p.number(), str("missing: ", calls_of(p.missing(), calls), " for the ",
                                            name(p.purpose)));
    }
    int64_t shown = 0;
    for (const auto& [calls, n] : extra)
      if (++shown <= 6) say("not planned: ", calls_of(n, calls));
    if (shown > 6) say("not planned: calls of ", shown - 6, " more sizes");
  }

  TrafficCase c_;
  const int64_t A_;
  const bool marked_;  // the file says where a step begins
  TrafficPlan plan_;
  std::vector<SeenCall> left_;  // calls that are not explained yet
  std::map<std::string, int64_t> other_types_;
};

}  // namespace

TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls) {
  return Comparison(c, calls);
}

}  // namespace zl::cli
