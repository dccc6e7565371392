#include "tutorials/zerolab/check/differences.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {
namespace {

bool integers(const std::string& type) { return type.starts_with('i') || type.starts_with('u'); }
bool same_type(const std::string& seen, const std::string& planned) {
  return seen.empty() || seen == planned ||
         (seen == "16-bit" && planned != "f32" && planned != "f64");
}

// "all-gather", for people.
std::string word(std::string collective) {
  std::ranges::replace(collective, '_', '-');
  return collective;
}
std::string calls_of(int64_t n, const std::string& collective, int64_t elements) {
  const std::string one = word(collective);
  return (n == 1 ? (std::string("aeio").find(one[0]) < 4 ? "an " : "a ") + one
                 : str(n, " ", one, "s")) +
         (elements < 0 ? " of an unknown size" : " of " + plural(elements, "element"));
}

// One rank and step.
class Comparison {
 public:
  explicit Comparison(const TrafficCase& c) : c_(c) {}

  TrafficVerdict run(const std::vector<SeenCall>& calls) {
    const bool by_unit = std::ranges::none_of(c_.system.plan(c_.model, c_.config, c_.ranks).calls,
                                              &PlannedCall::sum_only);
    model_ = by_unit ? as_wrapped(c_, calls, verdict_.differences) : c_.model;
    plan_ = c_.system.plan(model_, c_.config, c_.ranks);
    verdict_.notes = plan_.notes;
    for (const PlannedCall& p : plan_.calls) planned_.push_back({&p});
    for (const SeenCall& s : calls) seen_.push_back({&s, s.elements});
    find_paddings();
    match_each();
    match_sums();
    name_small_calls();
    name_reductions();
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
  };
  struct Seen {
    const SeenCall* call;
    int64_t size;  // [n] as the plan has it, where only padding differs
    const PlannedCall* as = nullptr;
    std::string purpose = "";  // of what is named
    bool named() const { return as || !purpose.empty(); }
  };

  void say(const std::string& text, bool harmless = false) {
    verdict_.differences.push_back({text, harmless});
  }
  bool is_unit(const PlannedCall& p) const {
    return std::ranges::any_of(model_.units, [&](const auto& u) { return u.name == p.of; });
  }

  // Sizes that differ from the plan's only by padding.
  void find_paddings() {
    struct Other {
      int64_t planned;
      std::string how;
    };
    std::map<int64_t, Other> others;
    for (const PlannedCall& p : plan_.calls) others.insert({p.elements, {p.elements, ""}});
    for (const PlannedCall& p : plan_.calls)
      for (const auto& unit : model_.units) {
        if (unit.name != p.of) continue;
        int64_t exact = 0, rows = 0, transposed = 0, ours = 0;
        for (const auto& q : unit.parameters) {
          exact += q.numel();
          ours += round_up(q.numel(), 16);
          rows += padded_rows(q.shape, c_.ranks);
          transposed +=
              padded_rows(q.shape, c_.ranks, model_.either_layout && q.name.starts_with("h."));
        }
        const bool layout = model_.either_layout && rows == p.elements;
        others.insert({transposed,
                       {p.elements,
                        layout ? "(out, in)"
                               : "each parameter's first dimension is padded, as by fully_shard"}});
        others.insert(
            {rows, {p.elements, "each parameter's first dimension is padded, as by fully_shard"}});
        others.insert({exact, {p.elements, "nothing is padded"}});
        others.insert({round_up(exact, c_.ranks),
                       {p.elements, "the unit is padded as one flat parameter, as by FSDP1"}});
        others.insert({round_up(ours, 16 * c_.ranks),
                       {p.elements, "each parameter is padded to 16 elements, as by zerolab"}});
      }
    std::map<std::string, int64_t> more;
    for (Seen& s : seen_) {
      const auto found = others.find(s.size);
      if (found == others.end() || found->second.how.empty()) continue;
      more[found->second.how] += s.size - found->second.planned;
      s.size = found->second.planned;
    }
    for (const auto& [how, elements] : more)
      if (how == "(out, in)")
        verdict_.notes.push_back(
            "linear weights are (out, in), as in nn.Linear, so their padding differs from that of "
            "(in, out)");
      else
        say(str("padding: ", how, "; all calls of a step have ", with_commas(std::abs(elements)),
                elements > 0 ? " more" : " fewer", " elements than planned"));
  }

  void match_each() {
    for (Planned& p : planned_)
      for (Seen& s : seen_) {
        const bool groups_differ = s.call->group > 0 && p.call->group != s.call->group;
        if (p.made || p.call->sum_only || s.named() || groups_differ ||
            s.size != p.call->elements || s.call->collective != p.call->collective)
          continue;
        s.as = p.call;
        p.made = true;
      }
  }

  // Calls whose sizes depend on buckets: all but the small ones must have the planned sum.
  void match_sums() {
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      std::vector<Planned*> planned;
      int64_t wanted = 0;
      for (Planned& p : planned_)
        if (p.call->sum_only && p.call->purpose == purpose)
          planned.push_back(&p), wanted += p.call->elements;
      if (planned.empty()) continue;
      for (const int64_t small : {int64_t(0), int64_t(1), small_size()}) {
        std::vector<Seen*> parts;
        int64_t sum = 0;
        for (Seen& s : seen_)
          if (!s.named() && s.call->collective == planned[0]->call->collective && s.size > small)
            parts.push_back(&s), sum += s.size;
        if (sum == 0 || sum % wanted != 0) continue;
        for (Planned* p : planned) p->made = true;
        for (Seen* s : parts) s->as = planned[0]->call;
        if (sum > wanted) say_multiple(sum / wanted, planned[0]->call->collective, purpose, wanted);
        if (sum == wanted && parts.size() != planned.size() && purpose == Purpose::gradient)
          say(str("buckets: ", calls_of(std::ssize(parts), planned[0]->call->collective, wanted),
                  " in all, where ", planned.size(),
                  " are planned: their number depends on bucket_cap_mb or reduce_bucket_size, and "
                  "on the order of the gradients"),
              true);
        break;
      }
    }
  }

  void say_multiple(int64_t times, const std::string& collective, Purpose purpose, int64_t each) {
    const int64_t A = c_.config.accumulation;
    if (purpose == Purpose::gradient && planned_once())
      say(str("× ", times, ": gradients are reduced ", times,
              " times per step where once is planned (", word(collective), "s of ",
              with_commas(times * each), " instead of ", with_commas(each), " elements): ",
              A == times
                  ? "each of the " + str(A) + " micro-batches is reduced, so no_sync() is missing"
                  : str("each micro-batch is reduced, so with ", times,
                        " of them no_sync() is missing", maybe_steps(times))));
    else
      say(str("× ", times, ": ", name(purpose), "s are communicated ", times,
              " times as often as planned (", word(collective), "): ", times * A,
              " micro-batches per step? Then add --set gradient_accumulation_steps=", times * A,
              maybe_steps(times)));
  }
  std::string maybe_steps(int64_t times) const {
    return c_.marked ? "" : str("; or the file holds several steps: --steps ", times);
  }
  // Whether gradients are reduced once per step, whatever the number of micro-batches.
  bool planned_once() const {
    Config twice = c_.config;
    twice.accumulation *= 2;
    const auto reductions = [&](const Config& config) {
      return std::ranges::count(c_.system.plan(model_, config, c_.ranks).calls, Purpose::gradient,
                                &PlannedCall::purpose);
    };
    return reductions(twice) == reductions(c_.config);
  }

  int64_t small_size() const { return std::max<int64_t>(16, model_.parameters() + 1); }

  // Numbers of a step, which have nothing to do with how parameters are sharded.
  void name_small_calls() {
    std::map<std::string, int64_t> times;
    const auto name_it = [&](Seen& s, const char* purpose, const std::string& text) {
      s.purpose = purpose;
      ++times[text];
    };
    for (Seen& s : seen_) {
      const SeenCall& call = *s.call;
      const std::string a_call = calls_of(1, call.collective, s.size);
      if (s.named()) continue;
      if (call.collective == "barrier")
        name_it(s, "barrier", "a barrier: it waits, and moves nothing");
      else if (s.size < 0)
        continue;
      else if (integers(call.dtype) && s.size <= 4096)
        name_it(s, "numbers",
                str(a_call, " of ", call.dtype,
                    ": integers, such as counters, the order of DDP's buckets, used parameters "
                    "(find_unused_parameters) or a "
                    "pickled object"));
      else if (s.size > small_size())
        continue;
      else if (call.collective == "all_reduce" &&
               (call.functional || s.size == model_.parameters()))
        name_it(s, "norm", a_call + ": the gradient norm (clip_grad_norm_)");
      else if (call.collective == "all_reduce" && s.size == 1)
        name_it(s, "loss", a_call + ": one number, such as the loss mean or a norm");
      else
        name_it(s, "numbers", a_call + ": a few numbers, such as a loss or a norm");
    }
    for (const auto& [text, n] : times) say((n > 1 ? str(n, " times ") : "") + text, true);
  }

  // A multiple of everything that is planned for a purpose, or a part.
  void name_multiples() {
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter}) {
      std::map<std::pair<std::string, int64_t>, std::pair<int64_t, int64_t>>
          classes;  // planned, made
      for (const Planned& p : planned_)
        if (p.call->purpose == purpose && !p.call->sum_only)
          ++classes[{p.call->collective, p.call->elements}].first;
      for (const Seen& s : seen_)
        if (const auto found = classes.find({s.call->collective, s.size}); found != classes.end())
          ++found->second.second;
      if (classes.empty()) continue;
      const auto [planned, made] = classes.begin()->second;
      const bool all = std::ranges::all_of(classes, [&](const auto& one) {
        return one.second.first * made == one.second.second * planned;
      });
      if (!all || made <= planned || made % planned != 0) {
        if (all && made > 0 && made < planned && planned % made == 0 &&
            c_.config.accumulation % (planned / made) == 0 && purpose == Purpose::gradient) {
          say(str("gradients are reduced ",
                  made == std::ssize(classes) ? "once"
                                              : str("1/", planned / made, " as often as planned"),
                  ": with the last micro-batch only (set_requires_gradient_sync(False) or "
                  "no_sync()), so full gradients stay between micro-batches"));
          take(purpose);
        }
        continue;
      }
      int64_t elements = 0;
      for (const auto& [key, counts] : classes) elements += key.second * counts.first;
      say_multiple(made / planned, classes.begin()->first.first, purpose, elements);
      take(purpose);
    }
  }
  // What is planned and made for a purpose is named.
  void take(Purpose purpose) {
    for (Planned& p : planned_) {
      if (p.call->purpose != purpose) continue;
      p.made = true;
      for (Seen& s : seen_)
        if (!s.named() && s.size == p.call->elements && s.call->collective == p.call->collective)
          s.as = p.call;
    }
  }

  // All-reduces in the place of reduce-scatters.
  void name_reductions() {
    int64_t missing = 0, sum = 0;
    for (const Planned& p : planned_)
      if (!p.made && p.call->collective == "reduce_scatter" && p.call->purpose == Purpose::gradient)
        missing += p.call->elements;
    for (const Seen& s : seen_)
      if (!s.named() && s.call->collective == "all_reduce") sum += s.size;
    if (missing == 0 || sum == 0) return;
    const int64_t exact = model_.numel();
    const bool same =
        sum % missing == 0 || sum % exact == 0 || missing % sum == 0 || missing % exact == 0;
    say(str("all-reduce instead of reduce-scatter: ", with_commas(sum),
            " elements are all-reduced where ", with_commas(missing),
            " are to be reduce-scattered, so each rank sends (N-1)/N × ", with_commas(sum),
            " elements more", same ? "" : ", and their sums differ"));
    for (Planned& p : planned_)
      p.made |= p.call->collective == "reduce_scatter" && p.call->purpose == Purpose::gradient;
    for (Seen& s : seen_)
      if (!s.named() && s.call->collective == "all_reduce") s.purpose = "gradient";
  }

  // All-gathers of units, by size: blocks have one.
  void name_gathers() {
    struct Gathers {
      int64_t planned = 0, made = 0;
      std::vector<std::string> units;
    };
    std::map<int64_t, Gathers> sizes;
    for (const Planned& p : planned_)
      if (p.call->collective == "all_gather" && p.call->purpose == Purpose::parameter &&
          is_unit(*p.call)) {
        Gathers& g = sizes[p.call->elements];
        ++g.planned;
        if (std::ranges::find(g.units, p.call->of) == g.units.end()) g.units.push_back(p.call->of);
      }
    for (const Seen& s : seen_)
      if (s.call->collective == "all_gather" && sizes.contains(s.size)) ++sizes[s.size].made;
    const int64_t A = c_.config.accumulation;
    for (const auto& [size, g] : sizes) {
      if (g.made == g.planned || g.made == 0) continue;
      const int64_t n = std::ssize(g.units), more = g.made - g.planned;
      const std::string units = n == 1 ? "unit " + g.units[0]
                                       : str("units ", g.units[0], n > 2 ? " … " : " and ",
                                             g.units.back()),
                        how_often =
                            str(" (all-gathers of ", with_commas(size), " elements: ", g.made,
                                " where ", g.planned, " are planned)");
      const bool root = n == 1 && g.units[0] == model_.units[0].name;
      if (root && more == A)
        say(
            str("root gathered twice: it is resharded after forward, and gathered again for "
                "backward; fully_shard keeps it unless reshard_after_forward=True is given",
                how_often));
      else if (more == n * A && g.planned == n * A)
        say(str(units, n == 1 ? " is" : " are",
                " resharded after forward, and gathered again for backward", how_often));
      else if (more < 0 && g.planned == 2 * n * A && -more == n * A)
        say(str("units not resharded: one gather is missing per unit and micro-batch of ", units,
                ", which stay", n == 1 ? "s" : "",
                " unsharded from forward to backward (reshard_after_forward=False)", how_often));
      else if (more < 0 && g.planned == 2 * n * A && -more % A == 0)
        say(str(-more / A, " of the ", n, " ", units,
                " not resharded after forward: one gather is missing for each "
                "(reshard_after_forward=False)",
                how_often));
      else if (more < 0 && A > 1 && -more == n * (A - 1))
        say(str(units, " not resharded after backward: ", A - 1, " gather", A > 2 ? "s are" : " is",
                " missing per unit, at the begin of the later micro-batches "
                "(set_reshard_after_backward(False))",
                how_often));
      else
        say(str(units, more > 0 ? " gathered more often" : " gathered less often", " than planned",
                how_often));
      for (Seen& s : seen_)
        if (!s.named() && s.call->collective == "all_gather" && s.size == size)
          s.purpose = "parameter";
      for (Planned& p : planned_)
        p.made |= p.call->collective == "all_gather" && p.call->elements == size;
    }
  }

  void name_the_rest() {
    std::map<std::pair<std::string, int64_t>, int64_t> extra;
    std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>> missing;
    for (Seen& s : seen_)
      if (!s.named()) ++extra[{s.call->collective, s.size}], s.purpose = "other";
    for (const Planned& p : planned_)
      if (!p.made) {
        auto& [n, elements] = missing[{p.call->collective, name(p.call->purpose)}];
        ++n, elements += p.call->elements;
      }
    for (const auto& [what, sum] : missing) {
      const bool number = what.second == "norm" || what.second == "loss";
      say(str("missing: ", calls_of(sum.first, what.first, sum.second),
              sum.first > 1 ? " in all" : "", " for the ", what.second, number ? "" : "s"),
          number);
    }
    int64_t shown = 0, more = 0;
    for (const auto& [what, n] : extra)
      if (++shown <= 6)
        say(str("not planned: ", calls_of(n, what.first, what.second), n > 1 ? " each" : ""));
      else
        more += n;
    if (more > 0) say(str("not planned: ", more, " more calls of other sizes"));
  }

  void name_types() {
    std::map<std::string, int64_t> wrong;
    for (const Seen& s : seen_)
      if (s.as && !same_type(s.call->dtype, s.as->dtype) && s.size > small_size())
        ++wrong[str("another dtype: ", word(s.call->collective), "s of ", name(s.as->purpose),
                    "s are ", s.call->dtype, " where ", s.as->dtype, " is planned")];
    for (const auto& [text, n] : wrong) say(text + str(" (", plural(n, "call"), ")"));
  }

  void count() {
    std::map<std::pair<std::string, std::string>, TrafficOfPurpose> rows;
    const auto row = [&](const std::string& collective,
                         const std::string& purpose) -> TrafficOfPurpose& {
      TrafficOfPurpose& r = rows[{collective, purpose}];
      r.collective = collective, r.purpose = purpose;
      return r;
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
  CheckedModel model_;
  TrafficPlan plan_;
  std::vector<Planned> planned_;
  std::vector<Seen> seen_;
  TrafficVerdict verdict_;
};

}  // namespace

TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls) {
  return Comparison(c).run(calls);
}

}  // namespace zl::cli
