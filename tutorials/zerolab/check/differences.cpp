// What a run did beside the plan: each difference with its name.

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

// "2 all-gathers of 12,704 elements".
std::string calls_of(int64_t n, std::string collective, int64_t elements) {
  std::ranges::replace(collective, '_', '-');
  return plural(n, collective.c_str()) + " of " +
         (elements < 0 ? "an unknown size" : plural(elements, "element"));
}

std::string list_of(const std::vector<std::string>& names) {  // "root, h.0 and h.1"
  if (names.size() > 4) return names[0] + " … " + names.back();
  std::string all;
  for (size_t i = 0; i < names.size(); ++i)
    all += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return all;
}

struct Seen : SeenCall {
  int64_t size;              // [n] as the plan has it, where only padding differs
  std::string purpose = "";  // "": not known yet
  bool left(const std::string& which = "") const {
    return purpose.empty() && (which.empty() || collective == which);
  }
};
using Planned = std::vector<PlannedCalls*>;

// One rank and step.
class Comparison {
 public:
  Comparison(const TrafficCase& given, const std::vector<SeenCall>& calls)
      : c_(given), A_(given.config.accumulation) {
    for (const SeenCall& s : calls) seen_.push_back({s, s.elements});
    fit_units();
    if (!plan_.note.empty()) verdict_.notes.insert(plan_.note);
  }

  TrafficVerdict run() {
    find_paddings();
    match_each();
    match_sums(Purpose::gradient);
    match_sums(Purpose::parameter);
    name_numbers();
    name_all_reduces();
    name_multiples();
    name_gathers();
    name_the_rest();
    count();
    return std::move(verdict_);
  }

 private:
  void say(const std::string& text, bool harmless = false) {
    verdict_.differences.push_back({harmless, text});
  }
  Planned planned(const auto& which) {
    Planned rows;
    for (PlannedCalls& p : plan_.calls)
      if (which(p)) rows.push_back(&p);
    return rows;
  }
  std::vector<Seen*> left(const std::string& collective, int64_t more_than = 0) {
    std::vector<Seen*> calls;
    for (Seen& s : seen_)
      if (s.left(collective) && s.size > more_than) calls.push_back(&s);
    return calls;
  }
  static int64_t size_of(const std::vector<Seen*>& calls) {
    int64_t sum = 0;
    for (const Seen* s : calls) sum += s->size;
    return sum;
  }
  // Numbers of a step, which have nothing to do with how parameters are sharded, are at most this.
  int64_t small_size() const { return std::max<int64_t>(16, parameters() + 1); }
  int64_t parameters() const { return std::ssize(c_.model.all().parameters); }

  // ---- the units, as the run shows them by the sizes of its reduce-scatters ---------------------

  // Whether a unit of these parameters is reduced by itself.
  bool has(int64_t size, const Unit& unit) const {
    const auto [exact, rows] = c_.model.sizes(unit, c_.ranks);
    return size == exact || size == rows || size == round_up(exact, c_.ranks);
  }

  void fit_units() {
    const auto planned = [&](int64_t size) {
      plan_ = plan_traffic(c_);
      return std::ranges::any_of(plan_.calls, [&](const auto& p) { return p.has_size(size); });
    };
    std::set<int64_t> sizes;
    for (const Seen* s : left("reduce_scatter")) sizes.insert(s->size);
    planned(0);
    if (std::ranges::any_of(plan_.calls, &PlannedCalls::sum_only)) return;
    for (const int64_t size : sizes) {
      if (planned(size)) continue;
      const bool before = std::exchange(c_.model.transposed, c_.model.either_layout);
      if (planned(size)) {
        verdict_.notes = {"linear weights are (out, in), as in nn.Linear: so is their padding"};
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
    for (const bool with_root : {true, false})
      for (size_t first = units.size(); first-- > 1;) {
        Unit& into = units[with_root ? 0 : first];
        Unit one = into;
        std::vector<std::string> names(1, one.name);
        const auto begin = units.begin() + int64_t(first) + !with_root;
        for (auto next = begin; next != units.end(); ++next) {
          std::ranges::copy(next->parameters, std::back_inserter(one.parameters));
          names.push_back(next->name);
          if (!has(size, one)) continue;
          into = one;
          units.erase(begin, next + 1);
          return say(str("a unit is missing: ", list_of(names), " are one unit of ",
                         with_commas(size),
                         " elements; fully_shard was not called for each of them"));
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
        if (p->shape.size() == 2 && has(size, twice)) {
          unit = twice;
          return say(str(unit.name, " has ", with_commas(size),
                         " elements, as many as with a second ", p->name,
                         ": is the head not tied to the embedding?"));
        }
        if (!has(size, part)) continue;
        const bool whole = std::ranges::any_of(
            seen_, [&](const Seen& s) { return s.left("reduce_scatter") && has(s.size, unit); });
        say(str("an extra unit: ", part.name, " of ", with_commas(size),
                " elements is gathered and reduced by itself",
                whole ? ", beside all of " + unit.name : ""));
        if (!whole) unit = rest;
        return units.push_back(part);
      }
  }

  // ---- calls that are planned -------------------------------------------------------------------

  // Sizes that differ from the plan's only by padding.
  void find_paddings() {
    std::map<std::string, int64_t> more;
    for (Seen& s : seen_) {
      const Planned rows = planned([&](auto& p) { return p.has_size(s.size); });
      if (std::ranges::any_of(rows, [&](auto* p) { return p->elements == s.size; })) continue;
      if (rows.empty()) continue;
      more[rows[0]->paddings.at(s.size)] += s.size - rows[0]->elements;
      s.size = rows[0]->elements;
    }
    for (const auto& [how, n] : more)
      say(str("padding: ", how, "; elements of a step that differ: ", with_commas(n)));
  }

  void match_each() {
    for (Seen& s : seen_)
      for (PlannedCalls& p : plan_.calls)
        if (s.left(p.collective) && s.size == p.elements && (s.group == 0 || s.group == p.group) &&
            !p.sum_only && (p.differs() || !p.number()))
          take(s, p), ++p.made;
  }
  void take(Seen& s, const PlannedCalls& p) {
    s.purpose = name(p.purpose);
    const bool same =
        s.dtype.empty() || s.dtype == p.dtype || (s.dtype == "16-bit" && p.dtype.ends_with("f16"));
    if (!same && s.size > small_size())
      ++other_types_[str(p.collective, " of ", s.purpose, " is ", s.dtype, " where ", p.dtype,
                         " is planned")];
  }

  // Calls whose sizes depend on buckets: all but the small ones must have the planned sum.
  void match_sums(Purpose purpose) {
    const Planned rows = planned([&](const PlannedCalls& p) {
      return p.purpose == purpose && p.missing() > 0 &&
             (p.sum_only || p.collective == "all_reduce");
    });
    if (rows.empty()) return;
    const PlannedCalls call = *rows[0];
    int64_t planned = 0, wanted = 0, sum = 0;
    for (const PlannedCalls* p : rows)
      planned += p->missing(), wanted += p->missing() * p->elements;
    std::vector<Seen*> parts;
    for (const int64_t small : {int64_t(0), int64_t(1), small_size(),
                                call.collective == "all_reduce" ? small_size() : 0}) {
      parts = left(call.collective, small), sum = size_of(parts);
      if (sum > 0 && sum % wanted == 0) break;
    }
    if (sum == 0 || (sum % wanted != 0 && !call.sum_only)) return;
    for (PlannedCalls* p : rows) p->named = true;
    for (Seen* s : parts) take(*s, call);
    const std::string calls =
        calls_of(std::ssize(parts), call.collective, sum) + " in all, planned: ";
    if (sum % wanted != 0)
      say(str(name(purpose), "s: ", calls, planned, " of ", with_commas(wanted)));
    else if (sum > wanted)
      say_multiple(sum / wanted, str(name(purpose), "s"));
    else if (std::ssize(parts) != planned)
      say(str("buckets: ", calls, planned), true);
  }

  // ---- calls that are not -----------------------------------------------------------------------

  void name_numbers() {
    static const std::map<std::string, const char*> texts = {
        {"barrier", "it waits, and moves nothing"},
        {"integers",
         "integers, such as counters, overflow flags, the order of buckets, used parameters "
         "(find_unused_parameters), a pickled object"},
        {"norm", "the gradient norm (clip_grad_norm_)"},
        {"numbers", "numbers of a step, such as the loss mean or a norm"}};
    std::map<std::tuple<std::string, int64_t, std::string>, int64_t> times;
    for (Seen& s : seen_) {
      if (!s.left() || s.size < 0) continue;
      const bool integers = s.dtype.starts_with('i') || s.dtype.starts_with('u');
      s.purpose = s.collective == "barrier"                                ? "barrier"
                  : integers && s.size <= 4096                             ? "integers"
                  : s.collective == "all_reduce" && s.size == parameters() ? "norm"
                  : s.size <= small_size()                                 ? "numbers"
                                                                           : "";
      if (!s.left()) ++times[{s.collective, s.size, s.purpose}];
    }
    for (const auto& [what, n] : times) {
      const auto& [collective, size, purpose] = what;
      say(calls_of(n, collective, size) + ": " + texts.at(purpose), true);
    }
  }

  // All-reduces in the place of reduce-scatters.
  void name_all_reduces() {
    const Planned scatters = planned([](const PlannedCalls& p) {
      return p.is("reduce_scatter", Purpose::gradient) && p.missing() > 0;
    });
    const std::vector<Seen*> reduces = left("all_reduce");
    if (scatters.empty() || reduces.empty()) return;
    int64_t missing = 0;
    for (PlannedCalls* p : scatters) p->named = true, missing += p->missing() * p->elements;
    for (Seen* s : reduces) s->purpose = name(Purpose::gradient);
    const std::string sum = with_commas(size_of(reduces));
    say(str("all-reduce instead of reduce-scatter: ", sum, " elements, where ",
            with_commas(missing), " are to be reduce-scattered; each rank sends (N-1)/N × ", sum,
            " elements more"));
  }

  // A multiple of all that is planned for a purpose, or a part of it.
  void name_multiples() {
    std::map<int64_t, std::string> multiples;
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      const Planned rows =
          planned([&](const auto& p) { return p.purpose == purpose && !p.sum_only && !p.named; });
      if (rows.empty()) continue;
      const int64_t planned = rows[0]->planned, made = rows[0]->made;
      const bool alike = std::ranges::all_of(
          rows, [&](const PlannedCalls* p) { return p->planned * made == p->made * planned; });
      const bool last = purpose == Purpose::gradient && planned == made * A_;
      if (!alike || made == planned || made == 0 || (made % planned != 0 && !last)) continue;
      for (PlannedCalls* p : rows) p->named = true;
      std::string& what = multiples[made / planned];
      what += str(what.empty() ? "" : " and ", name(purpose), "s");
    }
    for (const auto& [times, what] : multiples)
      if (times > 0)
        say_multiple(times, what);
      else
        say(str("gradients are reduced with the last of ", A_, " micro-batches only ",
                "(set_requires_gradient_sync(False)): full gradients stay in between"));
  }
  void say_multiple(int64_t times, const std::string& what) {
    const std::string more =
        c_.marked ? "" : str("; or the file holds more steps: --steps ", times);
    if (what == "gradients" && !plan_.each)
      say(str("× ", times, ": gradients are reduced in each micro-batch, not once per step: ",
              "no_sync() is missing", more));
    else
      say(str("× ", times, ": ", what, " are communicated ", times, " times as often as planned; ",
              "of more micro-batches: --set gradient_accumulation_steps=", times * A_, more));
  }

  // All-gathers of units, by size: blocks have one.
  void name_gathers() {
    const Planned gathers =
        planned([](const auto& p) { return p.is("all_gather", Purpose::parameter); });
    const bool kept = std::ranges::any_of(gathers, [&](const PlannedCalls* p) {
      return A_ > 1 && p->planned == A_ && p->made == 1;  // from one micro-batch to the next
    });
    for (PlannedCalls* p : gathers) {
      if (!p->differs() || p->made == 0) continue;
      const int64_t units = std::ssize(p->units), once = units * A_, less = p->missing();
      const std::string all = list_of(p->units);
      std::string text =
          (less < 0 ? "gathered more often than planned: " : "gathered less often: ") + all;
      if (-less == once && p->planned == once)
        text = (all == "root" ? "root gathered twice" : "units gathered twice: " + all) +
               ": resharded after forward (reshard_after_forward=True)";
      else if (kept && less == units * (A_ - 1))
        text =
            "units not resharded after backward: " + all + " (set_reshard_after_backward(False))";
      else if (p->planned == 2 * once && less > 0 && less % A_ == 0)
        text = str("units not resharded: one gather is missing for ", less / A_, " of the ", units,
                   " units ", all, " (reshard_after_forward=False)");
      say(str(text, " (", calls_of(p->made, "all_gather", p->elements), ", planned: ", p->planned,
              ")"));
      p->named = true;
    }
  }

  void name_the_rest() {
    for (const auto& [text, n] : other_types_)
      say(str("another dtype: ", text, " (", plural(n, "call"), ")"));
    const std::vector<Seen*> broadcasts = left("broadcast");
    if (!broadcasts.empty() && size_of(broadcasts) == c_.model.all().numel()) {
      say("parameters are broadcast by their owners (ZeroRedundancyOptimizer), not all-gathered");
      for (Seen* s : broadcasts) s->purpose = "other";
    }
    std::map<std::pair<std::string, int64_t>, int64_t> extra;
    for (Seen& s : seen_)
      if (s.left()) s.purpose = "other", ++extra[{s.collective, s.size}];
    for (const PlannedCalls* p : planned([](const auto& p) { return p.differs(); }))
      if (p->missing() < 0)
        extra[{p->collective, p->elements}] -= p->missing();
      else
        say(str("missing: ", calls_of(p->missing(), p->collective, p->elements), " for the ",
                name(p->purpose)),
            p->number());
    int64_t shown = 0;
    for (const auto& [what, n] : extra)
      if (++shown <= 6) say("not planned: " + calls_of(n, what.first, what.second));
    if (shown > 6) say(str("not planned: calls of ", shown - 6, " more sizes"));
  }

  void count() {
    for (const PlannedCalls& p : plan_.calls) {
      auto& row = verdict_.rows[{p.collective, name(p.purpose)}];
      row[1] += p.planned, row[3] += p.planned * p.elements;
    }
    for (const Seen& s : seen_) {
      auto& row = verdict_.rows[{s.collective, s.purpose}];
      ++row[0], row[2] += std::max<int64_t>(0, s.elements);
    }
  }

  TrafficCase c_;
  const int64_t A_;
  TrafficPlan plan_;
  TrafficVerdict verdict_;
  std::vector<Seen> seen_;
  std::map<std::string, int64_t> other_types_;
};

}  // namespace

TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls) {
  return Comparison(c, calls).run();
}

}  // namespace zl::cli
