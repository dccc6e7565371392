// The checks of exercise 09. The expected schedule is read from the events of a run of the
// library's zero3 on the meta backend; the expected peak is its closed formula.
#include <algorithm>
#include <numeric>

#include "dist/ordered/meta_communicator.h"
#include "stages/predict/peaks.h"
#include "stages/schedule/step_schedule.h"
#include "tensor/backend.h"
#include "tutorials/exercises/09_prefetch/prefetch_case.h"
#include "tutorials/exercises/judge/flat_units.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace prefetch_checks;
using Entries = std::vector<ScheduleEntry>;

// ---- what is right -----------------------------------------------------------------------------

Overlap overlap_of(const PrefetchTask& task) {
  return {.prefetch_bucket_size = task.prefetch_bucket_size,
          .max_live_parameters = task.max_live_parameters};
}

// [n] In forward order.
std::vector<int64_t> sizes_of(const PrefetchTask& task) {
  std::vector<int64_t> sizes;
  for (const int u : task.forward) sizes.push_back(task.full[size_t(u)]);
  return sizes;
}

Entries right_schedule(const PrefetchTask& task) {
  Entries entries;
  const char* runs = "";  // the unit that runs when all is unsharded that is to be; null: none will
  FlatUnits units(sizes_of(task));
  EventStream events;
  // One rank: the sizes are padded already, and their shards do not matter.
  const std::unique_ptr<Communicator> comm = meta_communicator(0, 1, events);
  Memory memory({DeviceKind::meta}, meta_backend(), events);
  const std::unique_ptr<Stage> stage = make_stage(
      units.list, *comm, {memory}, {.stage = StageKind::zero3, .overlap = overlap_of(task)});
  events.listen([&](const Event& event) {
    if (!runs) return;
    const std::string_view what = event.what;
    const auto add = [&](Action action, const char* unit) {
      entries.push_back({action, task.forward[size_t(std::atoi(unit + 5))]});  // of "unit 3"
    };
    if (event.kind == EventKind::unit && what != "prefetch") {
      if (*runs) add(Action::run, runs);
      runs = what.starts_with("before_") ? event.unit : "";
    }
    if (what != name(MemoryUse::parameter)) return;
    if (event.kind == EventKind::allocate) add(Action::unshard, event.unit);
    if (event.kind == EventKind::release) add(Action::reshard, event.unit);
  });
  StepSchedule schedule(*stage);
  Tape tape;
  const Var loss = run_unit(&tape, schedule, units.list[0], [&] {
    const Var x = tape.record(Tensor::empty(memory, MemoryUse::activation, {1}), {});
    for (size_t i = 1; i < units.list.size(); ++i)
      run_unit(&tape, schedule, units.list[i], [&] { return x; });
    return x;
  });
  schedule.backward(tape, loss, 1, true);
  runs = nullptr;  // the end of the stage is no part of it
  return entries;
}

// ---- what a wrong answer means -----------------------------------------------------------------

std::string text(const PrefetchTask& task) {
  std::string all =
      str("prefetch_bucket_size ", task.prefetch_bucket_size, ", max_live_parameters ",
          task.max_live_parameters, "\nforward order, and elements:");
  for (const int u : task.forward) all += str(" ", u, " (", task.full[size_t(u)], ")");
  return all;
}

// Around `at`: "unshard 0, unshard 3, >> run 0, …".
std::string text(const Entries& entries, size_t at) {
  const char* const kActions[] = {"unshard ", "run ", "reshard "};
  std::string all;
  for (size_t i = at < 6 ? 0 : at - 6; i < std::min(entries.size(), at + 4); ++i)
    all +=
        str(i == at ? " >> " : " ", kActions[size_t(entries[i].action) % 3], entries[i].unit, ",");
  return all + " …";
}

// The sentence on got[at], which is not right[at], where all entries before it are right.
std::string meaning(const PrefetchTask& t, const Entries& got, const Entries& right, size_t at) {
  if (at == got.size() || at == right.size())
    return str("the schedule has ", got.size(), " entries, must have ", right.size());
  std::vector<int> since(t.full.size(), -1);  // how many units had run at the unshard; -1: sharded
  int ran = 0;
  int64_t live = 0;  // [n]
  for (size_t i = 0; i < at; ++i) {
    const auto [action, unit] = right[i];
    ran += action == Action::run;
    if (action == Action::run) continue;
    since[size_t(unit)] = action == Action::unshard ? ran : -1;
    live += (action == Action::unshard ? 1 : -1) * t.full[size_t(unit)];
  }
  const ScheduleEntry is = got[at], must = right[at];
  if (size_t(is.unit) >= since.size()) return str("there is no unit ", is.unit);
  const bool is_sharded = since[size_t(is.unit)] < 0;
  if ((is.action == Action::unshard) != is_sharded)
    return is_sharded ? "a unit runs, or is resharded, that is not unsharded"
                      : "a unit is unsharded that already is: its all-gather is made twice";
  if (must.action == Action::reshard)
    return "a unit is not resharded right after it ran: it takes memory with the next one";
  if (is.action == Action::reshard)
    return "a unit is resharded too early: others after they ran, root after the last one";
  if (is.action == must.action)
    return "the units do not run, or are not unsharded, in the order of the pass";

  // One of the two is `run`, and the other one unshards u before it. The prefetch visits the units
  // before u: all, those unsharded for an earlier unit, those sharded.
  const int u = must.action == Action::unshard ? must.unit : is.unit;
  const std::vector<int>& order = ran < int(since.size()) ? t.forward : t.backward;
  int64_t ahead = 0, earlier = 0, sharded = 0;  // [n]
  for (size_t i = size_t(ran) % since.size() + 1; i < order.size() && order[i] != u; ++i) {
    const int64_t n = t.full[size_t(order[i])];
    const int at_unshard = since[size_t(order[i])];
    ahead += n;
    if (at_unshard < 0) sharded += n;
    if (at_unshard >= 0 && at_unshard < ran) earlier += n;
  }
  live += t.full[size_t(u)];
  const int64_t bucket = t.prefetch_bucket_size;
  if (must.action == Action::unshard)
    return str("unit ", u, " is not unsharded ahead, as both numbers allow: ", ahead,
               " elements are before it, and ", live, " exist with it");
  if (ahead >= bucket && ahead - earlier < bucket)
    return "units ahead that are unsharded already do not count towards prefetch_bucket_size";
  if (ahead >= bucket)
    return str("one unit too many is unsharded ahead: the ", ahead,
               " elements before it fill the prefetch_bucket_size of ", bucket);
  if (sharded > 0) return "a unit that does not fit is skipped: the prefetch must end there";
  return str("the prefetch exceeds max_live_parameters: all full parameters are then ", live);
}

void check_schedules() {
  const Record seen = observe();
  size_t k = 0;
  for (const PrefetchTask& task : prefetch_tasks(options())) {
    const Entries got = seen.rows<ScheduleEntry>(str("schedule ", k++)),
                  right = right_schedule(task);
    if (got == right) continue;
    const size_t at = size_t(std::ranges::mismatch(got, right).in1 - got.begin());
    fail(meaning(task, got, right, at),
         str(text(task), "\nyours:   ", text(got, at), "\nexpected:", text(right, at)));
  }
}

void check_peaks() {
  const Record seen = observe();
  for (size_t k = 0; const PrefetchTask& t : prefetch_tasks(options())) {
    const std::vector<int64_t> units = sizes_of(t);
    const double is = seen.list("peak").at(k++), root = double(t.full[0]),
                 must = double(peaks_of({units, overlap_of(t)}).parameters),
                 limit = double(t.max_live_parameters),
                 all = std::accumulate(t.full.begin(), t.full.end(), 0.0),
                 largest = double(*std::max_element(t.full.begin() + 1, t.full.end()));
    compare({.what = "the peak",
             .is = {is},
             .must = {must},
             .known = {{is > std::max(must, limit) ? is : must,
                        "the peak is larger than the limit allows"},
                       {4 * must, "the peak is in bytes, not in elements"},
                       {must - root, "root is missing in the peak"},
                       {all,
                        "the peak is the sum of all units: most are resharded before others begin"},
                       {root + largest,
                        "only root and the largest unit are in the peak: units in flight are too"},
                       {root + largest + double(t.prefetch_bucket_size),
                        "prefetch_bucket_size is added, but whole units are unsharded"},
                       {limit, "the peak is max_live_parameters: whole units rarely reach it"}},
             .details = text(t)});
  }
}

}  // namespace

TEST_CASE("no prefetch", "[09][order][10 points]") { check_schedules(); }
TEST_CASE("one unit ahead", "[09][prefetch][15 points]") { check_schedules(); }
TEST_CASE("several units ahead", "[09][prefetch][20 points]") { check_schedules(); }
TEST_CASE("max_live_parameters", "[09][limit][30 points]") { check_schedules(); }
TEST_CASE("peak", "[09][peak][10 points]") { check_peaks(); }
TEST_CASE("peak under the limit", "[09][peak][15 points]") { check_peaks(); }

}  // namespace zl::exercises
