// The checks of exercise 09. A schedule is followed entry by entry; the expected peak is the
// library's closed formula.
#include <algorithm>
#include <numeric>
#include <span>

#include "stages/predict/peaks.h"
#include "tutorials/exercises/09_prefetch/prefetch_case.h"
#include "tutorials/exercises/judge/judge.h"

namespace zl::exercises {
namespace {

using namespace prefetch_checks;

std::string text(const PrefetchTask& task) {
  std::string all =
      str("prefetch_bucket_size ", task.prefetch_bucket_size, ", max_live_parameters ",
          task.max_live_parameters, "\nforward order, and elements:");
  for (const int u : task.forward) all += str(" ", u, " (", task.full[size_t(u)], ")");
  return all;
}

std::string text(const ScheduleEntry& entry) {
  static constexpr const char* kActions[] = {" unshard ", " run ", " reshard "};
  return kActions[size_t(entry.action) % 3] + std::to_string(entry.unit);
}

// Where a schedule that is right so far has come to.
struct Progress {
  const PrefetchTask& t;
  size_t units = t.full.size(), ran = 0;                         // in both passes together
  std::vector<int64_t> since = std::vector<int64_t>(units, -1);  // ran at the unshard; -1: sharded
  int64_t live = 0;                                              // [n]
  int last = 0;                                                  // that ran, until it is resharded

  bool is_sharded(int u) const { return since[size_t(u)] < 0; }
  int64_t size(int u) const { return t.full[size_t(u)]; }
  // That runs next, and those after it.
  std::span<const int> order() const {
    return std::span(ran < units ? t.forward : t.backward).subspan(ran % units);
  }
  bool is_over() const { return ran == 2 * units && is_sharded(0); }

  // The one entry that the rules allow.
  ScheduleEntry next() const {
    if (last != 0 && !is_sharded(last)) return {Action::reshard, last};
    if (ran == 2 * units) return {Action::reshard, 0};
    const int running = order()[0];
    if (is_sharded(running)) return {Action::unshard, running};
    int64_t ahead = 0;  // [n]
    for (const int u : order().subspan(1)) {
      if (ahead >= t.prefetch_bucket_size) break;
      if (is_sharded(u) && live + size(u) > t.max_live_parameters) break;
      if (is_sharded(u)) return {Action::unshard, u};
      ahead += size(u);
    }
    return {Action::run, running};
  }
  void go(const ScheduleEntry& entry) {
    const auto [action, u] = entry;
    if (action == Action::run) ++ran, last = u;
    if (action == Action::unshard) since[size_t(u)] = int64_t(ran), live += size(u);
    if (action == Action::reshard) since[size_t(u)] = -1, live -= size(u), last = 0;
  }
  // The sentence on an entry that is not next().
  std::string meaning(const ScheduleEntry& is) const {
    const ScheduleEntry must = next();
    if (size_t(is.unit) >= units) return str("there is no unit ", is.unit);
    if ((is.action == Action::unshard) != is_sharded(is.unit))
      return is_sharded(is.unit)
                 ? "a unit runs, or is resharded, that is not unsharded"
                 : "a unit is unsharded that already is: its all-gather is made twice";
    if (must.action == Action::reshard)
      return "a unit is not resharded right after it ran: it takes memory with the next one";
    if (is.action == Action::reshard)
      return "a unit is resharded too early: others after they ran, root after the last one";
    if (is.action == must.action)
      return "the units do not run, or are not unsharded, in the order of the pass";

    // One of the two is `run`, and the other one unshards u before it. The prefetch visits the
    // units before u: all, and those unsharded for an earlier unit.
    const bool missing = must.action == Action::unshard;
    const int u = missing ? must.unit : is.unit;
    int64_t ahead = 0, earlier = 0;  // [n]
    for (const int before : order().subspan(1)) {
      if (before == u) break;
      ahead += size(before);
      if (!is_sharded(before) && since[size_t(before)] < int64_t(ran)) earlier += size(before);
    }
    if (missing)
      return str("unit ", u, " is not unsharded ahead, as both numbers allow: ", ahead,
                 " elements are before it, and ", live + size(u), " exist with it");
    if (ahead < t.prefetch_bucket_size)
      return str("the prefetch exceeds max_live_parameters: all full parameters are then ",
                 live + size(u), "; or it goes on after a unit that does not fit");
    if (ahead - earlier < t.prefetch_bucket_size)
      return "units ahead that are unsharded already do not count towards prefetch_bucket_size";
    return str("one unit too many is unsharded ahead: the ", ahead,
               " elements before it fill the prefetch_bucket_size of ", t.prefetch_bucket_size);
  }
};

void check_schedules() {
  const Record seen = observe();
  size_t k = 0;
  for (const PrefetchTask& task : prefetch_tasks(options())) {
    Progress progress{task};
    std::string before;
    for (const ScheduleEntry& is : seen.rows<ScheduleEntry>(str("schedule ", k++))) {
      if (progress.is_over()) fail("the schedule goes on after the last reshard", text(task));
      if (const ScheduleEntry must = progress.next(); is != must)
        fail(progress.meaning(is), str(text(task), "\nyours:   ", before, " >>", text(is),
                                       "\nexpected:", before, " >>", text(must)));
      progress.go(is);
      before += text(is) + ",";
    }
    if (!progress.is_over())
      fail("the schedule ends too early",
           str(text(task), "\nyours:   ", before, "\nexpected next:", text(progress.next())));
  }
}

void check_peaks() {
  const Record seen = observe();
  size_t k = 0;
  for (const PrefetchTask& t : prefetch_tasks(options())) {
    std::vector<int64_t> units;
    for (const int u : t.forward) units.push_back(t.full[size_t(u)]);
    const Overlap overlap{.prefetch_bucket_size = t.prefetch_bucket_size,
                          .max_live_parameters = t.max_live_parameters};
    const double is = seen.list("peak").at(k++), root = double(t.full[0]),
                 must = double(peaks_of({units, overlap}).parameters),
                 bucket = double(t.prefetch_bucket_size), limit = double(t.max_live_parameters);
    if (is == must) continue;
    const double all = std::accumulate(t.full.begin(), t.full.end(), 0.0),
                 largest = double(*std::max_element(t.full.begin() + 1, t.full.end()));
    const std::pair<double, const char*> known[] = {
        {4 * must, "the peak is in bytes, not in elements"},
        {must - root, "root is missing in the peak"},
        {all, "the peak is the sum of all units: most are resharded before others begin"},
        {root + largest, "only root and the largest unit are in the peak: units in flight are too"},
        {root + largest + bucket, "prefetch_bucket_size is added, but whole units are unsharded"},
        {limit, "the peak is max_live_parameters: whole units rarely reach it"},
        {is, is > std::max(must, limit) ? "the peak is larger than the limit allows"
                                        : "the peak is wrong"}};
    for (const auto& [peak, meaning] : known)
      if (is == peak)
        fail(meaning, str(text(t), "\nyours: ", int64_t(is), ", must be ", int64_t(must)));
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
