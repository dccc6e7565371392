// What a run did beside the plan: each difference with its name.

#include <algorithm>
#include <tuple>

#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

bool same_type(const std::string& seen, const std::string& planned) {
  return seen.empty() || seen == planned || (seen == "16-bit" && planned.ends_with("f16"));
}

// "2 all-gathers of 12,704 elements".
std::string calls_of(int64_t n, std::string collective, int64_t elements) {
  std::ranges::replace(collective, '_', '-');
  return plural(n, collective.c_str()) + " of " +
         (elements < 0 ? "an unknown size" : plural(elements, "element"));
}

struct Seen : SeenCall {
  int64_t size;              // [n] as the plan has it, where only padding differs
  std::string purpose = "";  // "": not known yet
  bool left(const std::string& which = "") const {
    return purpose.empty() && (which.empty() || collective == which);
  }
};

// One rank and step.
class Comparison {
 public:
  Comparison(const TrafficCase& given, const std::vector<SeenCall>& calls)
      : c_(given), A_(given.config.accumulation) {
    fit_units(c_, calls, verdict_);
    if (!c_.plan.note.empty()) verdict_.notes.insert(c_.plan.note);
    for (const SeenCall& s : calls) seen_.push_back({s, s.elements});
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
  // Numbers of a step, which have nothing to do with how parameters are sharded, are at most this.
  int64_t small_size() const {
    return std::max<int64_t>(16, std::ssize(c_.model.parameters()) + 1);
  }

  // Sizes that differ from the plan's only by padding.
  void find_paddings() {
    std::map<int64_t, std::pair<int64_t, std::string>> others;  // the plan's size, and how
    for (const PlannedCalls& p : c_.plan.calls) others[p.elements] = {p.elements, ""};
    for (const auto& unit : c_.model.units) {
      const UnitSizes sizes = sizes_of(unit.parameters, c_.ranks);
      const std::pair<int64_t, const char*> forms[] = {
          {sizes.rows, "the first dimension of each parameter is padded, as by fully_shard"},
          {sizes.exact, "nothing is padded"},
          {round_up(sizes.exact, c_.ranks), "a unit is padded as one, as by FSDP1"}};
      std::set<int64_t> planned;  // the last is all of the unit, others a group's part of it
      for (const PlannedCalls& p : c_.plan.calls)
        if (std::ranges::count(p.units, unit.name)) planned.insert(p.elements);
      for (const int64_t n : planned)
        for (const auto& [size, how] : forms)
          others.insert({size / (*planned.rbegin() / n), {n, how}});
    }
    std::map<std::string, int64_t> more;
    for (Seen& s : seen_)
      if (const auto found = others.find(s.size); found != others.end()) {
        const auto& [size, how] = found->second;
        if (!how.empty()) more[how] += s.size - size;
        s.size = size;
      }
    for (const auto& [how, n] : more)
      say(str("padding: ", how, "; elements of a step that differ: ", with_commas(n)));
  }

  void match_each() {
    for (Seen& s : seen_)
      for (PlannedCalls& p : c_.plan.calls)
        if (s.left(p.collective) && s.size == p.elements && (s.group == 0 || s.group == p.group) &&
            !p.sum_only && (p.differs() || !p.number()))
          take(s, p), ++p.made;
  }
  void take(Seen& s, const PlannedCalls& call) {
    s.purpose = name(call.purpose);
    if (!same_type(s.dtype, call.dtype) && s.size > small_size())
      ++other_types_[str(call.collective, " of ", s.purpose, " is ", s.dtype, " where ", call.dtype,
                         " is planned")];
  }

  // Calls whose sizes depend on buckets: all but the small ones must have the planned sum.
  void match_sums(Purpose purpose) {
    std::vector<PlannedCalls*> all;
    int64_t planned = 0, wanted = 0, sum = 0;
    for (PlannedCalls& p : c_.plan.calls)
      if (p.purpose == purpose && p.missing() > 0 && (p.sum_only || p.collective == "all_reduce")) {
        all.push_back(&p), planned += p.missing();
        wanted += p.missing() * p.elements;
      }
    if (wanted == 0) return;
    const PlannedCalls& call = *all[0];
    std::vector<Seen*> parts;
    for (const int64_t small : {int64_t(0), int64_t(1), small_size(),
                                call.collective == "all_reduce" ? small_size() : 0}) {
      parts.clear(), sum = 0;
      for (Seen& s : seen_)
        if (s.left(call.collective) && s.size > small) parts.push_back(&s), sum += s.size;
      if (sum > 0 && sum % wanted == 0) break;
    }
    if (sum == 0 || (sum % wanted != 0 && !call.sum_only)) return;
    for (PlannedCalls* p : all) p->named = true;
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

  void name_numbers() {
    std::map<std::tuple<std::string, int64_t, std::string>, int64_t> times;
    const auto name = [&](Seen& s, const char* purpose, const char* text) {
      s.purpose = purpose;
      ++times[{s.collective, s.size, text}];
    };
    for (Seen& s : seen_) {
      const bool integers = s.dtype.starts_with('i') || s.dtype.starts_with('u');
      if (!s.left()) continue;
      if (s.collective == "barrier")
        name(s, "barrier", "it waits, and moves nothing");
      else if (integers && s.size >= 0 && s.size <= 4096)
        name(s, "integers",
             "integers, such as counters, overflow flags, the order of buckets, used parameters "
             "(find_unused_parameters), a pickled object");
      else if (s.collective == "all_reduce" && s.size == std::ssize(c_.model.parameters()))
        name(s, "norm", "the gradient norm (clip_grad_norm_)");
      else if (s.size >= 0 && s.size <= small_size())
        name(s, "numbers", "numbers of a step, such as the loss mean or a norm");
    }
    for (const auto& [what, n] : times) {
      const auto& [collective, size, text] = what;
      say(calls_of(n, collective, size) + ": " + text, true);
    }
  }

  // All-reduces in the place of reduce-scatters.
  void name_all_reduces() {
    int64_t missing = 0, sum = 0;
    std::vector<PlannedCalls*> scatters;
    for (PlannedCalls& p : c_.plan.calls)
      if (p.is("reduce_scatter", Purpose::gradient) && p.missing() > 0)
        scatters.push_back(&p), missing += p.missing() * p.elements;
    for (const Seen& s : seen_) sum += s.left("all_reduce") ? s.size : 0;
    if (missing == 0 || sum <= 0) return;
    say(str("all-reduce instead of reduce-scatter: ", with_commas(sum), " elements, where ",
            with_commas(missing), " are to be reduce-scattered; each rank sends (N-1)/N × ",
            with_commas(sum), " elements more"));
    for (PlannedCalls* p : scatters) p->named = true;
    for (Seen& s : seen_)
      if (s.left("all_reduce")) s.purpose = name(Purpose::gradient);
  }

  // A multiple of all that is planned for a purpose, or a part of it.
  void name_multiples() {
    std::map<int64_t, std::string> multiples;
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      std::vector<PlannedCalls*> all;
      for (PlannedCalls& p : c_.plan.calls)
        if (p.purpose == purpose && !p.sum_only && !p.named) all.push_back(&p);
      if (all.empty()) continue;
      const int64_t planned = all[0]->planned, made = all[0]->made;
      const bool alike = std::ranges::all_of(
          all, [&](const PlannedCalls* p) { return p->planned * made == p->made * planned; });
      const bool last = purpose == Purpose::gradient && planned == made * A_;
      if (!alike || made == planned || made == 0 || (made % planned != 0 && !last)) continue;
      for (PlannedCalls* p : all) p->named = true;
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
    if (what == "gradients" && !c_.plan.each)
      say(str("× ", times, ": gradients are reduced in each micro-batch, not once per step: ",
              "no_sync() is missing", more));
    else
      say(str("× ", times, ": ", what, " are communicated ", times, " times as often as planned; ",
              "of more micro-batches: --set gradient_accumulation_steps=", times * A_, more));
  }

  // All-gathers of units, by size: blocks have one.
  void name_gathers() {
    bool kept = false;  // from one micro-batch to the next
    for (const PlannedCalls& p : c_.plan.calls)
      kept |= p.is("all_gather", Purpose::parameter) && A_ > 1 && p.planned == A_ && p.made == 1;
    for (PlannedCalls& p : c_.plan.calls) {
      if (!p.is("all_gather", Purpose::parameter) || !p.differs() || p.made == 0) continue;
      const int64_t units = std::ssize(p.units), once = units * A_, less = p.missing();
      const std::string all = list_of(p.units);
      std::string text =
          (less < 0 ? "gathered more often than planned: " : "gathered less often: ") + all;
      if (-less == once && p.planned == once)
        text = (all == "root" ? "root gathered twice" : "units gathered twice: " + all) +
               ": resharded after forward (reshard_after_forward=True)";
      else if (kept && less == units * (A_ - 1))
        text =
            "units not resharded after backward: " + all + " (set_reshard_after_backward(False))";
      else if (p.planned == 2 * once && less > 0 && less % A_ == 0)
        text = str("units not resharded: one gather is missing for ", less / A_, " of the ", units,
                   " units ", all, " (reshard_after_forward=False)");
      say(str(text, " (", calls_of(p.made, "all_gather", p.elements), ", planned: ", p.planned,
              ")"));
      p.named = true;
    }
  }

  void name_the_rest() {
    for (const auto& [text, n] : other_types_)
      say(str("another dtype: ", text, " (", plural(n, "call"), ")"));
    int64_t broadcast = 0, shown = 0;
    for (const Seen& s : seen_) broadcast += s.left("broadcast") ? s.size : 0;
    const bool owners = broadcast > 0 && broadcast == c_.model.numel();
    if (owners)
      say("parameters are broadcast by their owners (ZeroRedundancyOptimizer), not all-gathered");
    std::map<std::pair<std::string, int64_t>, int64_t> extra;
    for (Seen& s : seen_) {
      if (!s.left()) continue;
      if (!owners || !s.left("broadcast")) ++extra[{s.collective, s.size}];
      s.purpose = "other";
    }
    for (const PlannedCalls& p : c_.plan.calls) {
      const int64_t less = p.missing();
      if (p.differs() && less < 0) extra[{p.collective, p.elements}] -= less;
      if (p.differs() && less > 0)
        say(str("missing: ", calls_of(less, p.collective, p.elements), " for the ",
                name(p.purpose)),
            p.number());
    }
    for (const auto& [what, n] : extra)
      if (++shown <= 6) say("not planned: " + calls_of(n, what.first, what.second));
    if (shown > 6) say(str("not planned: calls of ", shown - 6, " more sizes"));
  }

  void count() {
    for (const PlannedCalls& p : c_.plan.calls) {
      CountedCalls& row = verdict_.rows[{p.collective, name(p.purpose)}];
      row.planned_calls += p.planned, row.planned_elements += p.planned * p.elements;
    }
    for (const Seen& s : seen_) {
      CountedCalls& row = verdict_.rows[{s.collective, s.purpose}];
      ++row.calls, row.elements += std::max<int64_t>(0, s.elements);
    }
  }

  TrafficCase c_;
  const int64_t A_;
  TrafficVerdict verdict_;
  std::vector<Seen> seen_;
  std::map<std::string, int64_t> other_types_;
};

}  // namespace

std::string list_of(const std::vector<std::string>& names) {
  if (names.size() > 4) return names[0] + " … " + names.back();
  std::string all;
  for (size_t i = 0; i < names.size(); ++i)
    all += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return all;
}

TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls) {
  return Comparison(c, calls).run();
}

}  // namespace zl::cli
