// The checks of exercise 02. The script says when each gradient is final, and what it must be.
#include <algorithm>

#include "tutorials/exercises/02_final_gradient/script_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace final_gradient_checks;

enum class Is { right, shared, never, early, late, twice, unordered, wrong, changed };

// One parameter in one step: what it must come to, and what was observed.
struct Final {
  int step = 0, parameter = 0, event = -1;  // event: at which the gradient is final
  Values sum, in_last, last;  // of contributions: all, of the last micro-batch, the last one
  int uses = 0, checkpointed = 0, contributions = 0;  // in the last micro-batch

  int calls = 0, call = 0, called = 0;  // of ready(): how many, which is the first, its event
  bool before_last = false;             // called before the last micro-batch
  Values got, after, with_before;       // at ready(), after the step, sum + after the step before
  Is is = Is::right;
};

// In the order in which they must be ready.
std::vector<Final> finals(const Script& script) {
  std::vector<Final> all, now;
  for (size_t at = 0; at < script.events.size(); ++at) {
    const Event& event = script.events[at];
    if (event.kind == Kind::begin_step) now.clear();
    for (size_t p = now.size(); p < script.sizes.size(); ++p)
      now.push_back({event.step, int(p), -1, Values(size_t(script.sizes[p]))});
    Final& f = now[size_t(event.parameter)];
    if (event.kind == Kind::use) {
      f.uses += event.use == Use::recorded || event.use == Use::checkpointed;
      f.checkpointed += event.use == Use::checkpointed;
    } else if (event.kind == Kind::contribution) {
      f.last.assign(event.values.begin(), event.values.end());
      if (f.contributions == 0) f.in_last.assign(f.last.size(), 0);
      for (size_t i = 0; i < f.last.size(); ++i) f.sum[i] += f.last[i], f.in_last[i] += f.last[i];
      if (++f.contributions == f.uses && event.last) f.event = int(at);
    }
    for (Final& one : now) {
      if (event.kind != Kind::end_backward) break;
      if (!event.last) one.uses = one.checkpointed = one.contributions = 0;
      if (event.last && one.event < 0) one.event = int(at);
      if (event.last) all.push_back(one);
    }
  }
  std::ranges::stable_sort(all, {}, &Final::event);
  return all;
}

void put_observed(const Record& seen, const Script& script, std::vector<Final>& all) {
  const std::vector<ReadyCall> calls = seen.rows<ReadyCall>("calls");
  for (int i = 0; i < int(all.size()); ++i) {
    Final& f = all[size_t(i)];
    const auto list = [&](const char* what, int step) {
      const std::string name = str(what, " ", step, " ", f.parameter);
      return seen.numbers.contains(name) ? seen.list(name) : Values();
    };
    for (int k = int(calls.size()); k-- > 0;)
      if (const auto& [step, p, event] = calls[size_t(k)]; step == f.step && p == f.parameter)
        ++f.calls, f.call = k, f.called = event;
    f.before_last = !script.events[size_t(f.called)].last;
    f.got = list("ready", f.step), f.after = list("after", f.step), f.with_before = f.sum;
    for (size_t k = 0; const double before : list("after", f.step - 1))
      f.with_before.at(k++) += before;
    f.is = !list("shared", f.step).empty() ? Is::shared
           : f.calls == 0                  ? Is::never
           : f.called < f.event            ? Is::early
           : f.called > f.event            ? Is::late
           : f.calls > 1                   ? Is::twice
           : f.call != i                   ? Is::unordered
           : f.got != f.sum                ? Is::wrong
           : f.after != f.sum              ? Is::changed
                                           : Is::right;
  }
}

// The first row counts that all gradients of its kind fit; nullptr: they do.
using F = const Final&;
bool in(const char* check) { return options().is(check); }
const std::tuple<Is, bool (*)(F), const char*> kMeanings[] = {
    {Is::shared, nullptr,
     "a gradient shares the memory of a contribution, which is used again: use kernel::copy"},
    {Is::early, [](F f) { return f.before_last && f.calls > 1; },
     "ready() is called in every micro-batch: before the last one the gradient is not final"},
    {Is::early, [](F f) { return f.before_last; },
     "ready() is called in the first micro-batch: later ones still add to the gradient"},
    {Is::late, [](F f) { return f.uses == f.checkpointed && f.uses > 0; },
     "checkpointed uses are not counted: backward runs them again, and then they contribute"},
    {Is::early, [](F f) { return f.checkpointed > 0; },
     "a checkpointed use is counted only when it runs again: until then another use seems last"},
    {Is::early, [](F) { return in("tied weights"); },
     "ready() is called with the first contribution: there is one for each use of a parameter"},
    {Is::early, nullptr, "ready() is called too early: the gradient is not final yet"},
    {Is::late, [](F) { return in("evaluation in between"); },
     "uses of evaluation are counted: no backward pass follows, so they never contribute"},
    {Is::late, [](F) { return in("each parameter used once"); },
     "every gradient is ready at the end of backward only: no reduction overlaps with backward"},
    {Is::late, [](F) { return in("a branch without a gradient"); },
     "a use without a contribution is still expected in the next micro-batch: begin with 0"},
    {Is::late, [](F f) { return f.checkpointed > 0; },
     "a checkpointed use is counted twice, when it runs and runs again: it contributes once"},
    {Is::late, nullptr,
     "ready() is called too late: the reduction could have run during the rest of backward"},
    {Is::never, [](F f) { return f.step > 0; },
     "what was ready in one step is taken for ready in the next: begin_step() must forget it"},
    {Is::never, [](F) { return in("unused parameters"); },
     "a parameter that no micro-batch uses is never ready: a rank that uses it would wait"},
    {Is::never, [](F f) { return f.uses == 0; },
     "a parameter that only earlier micro-batches use is never ready: its gradient is lost"},
    {Is::never, nullptr, "ready() is never called for a parameter: other ranks would wait"},
    {Is::twice, nullptr, "ready() is called twice for a parameter in a step: it is reduced twice"},
    {Is::unordered, nullptr,
     "at the end of backward parameters must be ready in the order of their numbers, on all ranks"},
    {Is::wrong, [](F f) { return f.after == f.sum; },
     "ready() is called before the accumulation: what is missing then is added afterwards"},
    {Is::wrong, [](F f) { return f.last.empty(); },
     "a gradient without a contribution in this step is not 0: it holds what was there before"},
    {Is::wrong, [](F f) { return std::isnan(f.got[0]); },
     "a gradient is NaN, as new buffers are: the first contribution of a step must set it"},
    {Is::wrong, [](F f) { return f.got == f.last && f.contributions > 1; },
     "the gradient is the last contribution alone: later contributions must be added"},
    {Is::wrong, [](F f) { return f.got == f.in_last; },
     "ready() sees the gradient of the last micro-batch alone: earlier ones are missing"},
    {Is::wrong, [](F f) { return f.got == f.with_before; },
     "the gradients of earlier steps are still in the sum: the first contribution must set it"},
    {Is::wrong, nullptr, "a gradient is not the sum of the step's contributions"},
    {Is::changed, nullptr,
     "a gradient changes after ready(): its reduction may have read it before, or not yet"}};

std::string details(const Script& script, const Final& f) {
  const auto when = [&](int at) {
    static const char* const kKinds[] = {"begin_step()", "a use", "begin_backward()",
                                         "its contribution", "the end of backward"};
    const Event& e = script.events[size_t(at)];
    int number = 0;  // of a contribution, in this micro-batch
    for (; at >= 0 && script.events[size_t(at)].micro_batch == e.micro_batch; --at)
      number += script.events[size_t(at)].kind == e.kind &&
                script.events[size_t(at)].parameter == f.parameter;
    return str(kKinds[size_t(e.kind)], e.kind == Kind::contribution ? str(" ", number) : "",
               " of micro-batch ", e.micro_batch + 1);
  };
  std::string text =
      str("step ", f.step + 1, ": the gradient of parameter ", f.parameter, " is final at ",
          when(f.event), "; ready(", f.parameter, ") is ",
          f.calls == 0 ? "never called" : str("call ", f.call + 1, ", at ", when(f.called)));
  const Values& is = f.is == Is::wrong ? f.got : f.after;
  size_t k = 0;
  while (f.is >= Is::wrong && is.at(k) == f.sum[k]) ++k;
  if (f.is >= Is::wrong) text += str("\nelement ", k, " is ", is[k], ", must be ", f.sum[k]);
  return text;
}

void check() {
  const Record seen = observe();
  const Script script = make_script(options());
  std::vector<Final> all = finals(script);
  put_observed(seen, script, all);
  for (const auto& [is, fits, meaning] : kMeanings) {
    const auto other = [&](F f) { return f.is != is || !fits || fits(f); };
    const auto one = std::ranges::find(all, is, &Final::is);
    if (one != all.end() && std::ranges::all_of(all, other)) fail(meaning, details(script, *one));
  }
}

}  // namespace

TEST_CASE("each parameter used once", "[02][one use][10 points]") { check(); }
TEST_CASE("tied weights", "[02][uses][15 points]") { check(); }
TEST_CASE("unused parameters", "[02][uses][10 points]") { check(); }
TEST_CASE("three micro-batches", "[02][accumulation][15 points]") { check(); }
TEST_CASE("used in the first micro-batch only", "[02][accumulation][10 points]") { check(); }
TEST_CASE("three steps", "[02][accumulation][10 points]") { check(); }
TEST_CASE("evaluation in between", "[02][passes][10 points]") { check(); }
TEST_CASE("checkpointed passes", "[02][passes][10 points]") { check(); }
TEST_CASE("a branch without a gradient", "[02][passes][10 points]") { check(); }

}  // namespace zl::exercises
