#include <algorithm>
#include <functional>
#include <optional>

#include "tensor/error.h"
#include "tutorials/exercises/09_prefetch/schedules.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace {

using namespace prefetch_checks;
using Tasks = std::vector<PrefetchTask>;

const std::vector<Check> kChecks = {
    {kNone, "order", 10},  {kOne, "prefetch", 15},   {kBucket, "prefetch", 15},
    {kLimit, "limit", 15}, {kMisfit, "limit", 10},   {kTight, "limit", 5},
    {kPeak, "peak", 10},   {kPeakLimit, "peak", 10}, {kAll, "all", 10},
};

Verdict failed(std::string meaning, std::string details) {
  return {.passed = false, .meaning = std::move(meaning), .details = std::move(details)};
}

std::string text(const ScheduleEntry& entry) {
  const char* action = entry.action == Action::unshard ? "unshard"
                       : entry.action == Action::run   ? "run"
                                                       : "reshard";
  return str(action, " ", entry.unit);
}

// "unshard 0, unshard 3, run 0, …", around `at`.
std::string text(const Entries& entries, size_t at) {
  const size_t first = at < 6 ? 0 : at - 6, last = std::min(entries.size(), at + 4);
  std::string all = first > 0 ? "… " : "";
  for (size_t i = first; i < last; ++i) all += (i > first ? ", " : "") + text(entries[i]);
  return all + (last < entries.size() ? " …" : "");
}

std::string text(const PrefetchTask& task) {
  std::string units;
  for (const int u : task.forward)
    units += str(units.empty() ? "" : ", ", u, " (", task.full[size_t(u)], ")");
  const bool limited = task.max_live_parameters < int64_t(1) << 60;
  return str("units in forward order, with elements: ", units, "\nprefetch_bucket_size ",
             task.prefetch_bucket_size, limited ? ", max_live_parameters " : ", no limit",
             limited ? std::to_string(task.max_live_parameters) : "");
}

// ---- schedules -------------------------------------------------------------------------------

// Throws what grade() reports if the entries name no action.
Entries decoded(const Record& record, size_t k) {
  const auto found = record.numbers.find(str("schedule ", k));
  Entries entries;
  if (found == record.numbers.end()) return entries;
  for (size_t i = 0; i + 1 < found->second.size(); i += 2)
    entries.push_back({Action(int(found->second[i])), int(found->second[i + 1])});
  return entries;
}

// What no schedule may do, whatever its rules are; "" if nothing.
std::string impossible(const PrefetchTask& task, const Entries& entries, size_t& at) {
  std::vector<bool> unsharded(task.full.size());
  std::vector<int> runs = task.forward, ran;
  runs.insert(runs.end(), task.backward.begin(), task.backward.end());
  for (at = 0; at < entries.size(); ++at) {
    const ScheduleEntry& e = entries[at];
    if (e.unit < 0 || size_t(e.unit) >= task.full.size())
      return str("an entry names unit ", e.unit, "; the units are 0 to ", task.full.size() - 1);
    std::vector<bool>::reference is_unsharded = unsharded[size_t(e.unit)];
    if (e.action == Action::unshard && is_unsharded)
      return "a unit is unsharded that is unsharded already: its all-gather is made twice";
    if (e.action == Action::reshard && !is_unsharded) return "a unit is resharded that is sharded";
    if (e.action == Action::run && !is_unsharded) return "a unit runs that is not unsharded";
    if (e.action == Action::run) ran.push_back(e.unit);
    if (ran.size() > runs.size() || !std::equal(ran.begin(), ran.end(), runs.begin()))
      return "the units do not run in the order of task.forward and then task.backward";
    if (e.action != Action::run) is_unsharded = e.action == Action::unshard;
  }
  if (ran.size() < runs.size())
    return entries.empty() ? "the schedule is empty" : "the schedule ends before the last unit ran";
  if (std::ranges::find(unsharded, true) != unsharded.end())
    return "a unit is still unsharded at the end";
  return "";
}

std::string first_difference(const Entries& got, const Entries& right, size_t& at) {
  for (at = 0; at < got.size() && at < right.size(); ++at)
    if (!same({got[at]}, {right[at]})) break;
  const auto is = [&](const Entries& list, Action action) {
    return at < list.size() && list[at].action == action;
  };
  if (is(got, Action::unshard) && is(right, Action::unshard))
    return "another unit is unsharded ahead than the next one in the order of the pass";
  if (is(right, Action::unshard)) return "a unit is not unsharded, or too late";
  if (is(got, Action::unshard)) return "a unit is unsharded ahead that should not be yet";
  if (is(right, Action::reshard)) return "a unit is not resharded right after it ran";
  return "a unit is resharded too early";
}

Verdict judge_schedules(const Tasks& tasks, const Record& record) {
  std::vector<Entries> got, right;
  std::optional<size_t> wrong;
  for (size_t k = 0; k < tasks.size(); ++k) {
    got.push_back(decoded(record, k));
    right.push_back(library_run(tasks[k]).entries);
    if (!wrong && !same(got[k], right[k])) wrong = k;
  }
  if (!wrong) return {.passed = true};
  const Entries &is = got[*wrong], &expected = right[*wrong];
  size_t at = 0, impossible_at = 0;
  std::string meaning = first_difference(is, expected, at);
  const std::string never = impossible(tasks[*wrong], is, impossible_at);
  if (!never.empty()) meaning = never, at = std::min(at, impossible_at);
  for (const Mistake& mistake : kMistakes) {
    bool all = true;
    for (size_t k = 0; all && k < tasks.size(); ++k)
      all = same(got[k], simulated(tasks[k], mistake.rules));
    if (!all) continue;
    meaning = mistake.meaning;
    break;
  }
  return failed(meaning, str(text(tasks[*wrong]), "\nyours:    ", text(is, at),
                             "\nexpected: ", text(expected, at)));
}

// ---- peaks -----------------------------------------------------------------------------------

struct WrongPeak {
  const char* meaning;
  std::function<int64_t(const PrefetchTask&)> of;
};

int64_t sum_of_units(const PrefetchTask& task) {
  int64_t n = 0;
  for (const int64_t full : task.full) n += full;
  return n;
}

int64_t without_prefetch(const PrefetchTask& task) {
  return peak_of(task, simulated(task, {.none = true}));
}

const std::vector<WrongPeak> kWrongPeaks = {
    {"the peak is that of root and the largest unit: units whose all-gather is in flight take "
     "memory too",
     without_prefetch},
    {"root is missing in the peak",
     [](const PrefetchTask& task) { return right_peak(task) - task.full[0]; }},
    {"the peak is the sum of all units: most of them are resharded before others are unsharded",
     sum_of_units},
    {"prefetch_bucket_size is added to the peak without prefetch: whole units are unsharded, and "
     "the last one may exceed the bucket",
     [](const PrefetchTask& task) { return without_prefetch(task) + task.prefetch_bucket_size; }},
    {"the peak is max_live_parameters where the peak without a limit is larger: whole units rarely "
     "reach the limit",
     [](const PrefetchTask& task) {
       const int64_t unlimited = peak_of(task, simulated(task, {.ignores_limit = true}));
       return std::min(unlimited, task.max_live_parameters);
     }},
    {"the peak is in bytes, not in elements",
     [](const PrefetchTask& task) { return 4 * right_peak(task); }},
};

Verdict judge_peaks(const Tasks& tasks, const Record& record) {
  const auto found = record.numbers.find("peak");
  if (found == record.numbers.end() || found->second.size() != tasks.size())
    return failed("predicted_peak() gave no number", "");
  const std::vector<double>& got = found->second;
  const auto are = [&](const std::function<int64_t(const PrefetchTask&)>& of) {
    return std::ranges::equal(tasks, got, [&](const PrefetchTask& task, double peak) {
      return double(of(task)) == peak;
    });
  };
  if (are(right_peak)) return {.passed = true};
  size_t k = 0;
  while (double(right_peak(tasks[k])) == got[k]) ++k;
  const std::string details =
      str(text(tasks[k]), "\nyour peak: ", int64_t(got[k]), ", expected: ", right_peak(tasks[k]));
  for (const WrongPeak& wrong : kWrongPeaks)
    if (are(wrong.of)) return failed(wrong.meaning, details);
  for (const Mistake& mistake : kMistakes)
    if (are([&](const PrefetchTask& t) { return peak_of(t, simulated(t, mistake.rules)); }))
      return failed(str("the peak is that of another schedule: ", mistake.meaning), details);
  return failed("the predicted peak is wrong", details);
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const Tasks tasks = prefetch_tasks(check.name, options.seed);
  return asks_for_peaks(check.name) ? judge_peaks(tasks, record) : judge_schedules(tasks, record);
}

}  // namespace

Exercise exercise_09() {
  return {.number = 9,
          .name = "09_prefetch",
          .title = "Prefetch: when to unshard, and the peak that follows",
          .checks = kChecks,
          .headers = {"tutorials/exercises/09_prefetch/prefetch.h"},
          .functions = {},
          .defines = {"zl::exercises::prefetch_schedule(", "zl::exercises::predicted_peak("},
          .judge = judge};
}

}  // namespace zl::exercises
