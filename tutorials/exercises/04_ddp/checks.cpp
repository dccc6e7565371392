#include <algorithm>
#include <map>

#include "dist/call.h"
#include "tensor/error.h"
#include "tutorials/exercises/04_ddp/observed.h"

namespace zl::exercises {
namespace ddp {
namespace {

// What one rank did.
struct Observed {
  std::vector<Reduced> reduced;
  std::string misuse;  // of groups, or other collectives
};

Observed observe(const std::vector<DdpEvent>& events) {
  Observed seen;
  DdpEvent at;
  size_t step = 0;
  int64_t group = -1, groups = 0;
  for (const DdpEvent& e : events) switch (e.kind) {
      case DdpEvent::gradient_ready:
      case DdpEvent::backward_done:
      case DdpEvent::wait: at = e; [[fallthrough]];
      case DdpEvent::update:
        if (group >= 0) seen.misuse = "begin_group() without an end_group() after it";
        if (e.kind == DdpEvent::update) ++step;
        break;
      case DdpEvent::begin_group: group = groups++; break;
      case DdpEvent::end_group: group = -1; break;
      case DdpEvent::all_reduce:
        seen.reduced.push_back({step, e.a, e.b, at, group, false, {}});
        break;
      case DdpEvent::waited: {
        Reduced& call = seen.reduced.at(size_t(e.a));
        call.waited = call.step == step;
        call.waited_at = at;
        if (group >= 0)
          seen.misuse =
              "waits between begin_group() and end_group(): the calls of a group begin "
              "with end_group(), so with NCCL this waits forever";
        break;
      }
      case DdpEvent::other_call:
        seen.misuse = str("calls ", name(Collective(int(e.a))),
                          "; this exercise needs one all_reduce per unit and nothing else");
    }
  return seen;
}

std::string place(const DdpCase& c, const DdpEvent& at) {
  if (at.kind == DdpEvent::gradient_ready)
    return str("gradient_ready(", c.unit_name(size_t(at.a)), ") of micro-batch ", at.b + 1);
  if (at.kind == DdpEvent::backward_done) return str("backward_done() of micro-batch ", at.b + 1);
  return "wait()";
}

// ---- calls -----------------------------------------------------------------------------------

std::string bytes_text(const DdpCase& c, const std::vector<Reduced>& calls) {
  int64_t sent = 0, expected = 0;
  for (const Reduced& call : calls) sent += 4 * call.count;
  for (size_t step = 0; step < c.ready.size(); ++step)
    for (const DdpBucket& bucket : ddp_buckets(c, step, BucketRule::right))
      for (const size_t u : bucket.units) expected += 4 * c.sizes[u];
  const double factor = 2.0 * (c.ranks - 1) / c.ranks;
  return str("rank 0 sends ", factor * double(sent), " bytes; 2 (N-1)/N x 4 x the elements is ",
             factor * double(expected));
}

Failure judge_calls(const DdpCase& c, const std::vector<Reduced>& calls) {
  const std::string bytes = bytes_text(c, calls);
  const size_t passes = c.ready[0].size();
  std::map<std::pair<size_t, int64_t>, size_t> made;  // by step and unit
  for (const Reduced& call : calls) {
    if (call.unit < 0)
      return failed("an all-reduce of a tensor that is no unit's gradient: reduce each in place",
                    str(call.count, " elements in ", place(c, call.at)));
    const std::string unit = c.unit_name(size_t(call.unit));
    if (call.count != c.sizes[size_t(call.unit)])
      return failed("an all-reduce of a part of " + unit,
                    str(call.count, " of ", c.sizes[size_t(call.unit)], " elements"));
    ++made[{call.step, call.unit}];
  }
  const auto same = [&](size_t n) {
    return std::ranges::all_of(c.ready[0].back(), [&](size_t u) { return made[{0, u}] == n; });
  };
  if (passes > 1 && same(passes))
    return failed(str("every micro-batch is reduced: ", passes,
                      " all-reduces per unit and step, and as many times the bytes"),
                  bytes);
  for (const Reduced& call : calls)
    if (call.at.kind != DdpEvent::wait && size_t(call.at.b) + 1 < passes)
      return failed("a gradient is reduced before the last micro-batch has added to it: " +
                        c.unit_name(size_t(call.unit)),
                    "in " + place(c, call.at) + "\n" + bytes);
  for (size_t step = 0; step < c.ready.size(); ++step)
    for (size_t u = 0; u < c.sizes.size(); ++u) {
      const bool used = std::ranges::any_of(
          c.ready[step], [u](const auto& pass) { return std::ranges::count(pass, u) > 0; });
      const size_t n = made[{step, int64_t(u)}];
      const std::string where = str("step ", step + 1, ", ", c.unit_name(u), ": ", n, " calls\n");
      if (n > 1) return failed("a unit is reduced more than once in a step", where + bytes);
      if (n == 1 && !used)
        return failed(step == 0 ? "a unit is reduced that no micro-batch of the step has used"
                                : "a unit is reduced that only an earlier step has used: the state "
                                  "of that step is not cleared",
                      where + bytes);
      if (n == 0 && used) return failed("a unit is not reduced", where + bytes);
    }
  return {};
}

// ---- buckets ---------------------------------------------------------------------------------

// The calls of one step in groups. Calls outside of groups are groups of one.
std::vector<DdpBucket> buckets_of(const std::vector<Reduced>& calls) {
  std::vector<DdpBucket> buckets;
  int64_t group = -1;
  for (const Reduced& call : calls) {
    if (buckets.empty() || call.group < 0 || call.group != group) {
      buckets.emplace_back();
      buckets.back().at = call.at;
    }
    group = call.group;
    buckets.back().units.push_back(size_t(call.unit));
  }
  return buckets;
}

// By the units of each bucket in any order and, if asked, by what the reducer was called for.
bool alike(std::vector<DdpBucket> a, std::vector<DdpBucket> b, bool place) {
  return std::ranges::equal(a, b, [&](DdpBucket& x, DdpBucket& y) {
    std::ranges::sort(x.units);
    std::ranges::sort(y.units);
    return x.units == y.units && (!place || (x.at.kind == y.at.kind && x.at.a == y.at.a));
  });
}

std::string text_of(const DdpCase& c, const std::vector<DdpBucket>& buckets) {
  std::string text;
  for (const DdpBucket& bucket : buckets)
    text += str("\n  ", names(c, bucket.units), "  in ", place(c, bucket.at));
  return text;
}

Failure judge_buckets(const DdpCase& c, const std::vector<Reduced>& calls) {
  const auto is = buckets_of(calls), right = ddp_buckets(c, 0, BucketRule::right);
  if (alike(is, right, true)) return {};
  const std::string details = str("bucket_size ", c.bucket_size, "; buckets were", text_of(c, is),
                                  "\nexpected", text_of(c, right));
  const auto follows = [&](BucketRule rule) { return alike(is, ddp_buckets(c, 0, rule), false); };
  if (std::ranges::none_of(calls, [](const Reduced& call) { return call.group >= 0; }))
    return failed("no call is between begin_group() and end_group()", details);
  if (alike(is, right, false))
    return failed("the buckets are right, but not all are reduced when they are full", details);
  if (is.size() == calls.size())
    return failed("every unit is reduced alone: buckets have one unit each", details);
  if (is.size() == 1)
    return failed("one bucket holds all units: nothing is reduced while backward runs", details);
  if (follows(BucketRule::above_size))
    return failed("a bucket of exactly bucket_size elements is full, but is not reduced", details);
  if (follows(BucketRule::at_most_size))
    return failed("a bucket is reduced before the unit that makes it full joins it", details);
  if (follows(BucketRule::bytes))
    return failed("buckets are 4 times too small: bucket_size counts elements, not bytes", details);
  if (follows(BucketRule::never_restarts))
    return failed(
        "after the first bucket every unit is reduced alone: the count of elements does "
        "not restart",
        details);
  return failed("units are in other buckets than the rule says", details);
}

// ---- overlap ---------------------------------------------------------------------------------

Failure judge_overlap(const DdpCase& c, const std::vector<Reduced>& calls) {
  for (const Reduced& call : calls)
    if (call.waited && call.waited_at.kind == DdpEvent::gradient_ready)
      return failed(
          "waits while backward runs: backward cannot go on before the bucket is reduced",
          str(c.unit_name(size_t(call.unit)), " is waited for in ", place(c, call.waited_at)));
  if (std::ranges::none_of(
          calls, [](const Reduced& call) { return call.at.kind == DdpEvent::gradient_ready; }))
    return failed("nothing is reduced while backward runs",
                  "all calls are made after the last gradient_ready()");
  for (const Reduced& call : calls)
    if (!call.waited)
      return failed("the update begins before a Work was waited for",
                    c.unit_name(size_t(call.unit)));
  return {};
}

// ----------------------------------------------------------------------------------------------

Failure judge_communication(const Record& record) {
  const auto error = record.texts.find("communication");
  if (error == record.texts.end()) return {};
  if (error->second.find("dropped the Work") != std::string::npos)
    return failed("a Work was destroyed before wait() was called on it", error->second);
  if (error->second.find("same order") != std::string::npos ||
      error->second.find("has ended") != std::string::npos)
    return failed("the ranks make different calls, or the same calls in another order",
                  error->second);
  return failed("the ranks could not complete their calls", error->second);
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const DdpCase c = ddp_case(check.name, options.seed);
  const auto events = record.numbers.find("events 0");
  const Observed seen = observe(
      decode_events(events == record.numbers.end() ? std::vector<double>() : events->second));
  const std::vector<Reduced>& calls = seen.reduced;
  Failure failure;
  if (const auto error = judge_communication(record)) failure = error;
  if (!failure && !seen.misuse.empty()) failure = failed(seen.misuse);
  const bool of_values = check.group == "means" || check.group == "accumulation";
  if (!failure && of_values) failure = judge_values(c, record, calls);
  const bool other_tensors =
      std::ranges::any_of(calls, [](const Reduced& call) { return call.unit < 0; });
  if (!failure && (check.group == "accumulation" || check.group == "traffic" ||
                   (other_tensors && check.group != "means")))
    failure = judge_calls(c, calls);
  if (!failure && check.group == "buckets") failure = judge_buckets(c, calls);
  if (!failure && check.group == "overlap") failure = judge_overlap(c, calls);
  if (failure) return *failure;
  Verdict passed;
  passed.passed = true;
  return passed;
}

}  // namespace
}  // namespace ddp

Exercise exercise_04() {
  Exercise exercise;
  exercise.number = 4;
  exercise.name = "04_ddp";
  exercise.title = "DDP: when are gradients reduced?";
  const auto add = [&](const char* name, const char* group, int points) {
    Check& check = exercise.checks.emplace_back();
    check.name = name;
    check.group = group;
    check.points = points;
  };
  add("one rank", "means", 10);
  add("means at 2 ranks", "means", 10);
  add("means at 3 ranks", "means", 10);
  add("three micro-batches", "accumulation", 15);
  add("unused units", "accumulation", 10);
  add("two steps", "accumulation", 10);
  add("traffic", "traffic", 10);
  add("buckets", "buckets", 15);
  add("overlap", "overlap", 10);
  exercise.headers = {"tutorials/exercises/04_ddp/gradient_reducer.h", "dist/communicator.h",
                      "dist/work.h", "tensor/tensor.h"};
  exercise.functions = {"zl::Communicator::", "zl::Tensor::", "zl::GradientReducer::"};
  exercise.defines = {"zl::make_gradient_reducer("};
  exercise.judge = ddp::judge;
  return exercise;
}

}  // namespace zl::exercises
