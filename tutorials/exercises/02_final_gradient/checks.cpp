#include <algorithm>
#include <cmath>

#include "tensor/error.h"
#include "tutorials/exercises/02_final_gradient/simulation.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace {

using namespace final_gradient_checks;

const std::vector<Check> kChecks = {
    {kOnce, "one use", 10},       {kTied, "uses", 15},
    {kUnused, "uses", 10},        {kMicroBatches, "accumulation", 15},
    {kEarly, "accumulation", 10}, {kSteps, "accumulation", 10},
    {kEvaluation, "passes", 10},  {kCheckpointed, "passes", 10},
    {kNoGradient, "passes", 5},   {kAll, "all", 5},
};

Verdict failed(const std::string& meaning, const std::string& details = "") {
  return {.passed = false, .meaning = meaning, .details = details};
}

const Numbers& numbers(const Record& record, const std::string& name) {
  static const Numbers none;
  const auto found = record.numbers.find(name);
  return found == record.numbers.end() ? none : found->second;
}

// What follows a size at `at`; moves on.
Numbers list_at(const Numbers& all, size_t& at) {
  Numbers list;
  const double n = at < all.size() ? all[at++] : 0;
  while (double(list.size()) < n && at < all.size()) list.push_back(all[at++]);
  return list;
}

std::vector<Call> calls_of(const Record& record) {
  const Numbers& all = numbers(record, "ready");
  std::vector<Call> calls;
  for (size_t i = 0; i + 2 < all.size();) {
    Call call{.event = int(all[i]), .parameter = int(all[i + 1]), .gradient = {}};
    i += 2;
    call.gradient = list_at(all, i);
    calls.push_back(call);
  }
  return calls;
}

bool same_numbers(const Numbers& a, const Numbers& b) {
  return std::ranges::equal(
      a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same_calls(const std::vector<Call>& a, const std::vector<Call>& b) {
  return std::ranges::equal(a, b, [](const Call& x, const Call& y) {
    return x.event == y.event && x.parameter == y.parameter;
  });
}

bool same_gradients(const std::vector<Call>& a, const std::vector<Call>& b) {
  return std::ranges::equal(
      a, b, [](const Call& x, const Call& y) { return same_numbers(x.gradient, y.gradient); });
}

std::string text(const Numbers& list) {
  std::string all;
  for (const double x : list) all += str(all.empty() ? "(" : ", ", x);
  return all + ")";
}

// ---- when ready() is called ------------------------------------------------------------------

int step_of(const Script& script, int event) {
  return event < 0 ? -1 : script.events[size_t(event)].step;
}

// The call for a parameter in a step.
const Call* find(const Script& script, const std::vector<Call>& calls, int step, int parameter) {
  for (const Call& call : calls)
    if (call.parameter == parameter && step_of(script, call.event) == step) return &call;
  return nullptr;
}

// The first call that is wrong, in order of time.
Verdict first_wrong_call(const Script& script, const std::vector<Call>& got,
                         const std::vector<Call>& expected) {
  size_t i = 0;
  while (i < got.size() && i < expected.size() && same_calls({got[i]}, {expected[i]})) ++i;
  const bool extra = i < got.size() && (i == expected.size() || got[i].event < expected[i].event);
  if (extra) {
    const int p = got[i].parameter, step = step_of(script, got[i].event);
    const Call* right = find(script, expected, step, p);
    const std::string when = str("ready(", p, ") is called at ", describe(script, got[i].event));
    if (step < 0 || !right) return failed("ready() is called outside of a step", when);
    if (find(script, {got.begin(), got.begin() + int64_t(i)}, step, p))
      return failed(
          "ready() is called twice for a parameter in one step: it would be reduced twice", when);
    return failed("ready() is called too early: the gradient is not final yet",
                  str(when, "; it is final at ", describe(script, right->event)));
  }
  const int p = expected[i].parameter, step = step_of(script, expected[i].event);
  const Call* later = find(script, got, step, p);
  const std::string when =
      str("the gradient of parameter ", p, " is final at ", describe(script, expected[i].event));
  if (!later)
    return failed(
        "a parameter is never ready in a step: ranks that reduce it would wait "
        "for this one",
        when + "; ready() is not called for it in this step");
  if (later->event == expected[i].event)
    return failed(kWrongCalls.back().meaning,
                  str(when, "; ready(", got[i].parameter, ") is called before ready(", p, ")"));
  return failed(
      "ready() is called too late: the reduction could have run during the rest of backward",
      str(when, "; ready() is called at ", describe(script, later->event)));
}

Verdict judge_calls(const Script& script, const std::vector<Call>& got,
                    const std::vector<Call>& expected) {
  if (same_calls(got, expected)) return {.passed = true};
  Verdict verdict = first_wrong_call(script, got, expected);
  if (got.empty()) verdict.meaning = "ready() is never called";
  for (const Mistake& mistake : kWrongCalls) {
    Behaviour repeating = mistake.behaviour;
    repeating.repeats = true;
    if (got.empty() || !(same_calls(got, simulate(script, mistake.behaviour)) ||
                         same_calls(got, simulate(script, repeating))))
      continue;
    verdict.meaning = mistake.meaning;
    break;
  }
  return verdict;
}

// ---- gradients -------------------------------------------------------------------------------

Verdict judge_gradients(const Script& script, const std::vector<Call>& got,
                        const std::vector<Call>& expected) {
  size_t i = 0;
  while (i < got.size() && same_numbers(got[i].gradient, expected[i].gradient)) ++i;
  if (i == got.size()) return {.passed = true};
  const std::string details =
      str("ready(", got[i].parameter, ") at ", describe(script, got[i].event),
          ":\nthe gradient is ", text(got[i].gradient), ", expected ", text(expected[i].gradient));
  for (const Mistake& mistake : kWrongValues)
    if (same_gradients(got, simulate(script, mistake.behaviour)))
      return failed(mistake.meaning, details);
  if (std::ranges::any_of(got[i].gradient, [](double x) { return std::isnan(x); }))
    return failed(
        "a gradient is NaN: the buffers hold NaN at first, so the first contribution of a "
        "step must set the gradient, and one without a contribution must be set to 0",
        details);
  return failed("a gradient is not the sum of the step's contributions", details);
}

// What the buffers hold after the last backward pass of each step.
Verdict judge_afterwards(const Script& script, const Record& record,
                         const std::vector<Call>& calls) {
  for (size_t e = 0; e < script.events.size(); ++e) {
    const Event& event = script.events[e];
    if (event.kind != Event::Kind::end_backward || event.micro_batch + 1 < script.micro_batches)
      continue;
    const Numbers& all = numbers(record, str("after event ", e));
    size_t at = 0;
    for (int p = 0; p < int(script.sizes.size()); ++p) {
      const Numbers now = list_at(all, at);
      const Call* call = find(script, calls, event.step, p);
      if (call && !same_numbers(now, call->gradient))
        return failed(
            "a gradient changes after ready(): its reduction may be under way, so what is "
            "added then is lost, or added to the result",
            str("parameter ", p, " at ready(): ", text(call->gradient),
                ", at the end of backward: ", text(now)));
    }
  }
  return {.passed = true};
}

// The hook of a published tutorial: it runs before the gradient of this micro-batch is added to
// those of earlier ones.
bool added_afterwards(const Script& script, const Record& record,
                      const std::vector<Call>& expected) {
  return judge_afterwards(script, record, expected).passed;
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const Script script = make_script(check.name, options);
  const std::vector<Call> got = calls_of(record), expected = simulate(script);
  if (const Numbers& shared = numbers(record, "shares memory"); shared.size() == 2)
    return failed(
        "a gradient shares the memory of a contribution, which is used again: copy the "
        "values with kernel::copy instead of assigning the tensor",
        str("gradients.of[", shared[1], "] after ", describe(script, int(shared[0]))));
  const Verdict calls = judge_calls(script, got, expected);
  if (!calls.passed) return calls;
  Verdict gradients = judge_gradients(script, got, expected);
  if (gradients.passed) return judge_afterwards(script, record, got);
  if (added_afterwards(script, record, expected))
    gradients.meaning =
        "ready() is called before the accumulation: the reduction sees the last micro-batch alone, "
        "and the earlier ones are added to the buffer afterwards";
  return gradients;
}

}  // namespace

Exercise exercise_02() {
  return {.number = 2,
          .name = "02_final_gradient",
          .title = "When is a gradient final?",
          .checks = kChecks,
          .headers = {"tutorials/exercises/02_final_gradient/final_gradient.h", "tensor/kernels.h",
                      "tensor/tensor.h"},
          .functions = {"zl::Tensor::", "zl::kernel::accumulate", "zl::kernel::add",
                        "zl::kernel::copy", "zl::kernel::fill"},
          .defines = {"zl::exercises::observe("},
          .judge = judge};
}

}  // namespace zl::exercises
