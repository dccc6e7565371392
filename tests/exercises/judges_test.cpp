// The judges of exercises 05 to 07 and 09 to 11, without a student's file: what they say of
// records, that what they expect is the library's, and that their checks find each mistake that has
// a diagnosis.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <numeric>

#include "stages/predict/plan.h"
#include "stages/train/gpt_spec.h"
#include "tutorials/exercises/09_prefetch/schedules.h"
#include "tutorials/exercises/10_reshard/loads.h"
#include "tutorials/exercises/11_choose_stage/numbers.h"
#include "tutorials/exercises/grader/grade.h"
#include "tutorials/exercises/stages/judge_sizes.h"
#include "tutorials/exercises/stages/judge_stage.h"

// --- 05 to 07: numbers that no file within the rules can cause -----------------------------------

namespace zl::exercises {
namespace {

// The rows of a right stage's "traffic r".
std::vector<double> right_traffic(const StageCase& c) {
  const StageSizes s = sizes_of(c);
  std::vector<double> rows;
  for (const auto& [key, t] : s.prediction.traffic.rows())
    if (key.purpose != Purpose::check)
      for (const int64_t value : {int64_t(key.collective), int64_t(key.purpose), t.calls * c.steps,
                                  t.elements * c.steps, t.sent_bytes_times_n * c.steps})
        rows.push_back(double(value));
  return rows;
}

// Judges a right stage's record after `change`. Rank 1 is the one to change.
std::string said(const std::string& check, const std::function<void(Record&)>& change) {
  const CheckOptions options{.seed = 7};
  const StageCase c = stage_case(StageKind::zero1, check, options);
  const StageSizes s = sizes_of(c);
  Record record;
  record.numbers["loss"] = record.numbers["norm"] = std::vector<double>(size_t(c.steps), 1);
  for (int r = 0; r < c.ranks; ++r) {
    const auto put = [&](const char* what, std::vector<double> values) {
      record.numbers[str(what, " ", r)] = std::move(values);
    };
    const auto& rest = s.prediction.device.rest;
    put("traffic", right_traffic(c));
    put("calls", {});
    put("rest", {rest.begin(), rest.end()});
    put("tensors", {double(std::accumulate(rest.begin(), rest.end(), int64_t(0)))});
  }
  if (change) change(record);
  const Verdict verdict = stage_exercise(StageKind::zero1).judge({.name = check}, options, record);
  CHECK(verdict.passed == verdict.meaning.empty());
  return verdict.meaning;
}

void add_call(Record& record, const StageCall& call) {
  for (const double number : to_numbers({call})) record.numbers["calls 1"].push_back(number);
}

}  // namespace

TEST_CASE("the judge of a stage counts all that the stage sends", "[exercises]") {
  const auto send = [](Collective collective, Purpose purpose, int64_t calls) {
    return said("traffic", [=](Record& record) {
      auto& rows = record.numbers.at("traffic 1");
      for (size_t at = 0; at < rows.size(); at += 5)
        if (rows[at] == double(collective) && rows[at + 1] == double(purpose)) {
          rows[at + 2] += double(calls);
          return;
        }
      for (const double number : {double(collective), double(purpose), double(calls), 8.0, 8.0})
        rows.push_back(number);
    });
  };
  CHECK(said("traffic", {}) == "");
  CHECK(send(Collective::all_gather, Purpose::norm, 1) ==
        "the stage sends values as norm: it must send gradients and parameters only");
  CHECK(send(Collective::broadcast, Purpose::checkpoint, 1) ==
        "the stage sends values as checkpoint: it must send gradients and parameters only");
  const std::string once = send(Collective::all_gather, Purpose::parameter, 1);
  CHECK(once.starts_with("the parameters are communicated too often: "));
  CHECK(once.find(" calls in 3 steps, not ") != std::string::npos);
  CHECK(send(Collective::reduce_scatter, Purpose::gradient, 3).find(" calls per step, not ") !=
        std::string::npos);
}

TEST_CASE("the judge of a stage says nothing of traffic after NaN", "[exercises]") {
  const std::string meaning = said("traffic", [](Record& record) {
    record.numbers["norm"][1] = std::numeric_limits<double>::quiet_NaN();
    record.numbers["traffic 1"].clear();
  });
  CHECK(meaning.starts_with("the gradient norm of step 2 is not finite"));
}

TEST_CASE("the judge of a stage compares tensors with what the system gave", "[exercises]") {
  const auto with = [](double more) {
    return said("memory at rest", [=](Record& record) { record.numbers["tensors 1"][0] += more; });
  };
  CHECK(with(0) == "");
  CHECK(with(256) == "");
  CHECK(with(8192) == "the rank's tensors take more memory than its ledger counts");
}

TEST_CASE("the judge of a stage sees every call of every rank", "[exercises]") {
  const auto after = [](StageCall call) {
    return said("memory at rest", [&](Record& record) { add_call(record, call); });
  };
  StageCall call{.function = StageFunction::reduces_every_micro_batch};
  CHECK(after(call) == "");
  call.largest_on_heap = 1025;
  CHECK(after(call).starts_with("the stage keeps values outside the ledger"));
  call.largest_on_heap = 0, call.heap = 1 << 15;
  CHECK(after(call).starts_with("the stage keeps values outside the ledger"));
  call.heap = 0, call.most[size_t(MemoryUse::communication)] = 4;
  CHECK(after(call).starts_with("the stage holds memory as communication"));
}

// What the judge says of a record.
static std::string meaning(const char* exercise, const std::string& check, uint64_t seed,
                           const Record& record) {
  return find_exercise(exercise).judge({.name = check}, {.seed = seed}, record).meaning;
}

}  // namespace zl::exercises

// --- 09 ------------------------------------------------------------------------------------------

namespace zl::exercises::prefetch_checks {
namespace {

constexpr const char* kChecks[] = {kNone,  kOne,  kBucket,    kLimit, kMisfit,
                                   kTight, kPeak, kPeakLimit, kAll};

}  // namespace

TEST_CASE("the rules of exercise 09 are what the library's schedule does", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks)
      for (const PrefetchTask& task : prefetch_tasks(check, seed)) {
        const LibraryRun library = library_run(task);
        CAPTURE(check, seed, task.full, task.forward, task.prefetch_bucket_size,
                task.max_live_parameters);
        REQUIRE(same(simulated(task), library.entries));
        REQUIRE(library.peak == right_peak(task));
        REQUIRE(peak_of(task, library.entries) == library.peak);
      }
}

// The twin: for every student one check at least tells the mistake from the rules and from others.
TEST_CASE("the checks of exercise 09 find each mistake, and their judge gives it its diagnosis",
          "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const Mistake& mistake : kMistakes) {
      CAPTURE(seed, mistake.meaning);
      CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
        if (asks_for_peaks(check)) return false;
        Record record;
        const std::vector<PrefetchTask> tasks = prefetch_tasks(check, seed);
        for (size_t k = 0; k < tasks.size(); ++k)
          for (const auto& [action, unit] : simulated(tasks[k], mistake.rules))
            for (const int number : {int(action), unit})
              record.numbers[str("schedule ", k)].push_back(number);
        return meaning("09", check, seed, record) == mistake.meaning;
      }));
    }
}

// The table in task.md.
TEST_CASE("the task of exercise 09 shows the library's numbers", "[exercises]") {
  PrefetchTask task{.full = {32, 80, 48, 64},
                    .forward = {0, 1, 2, 3},
                    .backward = {0, 3, 2, 1},
                    .prefetch_bucket_size = 64,
                    .max_live_parameters = 12 * 16};
  Entries forward = library_run(task).entries;
  forward.resize(11);
  std::string said;
  for (const auto& [action, unit] : forward)
    said += (action == Action::run       ? " run "
             : action == Action::unshard ? " unshard "
                                         : " reshard ") +
            std::to_string(unit);
  CHECK(said ==
        " unshard 0 unshard 1 run 0 unshard 2 run 1 reshard 1 unshard 3 run 2 reshard 2 run 3 "
        "reshard 3");
  CHECK(right_peak(task) == 10 * 16);
  task.max_live_parameters = 14 * 16;
  CHECK(right_peak(task) == 14 * 16);
  task.prefetch_bucket_size = 0;
  CHECK(right_peak(task) == 7 * 16);
}

}  // namespace zl::exercises::prefetch_checks

// --- 10 ------------------------------------------------------------------------------------------

namespace zl::exercises::reshard_checks {
namespace {

constexpr const char* kChecks[] = {kSame,   kMore,   kFewer, kEmpty,  kReads,
                                   kFrozen, kThawed, kTied,  kUntied, kAll};

// Calls `visit` for each shard that a check asks for; true if it returns true for one.
template <typename Visit>
bool any_shard(const char* check, uint64_t seed, const Visit& visit) {
  for (const ReshardCase& c : reshard_cases(check, seed))
    for (int rank = 0; rank < c.now.ranks; ++rank)
      for (const State state : kStates)
        if (visit(c, rank, state)) return true;
  return false;
}

bool differs(const Load& a, const Load& b) {
  return !same_shard(a, b) || !std::ranges::is_permutation(a.reads, b.reads);
}

}  // namespace

TEST_CASE("two loading sides of exercise 10 agree: by the partition, and by the rules",
          "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks) {
      CAPTURE(check, seed);
      CHECK_FALSE(any_shard(check, seed, [](const ReshardCase& c, int rank, State state) {
        return differs(right_load(c, rank, state), simulated(c, rank, state));
      }));
    }
}

TEST_CASE("the checks of exercise 10 find each mistake, and their judge gives it its diagnosis",
          "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const std::vector<Mistake>* mistakes : {&kWrongShards, &kWrongReads})
      for (const Mistake& mistake : *mistakes) {
        CAPTURE(seed, mistake.meaning);
        CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
          Record record;
          const std::vector<ReshardCase> cases = reshard_cases(check, seed);
          for (size_t k = 0; k < cases.size(); ++k)
            for (int rank = 0; rank < cases[k].now.ranks; ++rank)
              for (const State state : kStates) {
                const Load load = simulated(cases[k], rank, state, mistake.rules);
                const std::string part = part_name(k, rank, state);
                const std::vector<float> shard =  // wrong reads may still give the right values
                    mistakes == &kWrongShards ? load.shard
                                              : right_load(cases[k], rank, state).shard;
                record.numbers[part] = {shard.begin(), shard.end()};
                for (const Read& r : load.reads)
                  for (const int64_t number : {int64_t(r.rank), int64_t(r.state), r.first, r.count})
                    record.numbers[part + " reads"].push_back(double(number));
              }
          return meaning("10", check, seed, record) == mistake.meaning;
        }));
      }
}

// Loaded by M ranks, saved again, and loaded by N: the same pieces, but for their padding.
TEST_CASE("resharding there and back gives what was saved", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const ReshardCase& c : reshard_cases(kMore, seed)) {
      const FlatLayout before = flat_layout(c.saved, State::weights);
      const FlatLayout after = flat_layout(c.now, State::weights);
      std::vector<float> flat;
      for (int rank = 0; rank < c.now.ranks; ++rank) {
        const std::vector<float> shard = right_load(c, rank, State::weights).shard;
        flat.insert(flat.end(), shard.begin(), shard.end());
      }
      REQUIRE(flat.size() == size_t(after.full));
      flat.resize(size_t(before.full), 0);
      for (int rank = 0; rank < c.saved.ranks; ++rank) {
        std::vector<float> piece = saved_piece(c.saved, rank, State::weights);
        for (float& x : piece) x = std::max(x, 0.0f);  // padding is negative
        CHECK(std::equal(piece.begin(), piece.end(), flat.begin() + rank * before.shard));
      }
    }
}

// The table in task.md.
TEST_CASE("the task of exercise 10 shows the library's positions", "[exercises]") {
  for (const auto& [ranks, full, shard] : {std::tuple{2, 64, 32}, {3, 96, 32}, {4, 64, 16}}) {
    const FlatLayout layout =
        flat_layout({.ranks = ranks, .parameters = {{.numel = 20}, {.numel = 30}}}, State::weights);
    CHECK(layout.begin == std::vector<int64_t>{0, 32});
    CHECK(layout.full == full);
    CHECK(layout.shard == shard);
  }
}

}  // namespace zl::exercises::reshard_checks

// --- 11 ------------------------------------------------------------------------------------------

namespace zl::exercises::choose_stage_checks {
namespace {

constexpr const char* kChecks[] = {kKept, kMixed, kPeak, kSent, kMicro, kSeconds, kChoice, kExact};

// Calls `visit` for each number that a check asks for; true if it returns true for one.
template <typename Visit>
bool any_number(const char* check, uint64_t seed, const Visit& visit) {
  const Asked asked = asked_by(check);
  for (const ChoiceCase& c : choice_cases(check, seed))
    for (int stage = 0; stage < (asked == Asked::choice ? 1 : 4); ++stage)
      if (visit(c, stage)) return true;
  return false;
}

bool is_of_model(MemoryUse use) {
  return use == MemoryUse::parameter || use == MemoryUse::gradient ||
         use == MemoryUse::optimizer_state || use == MemoryUse::master_weights;
}

}  // namespace

TEST_CASE("the rules of exercise 11 give the library's numbers", "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const char* check : kChecks) {
      CAPTURE(seed, check);
      const Asked asked = asked_by(check);
      CHECK_FALSE(any_number(check, seed, [&](const ChoiceCase& c, int stage) {
        return !equal(number(asked, c, stage), right_number(asked, c, stage));
      }));
    }
}

// The twin, for every student.
TEST_CASE("the checks of exercise 11 find each mistake, and their judge gives it its diagnosis",
          "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const Mistake& mistake : kMistakes) {
      CAPTURE(seed, mistake.meaning);
      CHECK(std::ranges::any_of(kChecks, [&](const char* check) {
        if (asked_by(check) != mistake.asked) return false;
        Record record;
        any_number(check, seed, [&](const ChoiceCase& c, int stage) {
          record.numbers["answers"].push_back(number(mistake.asked, c, stage, mistake.slip));
          return false;
        });
        return meaning("11", check, seed, record) == mistake.meaning;
      }));
    }
}

// A dry run of the stages themselves.
TEST_CASE("the planner's dry run measures the numbers of exercise 11", "[exercises]") {
  GptTrainingSpec spec = gpt_spec(named_gpt("tiny"));
  spec.ranks = 1;
  spec.engine.reduce_bucket_size = 1;
  Training training{.ranks = 3, .units = prediction_input(spec).units, .micro_batches = 2};
  spec.ranks = 3;
  spec.engine.accumulation = 2;
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const StagePlan plan = plan_stage(spec, kStages[stage], 0);
    int64_t kept = 0, peak = 0, sent = 0;
    for (const MemoryRow& row : plan.memory)
      if (is_of_model(row.use)) kept += row.rest, peak += row.peak;
    for (const TrafficRow& row : plan.traffic)
      if (row.purpose == Purpose::gradient || row.purpose == Purpose::parameter)
        sent += row.predicted_sent;
    const ChoiceCase c{{}, training};
    CHECK(number(Asked::kept, c, stage) == double(kept));
    CHECK(number(Asked::peak, c, stage) == double(peak));
    CHECK(number(Asked::sent, c, stage) == double(sent));
    CHECK(number(Asked::kept, c, stage, Slip::twelve_in_fp32) != double(kept));
  }
}

// The table in task.md, and why a choice is needed: a later stage may take more.
TEST_CASE("the task of exercise 11 shows the library's numbers", "[exercises]") {
  const Training training{.ranks = 2, .units = {70, 100, 33}, .micro_batches = 2};
  const int64_t kept[] = {4608, 3456, 2880, 2304}, peak[] = {4608, 3456, 3776, 4096},
                sent[] = {1152, 1152, 1728, 3072};
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const LibraryNumbers numbers = library_numbers(training, stage);
    CHECK(numbers.kept == kept[stage]);
    CHECK(numbers.peak == peak[stage]);
    CHECK(numbers.sent == sent[stage]);
  }
  ChoiceCase c{{.memory = 3776, .node_bandwidth = 1, .network_bandwidth = 1, .rate = 1}, training};
  CHECK(right_number(Asked::choice, c, 0) == 1);
  c.cluster.memory = 3455;
  CHECK(right_number(Asked::choice, c, 0) == -1);
  c.cluster.memory = 4608;
  CHECK(right_number(Asked::choice, c, 0) == 0);
}

}  // namespace zl::exercises::choose_stage_checks
