#include "tutorials/zerolab/check/differences.h"

#include <algorithm>
#include <map>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

bool integers(const std::string& type) { return type.starts_with('i') || type.starts_with('u'); }
bool same_type(const std::string& seen, const std::string& planned) {
  return seen.empty() || seen == planned || (seen == "16-bit" && planned.ends_with("f16"));
}

// "2 all-gathers of 12,704 elements".
std::string calls_of(int64_t n, std::string collective, int64_t elements) {
  std::ranges::replace(collective, '_', '-');
  const std::string size = elements < 0 ? "an unknown size" : plural(elements, "element");
  return str(n, " ", collective, n == 1 ? "" : "s", " of ", size);
}

// One rank and step.
class Comparison {
 public:
  Comparison(const TrafficCase& c, const std::vector<SeenCall>& calls)
      : c_(c), A_(c.config.accumulation), model_(as_wrapped(c, calls, verdict_.differences)) {
    plan_ = c.system.plan(model_, c.config, c.ranks);
    verdict_.notes = plan_.notes;
    for (const PlannedCall& p : plan_.calls) planned_.push_back({&p});
    for (const SeenCall& s : calls) seen_.push_back({&s, s.elements});
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
    name_types();
    count();
    return std::move(verdict_);
  }

 private:
  struct Planned {
    const PlannedCall* call;
    bool made = false;
    bool is(const char* collective, Purpose purpose) const {
      return call->collective == collective && call->purpose == purpose;
    }
  };
  struct Seen {
    const SeenCall* call;
    int64_t size;  // [n] as the plan has it, where only padding differs
    const PlannedCall* as = nullptr;
    std::string purpose = "";  // of what is named
    bool left(const std::string& collective) const {
      return !as && purpose.empty() && (collective.empty() || call->collective == collective);
    }
  };

  void say(const std::string& text, bool harmless = false) {
    verdict_.differences.push_back({text, harmless});
  }

  // Sizes that differ from the plan's only by padding.
  void find_paddings() {
    std::map<int64_t, std::pair<int64_t, std::string>> others;  // the plan's size, and how
    for (const PlannedCall& p : plan_.calls) others.insert({p.elements, {p.elements, ""}});
    const char* rowwise = "the first dimension of each parameter is padded, as by fully_shard";
    for (const auto& unit : model_.units) {
      const UnitSizes sizes = sizes_of(unit, c_.ranks, model_.either_layout);
      int64_t full = 0;
      for (const PlannedCall& p : plan_.calls)
        if (p.of == unit.name) full = std::max(full, p.elements);
      for (const PlannedCall& p : plan_.calls) {
        if (p.of != unit.name || p.elements == 0) continue;
        const auto other = [&](int64_t size, const char* how) {
          others.insert({size / (full / p.elements), {p.elements, how}});
        };
        other(sizes.transposed, full == sizes.rows ? "" : rowwise);
        other(sizes.rows, rowwise);
        other(sizes.exact, "nothing is padded");
        other(round_up(sizes.exact, c_.ranks), "a unit is padded as one, as by FSDP1");
        other(round_up(sizes.ours, 16 * c_.ranks), "parameters are padded as by zerolab");
      }
    }
    std::map<std::string, int64_t> more;
    for (Seen& s : seen_)
      if (const auto found = others.find(s.size); found != others.end()) {
        const auto& [planned, how] = found->second;
        if (!how.empty()) more[how] += s.size - planned;
        if (how.empty() && s.size != planned)
          verdict_.notes = {"linear weights are (out, in), as in nn.Linear: so is their padding"};
        s.size = planned;
      }
    for (const auto& [how, n] : more)
      say(str("padding: ", how, "; elements of a step that differ: ", with_commas(n)));
  }

  void match_each() {
    for (Planned& p : planned_)
      for (Seen& s : seen_) {
        const bool groups_differ = s.call->group > 0 && p.call->group != s.call->group;
        if (p.made || p.call->sum_only || groups_differ || s.size != p.call->elements ||
            !s.left(p.call->collective))
          continue;
        s.as = p.call;
        p.made = true;
      }
  }

  // Calls whose sizes depend on buckets: all but the small ones must have the planned sum.
  void match_sums(Purpose purpose) {
    std::vector<Planned*> planned;
    int64_t wanted = 0;
    for (Planned& p : planned_)
      if (p.call->purpose == purpose && !p.made &&
          (p.call->sum_only || p.call->collective == "all_reduce"))
        planned.push_back(&p), wanted += p.call->elements;
    for (const int64_t small : {int64_t(0), int64_t(1), small_size()}) {
      std::vector<Seen*> parts;
      int64_t sum = 0;
      for (Seen& s : seen_)
        if (!planned.empty() && s.left(planned[0]->call->collective) && s.size > small)
          parts.push_back(&s), sum += s.size;
      if (sum == 0 || sum % wanted != 0) continue;
      for (Planned* p : planned) p->made = true;
      for (Seen* s : parts) s->as = planned[0]->call;
      if (sum > wanted)
        say_multiple(sum / wanted, str(name(purpose), "s"), purpose == Purpose::gradient);
      if (sum == wanted && parts.size() != planned.size())
        say(str("buckets: ", calls_of(std::ssize(parts), planned[0]->call->collective, wanted),
                " in all where ", planned.size(), " are planned, by the size of buckets and the ",
                "order of gradients"),
            true);
      return;
    }
    if (planned.empty() || !planned[0]->call->sum_only) return;
    int64_t n = 0, sum = 0;
    for (Seen& s : seen_)
      if (s.left(planned[0]->call->collective) &&
          (s.size > small_size() || planned[0]->call->collective != "all_reduce"))
        ++n, sum += s.size, s.purpose = name(purpose);
    if (n == 0) return;
    for (Planned* p : planned) p->made = true;
    say(str(name(purpose), "s: ", calls_of(n, planned[0]->call->collective, sum), " in all where ",
            planned.size(), " of ", with_commas(wanted), " are planned"));
  }

  // Numbers of a step, which have nothing to do with how parameters are sharded.
  int64_t small_size() const { return std::max<int64_t>(16, model_.parameters() + 1); }
  std::pair<const char*, const char*> number_of(const Seen& s) const {
    const bool reduced = s.call->collective == "all_reduce";
    if (s.call->collective == "barrier") return {"barrier", "it waits, and moves nothing"};
    if (s.size < 0) return {"", ""};
    if (integers(s.call->dtype) && s.size <= 4096)
      return {"integers",
              "integers, such as counters, overflow flags, the order of buckets, used "
              "parameters (find_unused_parameters), a pickled object"};
    if (s.size > small_size()) return {"", ""};
    if (reduced && (s.call->functional || s.size == model_.parameters()))
      return {"norm", "the gradient norm (clip_grad_norm_)"};
    if (reduced && s.size == 1) return {"loss", "one number, such as the loss mean or a norm"};
    return {"numbers", "a few numbers, such as the loss or a norm"};
  }
  void name_numbers() {
    std::map<std::pair<std::string, int64_t>, std::pair<int64_t, std::string>> times;
    for (Seen& s : seen_) {
      if (!s.left("")) continue;
      const auto [purpose, what] = number_of(s);
      s.purpose = purpose;
      if (!*purpose) continue;
      auto& [n, meaning] = times[{s.call->collective, s.size}];
      ++n, meaning = what;
    }
    for (const auto& [call, is] : times)
      say(str(calls_of(is.first, call.first, call.second), ": ", is.second), true);
  }

  // All-reduces in the place of reduce-scatters.
  void name_all_reduces() {
    int64_t missing = 0, sum = 0;
    for (const Planned& p : planned_)
      if (!p.made && p.is("reduce_scatter", Purpose::gradient)) missing += p.call->elements;
    for (const Seen& s : seen_) sum += s.left("all_reduce") ? s.size : 0;
    if (missing == 0 || sum == 0) return;
    say(str("all-reduce instead of reduce-scatter: ", calls_of(1, "all_reduce", sum),
            " in all, where ", with_commas(missing),
            " are to be reduce-scattered; each rank sends ", "(N-1)/N × ", with_commas(sum),
            " elements more"));
    for (Planned& p : planned_) p.made |= p.is("reduce_scatter", Purpose::gradient);
    for (Seen& s : seen_)
      if (s.left("all_reduce")) s.purpose = "gradient";
  }

  // The plan's calls and the run's for a purpose, by collective and size.
  struct Counts {
    int64_t planned = 0, made = 0;
    bool differ() const { return planned != made; }
  };
  std::map<std::pair<std::string, int64_t>, Counts> counts_of(Purpose purpose) const {
    std::map<std::pair<std::string, int64_t>, Counts> all;
    for (const Planned& p : planned_)
      if (p.call->purpose == purpose && !p.call->sum_only)
        ++all[{p.call->collective, p.call->elements}].planned;
    for (const Seen& s : seen_)
      if (const auto found = all.find({s.call->collective, s.size}); found != all.end())
        ++found->second.made;
    return all;
  }

  // A multiple of all that is planned for a purpose, or a part of it.
  void name_multiples() {
    std::map<int64_t, std::string> multiples;
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      const auto counts = counts_of(purpose);
      if (counts.empty()) continue;
      const auto [planned, made] = counts.begin()->second;
      const bool all = std::ranges::all_of(counts, [planned = planned, made = made](const auto& c) {
        return c.second.planned * made == c.second.made * planned;
      });
      if (!all || made == planned || made == 0) continue;
      if (made % planned == 0)
        multiples[made / planned] +=
            str(multiples[made / planned].empty() ? "" : " and ", name(purpose), "s");
      else if (purpose == Purpose::gradient && planned == made * A_)
        say(str("gradients are reduced with the last of ", A_, " micro-batches only ",
                "(set_requires_gradient_sync(False)): full gradients stay in between"));
      else
        continue;
      for (Planned& p : planned_) p.made |= p.call->purpose == purpose;
      for (Seen& s : seen_)
        if (s.left("") && counts.contains({s.call->collective, s.size})) s.purpose = name(purpose);
    }
    for (const auto& [times, what] : multiples) say_multiple(times, what, what == "gradients");
  }
  bool reduces_each() const {  // gradients, in each micro-batch
    Config twice = c_.config;
    twice.accumulation *= 2;
    const auto reductions = [](const TrafficPlan& plan) {
      return std::ranges::count(plan.calls, Purpose::gradient, &PlannedCall::purpose);
    };
    return reductions(c_.system.plan(model_, twice, c_.ranks)) > reductions(plan_);
  }
  void say_multiple(int64_t times, const std::string& what, bool once) {
    const std::string more =
        c_.marked ? "" : str("; or the file holds more steps: --steps ", times);
    if (once && !reduces_each())
      say(str("× ", times, ": gradients are reduced ", times, " times per step where once is ",
              "planned: each micro-batch is reduced, because no_sync() is missing", more));
    else
      say(str("× ", times, ": ", what, " are communicated ", times, " times as often as planned; ",
              "with so many micro-batches add --set gradient_accumulation_steps=", times * A_,
              more));
  }

  // All-gathers of units, by size: blocks have one.
  void name_gathers() {
    bool kept = false;  // from one micro-batch to the next
    for (const auto& [key, n] : counts_of(Purpose::parameter))
      kept |= A_ > 1 && n.planned == A_ && n.made == 1;
    for (const auto& [key, n] : counts_of(Purpose::parameter)) {
      std::vector<std::string> units;
      const int64_t size = key.second;
      bool left = false;
      for (const Planned& p : planned_) {
        if (p.call->elements != size || !p.is("all_gather", Purpose::parameter)) continue;
        left |= !p.made;
        if (std::ranges::find(units, p.call->of) == units.end()) units.push_back(p.call->of);
      }
      for (const Seen& s : seen_) left |= s.left("all_gather") && s.size == size;
      if (!left || !n.differ() || n.made == 0) continue;
      say(gathers_text(units, n, kept) +
          str(" (", calls_of(n.made, "all_gather", size), " where ", n.planned, " are planned)"));
      for (Planned& p : planned_)
        p.made |= p.is("all_gather", Purpose::parameter) && p.call->elements == size;
      for (Seen& s : seen_)
        if (s.left("all_gather") && s.size == size) s.purpose = name(Purpose::parameter);
    }
  }
  std::string gathers_text(const std::vector<std::string>& units, const Counts& n,
                           bool kept) const {
    const int64_t U = std::ssize(units), more = n.made - n.planned;
    const std::string all =
        U == 1 ? units[0] : str(units[0], U > 2 ? " … " : " and ", units.back());
    if (more == U * A_ && n.planned == U * A_)
      return (units[0] == "root" ? "root gathered twice" : "units gathered twice: " + all) +
             ": resharded after forward, gathered again for backward (reshard_after_forward=True)";
    if (kept && -more == U * (A_ - 1))
      return "units not resharded after backward: " + all + " (set_reshard_after_backward(False))";
    if (n.planned == 2 * U * A_ && -more == U * A_)
      return "units not resharded: one gather is missing per unit, for backward: " + all +
             " (reshard_after_forward=False)";
    if (n.planned == 2 * U * A_ && more < 0 && more % A_ == 0)
      return str("units not resharded: one gather is missing for ", -more / A_, " of the ", U,
                 " units ", all, " (reshard_after_forward=False)");
    return (more > 0 ? "gathered more often than planned: " : "gathered less often: ") + all;
  }

  void name_the_rest() {
    std::map<std::pair<std::string, int64_t>, int64_t> extra;
    std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> missing;
    int64_t broadcast = 0, shown = 0;
    for (const Seen& s : seen_) broadcast += s.left("broadcast") ? s.size : 0;
    if (broadcast == model_.numel())
      say("parameters are broadcast by their owners (ZeroRedundancyOptimizer), not all-gathered");
    for (Seen& s : seen_) {
      if (!s.left("")) continue;
      if (s.call->collective != "broadcast" || broadcast != model_.numel())
        ++extra[{s.call->collective, s.size}];
      s.purpose = "other";
    }
    for (const Planned& p : planned_)
      if (!p.made) {
        auto& [n, elements] = missing[{p.call->collective, name(p.call->purpose)}];
        ++n, elements += p.call->elements;
      }
    for (const auto& [what, sum] : missing) {
      const bool number = what.second == "norm" || what.second == "loss";
      say(str("missing: ", calls_of(sum.first, what.first, sum.second), " in all for the ",
              what.second),
          number);
    }
    for (const auto& [what, n] : extra)
      if (++shown <= 6) say("not planned: " + calls_of(n, what.first, what.second));
    if (shown > 6) say(str("not planned: calls of ", shown - 6, " more sizes"));
  }

  void name_types() {
    std::map<std::string, int64_t> wrong;
    for (const Seen& s : seen_)
      if (s.as && !same_type(s.call->dtype, s.as->dtype) && s.size > small_size())
        ++wrong[str(s.call->collective, " of ", name(s.as->purpose), " is ", s.call->dtype,
                    " where ", s.as->dtype, " is planned")];
    for (const auto& [text, n] : wrong)
      say(str("another dtype: ", text, " (", plural(n, "call"), ")"));
  }

  void count() {
    std::map<std::pair<std::string, std::string>, TrafficOfPurpose> rows;
    const auto row = [&](const std::string& collective,
                         const std::string& purpose) -> TrafficOfPurpose& {
      return rows.insert({{collective, purpose}, {collective, purpose}}).first->second;
    };
    for (const Planned& p : planned_) {
      TrafficOfPurpose& r = row(p.call->collective, name(p.call->purpose));
      ++r.planned_calls, r.planned_elements += p.call->elements;
    }
    for (const Seen& s : seen_) {
      TrafficOfPurpose& r = row(s.call->collective, s.as ? name(s.as->purpose) : s.purpose);
      ++r.calls, r.elements += std::max<int64_t>(0, s.call->elements);
    }
    for (auto& [key, r] : rows) verdict_.rows.push_back(std::move(r));
  }

  const TrafficCase& c_;
  const int64_t A_;
  TrafficVerdict verdict_;
  const CheckedModel model_;
  TrafficPlan plan_;
  std::vector<Planned> planned_;
  std::vector<Seen> seen_;
};

}  // namespace

TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls) {
  return Comparison(c, calls).run();
}

}  // namespace zl::cli
