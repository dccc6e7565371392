#include <cmath>
#include <map>

#include "dist/call.h"
#include "tutorials/exercises/stages/judge_sizes.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::exercises {
namespace {

using cli::with_commas;

// Of one purpose: what each collective did in the whole run.
using Sent = std::map<Collective, Traffic>;

Sent sent_by(const StageEvidence& e, int rank, Purpose purpose) {
  const std::vector<double>& numbers = e.of_rank("traffic", rank);
  Sent all;
  for (size_t at = 0; at + 5 <= numbers.size(); at += 5) {
    const auto number = [&](size_t k) { return int64_t(numbers[at + k]); };
    if (Purpose(number(1)) == purpose)
      all[Collective(number(0))] = {number(2), number(3), number(4), e.c.ranks};
  }
  return all;
}

Sent predicted(const StageEvidence& e, const StageSizes& s, Purpose purpose) {
  const int64_t steps = e.c.steps;
  Sent all;
  if (purpose == Purpose::check) return all;  // after a gradient that is not finite
  for (const auto& [key, t] : s.prediction.traffic.rows())
    if (key.purpose == purpose)
      all[key.collective] = {t.calls * steps, t.elements * steps, t.sent_bytes_times_n * steps,
                             t.ranks};
  return all;
}

std::string calls_text(const Sent& rows, int ranks) {
  std::string text;
  for (const auto& [collective, row] : rows)
    text += str(text.empty() ? "" : ", ", row.calls, " x ", name(collective), " (",
                with_commas(row.sent_bytes_times_n / ranks), " B sent)");
  return text.empty() ? "nothing" : text;
}

// "6 calls per step", or of all steps together where they differ.
std::string per_step(int64_t calls, int64_t steps) {
  return calls % steps == 0 ? str(calls / steps, " calls per step")
                            : str(calls, " calls in ", steps, " steps");
}

std::string meaning_of_traffic(const StageCase& c, Purpose purpose, const Sent& is,
                               const Sent& must) {
  if (purpose != Purpose::gradient && purpose != Purpose::parameter)
    return str("the stage sends values as ", name(purpose),
               ": it must send gradients and parameters only");
  const std::string what = purpose == Purpose::gradient ? "gradient" : "parameter";
  if (is.empty()) return str("no ", what, "s are communicated");
  if (must.empty())
    return str("this stage sends no ", what, "s, but ", name(is.begin()->first), " is called");
  const auto& [expected, right] = *must.begin();
  if (!is.contains(expected))
    return str(name(is.begin()->first), " instead of ", name(expected), " for the ", what, "s",
               is.begin()->first == Collective::all_reduce
                   ? ": the bits may be right, but a rank sends twice as much"
                   : "");
  if (is.size() > 1)
    return str("more than ", name(expected), " is called for the ", what,
               "s: each further call costs as much again");
  const Traffic& row = is.at(expected);
  if (c.micro_batches > 1 && purpose == Purpose::gradient) {
    if (row.calls == right.calls * c.micro_batches)
      return "the gradients are reduced after every micro-batch; this stage reduces once per step";
    if (row.calls * c.micro_batches == right.calls)
      return "the gradients are reduced once per step; this stage keeps no full gradient between "
             "micro-batches, so that each must reduce";
  }
  if (row.calls != right.calls)
    return str("the ", what, "s are communicated too ",
               row.calls > right.calls ? "often" : "rarely", ": ", per_step(row.calls, c.steps),
               ", not ", right.calls / c.steps);
  return str("the ", what, "s' calls have the wrong number of elements");
}

// An update by a gradient that is not finite is skipped, with all that belongs to it.
Verdict judge_finite(const StageEvidence& e) {
  for (const char* what : {"loss", "norm"}) {
    const auto found = e.record.numbers.find(what);
    if (found == e.record.numbers.end()) continue;
    for (size_t step = 0; step < found->second.size(); ++step)
      if (!std::isfinite(found->second[step]))
        return {false,
                str("the ", *what == 'n' ? "gradient norm" : "loss", " of step ", step + 1,
                    " is not finite, so that the update was skipped and sent nothing: traffic is "
                    "judged when the bits are right"),
                ""};
  }
  return passed();
}

// A function starts a communication, and the schedule waits for it.
Verdict judge_waits(const StageEvidence& e, const StageSizes& s) {
  for (const StageCall& call : e.calls(0))
    if (call.waits > 0 && call.function != StageFunction::wait)
      return {false,
              str(name(call.function),
                  " waits for a collective itself: it must return the Work, "
                  "so that the schedule waits and units of one bucket communicate together"),
              str("first at event ", call.event, " of rank 0: ", s.text(call), " waits for ",
                  call.waits, call.waits == 1 ? " collective" : " collectives"),
              call.event};
  return passed();
}

}  // namespace

Verdict judge_traffic(const StageEvidence& evidence) {
  const StageSizes s = sizes_of(evidence.c);
  if (const Verdict finite = judge_finite(evidence); !finite.passed) return finite;
  for (int r = 0; r < evidence.c.ranks; ++r)
    for (const Purpose purpose : {Purpose::gradient, Purpose::parameter, Purpose::norm,
                                  Purpose::loss, Purpose::check, Purpose::checkpoint}) {
      const Sent is = sent_by(evidence, r, purpose), must = predicted(evidence, s, purpose);
      if (is != must)
        return {false, meaning_of_traffic(evidence.c, purpose, is, must),
                str("rank ", r, " of ", evidence.c.ranks, ", ", name(purpose), "s, in ",
                    evidence.c.steps, " steps: ", calls_text(is, evidence.c.ranks), "; must be ",
                    calls_text(must, evidence.c.ranks))};
    }
  return judge_waits(evidence, s);
}

}  // namespace zl::exercises
