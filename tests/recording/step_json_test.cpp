// The recorded step as JSON, against the run's ledgers, its communication log and its stage.
// The functions of the stage file that recorded events name, against those that run.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "stages/predict/dry_run.h"
#include "tests/recording/recorded_run.h"

namespace zl::test {
namespace {

using Json = nlohmann::json;

StageRunSpec two_steps(StageKind stage) {
  StageRunSpec spec;
  spec.stage = stage;
  spec.steps = 2;
  return spec;
}

Json json_of(const RecordedRun& run) { return Json::parse(run.step.json); }

// [B] the most that the device held, by the series of memory and the peaks between events.
int64_t most_on_device(const Json& step, const Json& rank, bool with_peaks = true) {
  std::vector<bool> device;
  for (const Json& series : step["series"])
    device.push_back(series.get<std::string>().starts_with("device "));
  std::vector<int64_t> live(device.size());
  int64_t most = 0;
  const auto total = [&](const std::vector<int64_t>& bytes) {
    int64_t sum = 0;
    for (size_t s = 0; s < bytes.size(); ++s) sum += device[s] ? bytes[s] : 0;
    return sum;
  };
  for (size_t i = 0; i < rank["memory"].size(); ++i) {
    const Json& change = rank["memory"][i];
    live[change[1]] = change[2];
    const bool last = i + 1 == rank["memory"].size() || rank["memory"][i + 1][0] != change[0];
    if (last) most = std::max(most, total(live));
  }
  if (with_peaks)
    for (const Json& peak : rank["peaks"])
      most = std::max(most, total(peak[1].get<std::vector<int64_t>>()));
  return most;
}

std::string detail(const Json& step, const Json& event) {
  return step["texts"][event[4].get<int>()];
}

// What rank 0 sent, by the ends of its collectives.
int64_t sent(const Json& step, const char* ending) {
  int64_t bytes = 0;
  for (const Json& event : step["events"])
    if (event[0] == 3 && detail(step, event).ends_with(ending)) bytes += event[6].get<int64_t>();
  return bytes;
}

int64_t logged(const CommunicationLog& log, Purpose purpose, int64_t ranks, int64_t steps) {
  int64_t bytes = 0;
  for (const auto& [key, traffic] : log.rows())
    if (key.purpose == purpose) bytes += traffic.sent_bytes_times_n / ranks / steps;
  return bytes;
}

// By unit: the letters after `event`.
std::vector<std::string> cells_at(const Json& step, const Json& rank, int event) {
  std::vector<std::string> cells(step["units"].size());
  for (const Json& cell : rank["cells"])
    if (cell[0] <= event) cells[cell[1]] = cell[2];
  return cells;
}

// '#', '0', '+' and '~' are all full.
HeldSeen without_values(std::vector<std::string> cells) {
  for (std::string& cell : cells)
    for (char& letter : cell)
      if (std::string_view("0+~").find(letter) != std::string_view::npos) letter = '#';
  return cells;
}

}  // namespace

TEST_CASE("the recorded memory has the peak of the run's ledger, to the byte", "[recording]") {
  bool needs_peaks = false;
  for (const StageKind stage : kStages)
    for (const bool offload : {false, true}) {
      if (offload && stage == StageKind::ddp) continue;
      StageRunSpec spec = two_steps(stage);
      spec.offload = offload;
      spec.micro_batches = 2;
      const RecordedRun run = record(spec);
      const Json step = json_of(run);
      REQUIRE(step["rank"].size() == 3);
      for (size_t r = 0; r < 3; ++r) {
        const int64_t peak = run.result.ranks[r].rest.peak_total();
        CHECK(most_on_device(step, step["rank"][r]) == peak);
        needs_peaks = needs_peaks || most_on_device(step, step["rank"][r], false) != peak;
      }
      const bool host = step.dump().find("\"host ") != std::string::npos;
      CHECK(host == offload);
    }
  CHECK(needs_peaks);  // the twin: without the instants between events the peak is missed
}

TEST_CASE("the bytes of the recorded ends are the traffic of a step", "[recording]") {
  for (const StageKind stage : kStages)
    for (const bool overlap : {false, true}) {
      StageRunSpec spec = two_steps(stage);
      spec.options.overlap.overlap_comm = overlap;
      if (overlap) spec.rank_options.lane = own_lane();
      const RecordedRun run = record(spec);
      const Json step = json_of(run);
      const CommunicationLog& log = run.result.ranks[0].log;
      INFO(zl::name(stage) << (overlap ? " with overlap" : ""));
      CHECK(sent(step, " parameter") == logged(log, Purpose::parameter, 3, 2));
      CHECK(sent(step, " gradient") == logged(log, Purpose::gradient, 3, 2));
      CHECK(sent(step, " gradient") != logged(log, Purpose::gradient, 3, 1));
    }
}

TEST_CASE("the recorded cells say what the stage holds at each event", "[recording]") {
  for (const StageKind stage : kStages) {
    StageRunSpec spec = two_steps(stage);
    spec.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 600};
    spec.rank_options.lane = own_lane();
    const RecordedRun run = record(spec);
    const Json step = json_of(run);
    for (size_t r = 0; r < 3; ++r) {
      REQUIRE(run.held[r].size() == step["events"].size());
      int differences = 0, to_the_next = 0;
      for (size_t e = 0; e < run.held[r].size(); ++e) {
        const HeldSeen cells = without_values(cells_at(step, step["rank"][r], int(e)));
        differences += cells != run.held[r][e];
        to_the_next += e > 0 && cells != run.held[r][e - 1];
      }
      CHECK(differences == 0);
      CHECK((to_the_next > 0) == shards_gradient(stage));  // the twin
    }
  }
}

TEST_CASE("each call has its begin and its end, and was waited for in between", "[recording]") {
  StageRunSpec spec = two_steps(StageKind::zero2);
  spec.options.overlap.overlap_comm = true;
  spec.rank_options.lane = own_lane();
  const Json step = json_of(record(spec));
  const Json &events = step["events"], &rank = step["rank"][1];
  int open_at_begin = 0, open_at_end = 0;
  for (const Json& call : rank["calls"]) {
    const int begin = call[0], end = call[1];
    open_at_begin += begin < 0;
    open_at_end += end < 0;
    if (begin < 0 || end < 0) continue;
    CHECK(events[begin][0] == 2);
    CHECK(events[end][0] == 3);
    CHECK(detail(step, events[begin]) == detail(step, events[end]));
    const int64_t from = rank["ns"][begin], waits = call[2], met = call[3], moved = call[4],
                  to = rank["ns"][end];
    CHECK(from <= waits);
    CHECK(waits <= to);
    CHECK(met <= to);
    CHECK((met <= moved && moved <= to));
  }
  // Updated parameters are gathered in flight into the next step.
  CHECK(open_at_begin == int(step["units"].size()));
  CHECK(open_at_end == open_at_begin);
}

TEST_CASE("of many micro-batches the first ones and the last are recorded, and it says so",
          "[recording]") {
  StageRunSpec spec = two_steps(StageKind::zero3);
  spec.micro_batches = 80;
  spec.ranks = 2;
  const RecordedRun run = record(spec);
  const Json step = json_of(run);
  CHECK(step["events"].size() <= size_t(recording::kMostRecordedEvents));
  CHECK(step["events"].size() > size_t(recording::kMostRecordedEvents) * 9 / 10);
  int64_t data = 0, updates = 0;
  for (const Json& event : step["events"]) {
    data += step["texts"][event[3].get<int>()] == "data";
    updates += step["texts"][event[3].get<int>()] == "update";
  }
  CHECK(updates == int64_t(step["units"].size()));
  CHECK(run.step.left_out ==
        std::vector<std::string>{str("Of the 80 micro-batches of a step in zero3 the first ",
                                     data - 1, " and the last are shown.")});
  spec.micro_batches = 2;
  CHECK(record(spec).step.left_out.empty());
}

TEST_CASE("of many ranks the first 16 are recorded, and it says so", "[recording]") {
  StageRunSpec spec = two_steps(StageKind::zero1);
  spec.ranks = 18;
  const RecordedRun run = record(spec);
  CHECK((json_of(run)["rank"].size() == 16 && json_of(run)["ranks"] == 18));
  CHECK(run.step.left_out == std::vector<std::string>{"Of 18 ranks the first 16 are shown."});
}

TEST_CASE("a run of one step records it, a run of three its second", "[recording]") {
  for (const int steps : {1, 3}) {
    StageRunSpec spec = two_steps(StageKind::ddp);
    spec.steps = steps;
    CHECK(json_of(record(spec))["step"] == std::min(steps, 2));
  }
}

TEST_CASE("a recorder of a dry run sees the events of the real run", "[recording]") {
  const StageRunSpec spec = two_steps(StageKind::zero3);
  const RecordedRun run = record(spec);
  const auto data = odd_data(spec);
  recording::RunRecording dry(spec.ranks);
  dry_run(training_spec(spec, *data), 1, 3, [&](Trainer& t) { dry.at_start(t); });
  const auto texts = [](const Json& json) {
    std::vector<std::string> all;
    for (const Json& e : json["events"]) {
      all.push_back(str(e[0].dump(), " ", e[6].dump()));
      for (size_t text = 1; text <= 5; ++text)
        all.back() += " " + json["texts"][e[text].get<size_t>()].get<std::string>();
    }
    return all;
  };
  const Json step = Json::parse(dry.result().json);
  CHECK(texts(step) == texts(Json::parse(run.of_ranks[1])));
  CHECK(texts(step) != texts(Json::parse(record(two_steps(StageKind::zero2)).of_ranks[1])));
  CHECK(most_on_device(step, step["rank"][0]) == run.result.ranks[1].rest.peak_total());
}

namespace {

struct Case {
  const char* name;
  StageRunSpec spec;
};

std::vector<Case> cases() {
  std::vector<Case> all{{"one micro-batch", {}}};
  const auto add = [&](const char* name) -> StageRunSpec& {
    all.push_back({name, {}});
    return all.back().spec;
  };
  add("three micro-batches").micro_batches = 3;
  StageRunSpec& buckets = add("buckets");
  buckets.micro_batches = 2;
  buckets.options.reduce_bucket_size = buckets.options.allgather_bucket_size = 400;
  StageRunSpec& overlap = add("overlap and prefetch");
  overlap.micro_batches = 2;
  overlap.rank_options.lane = own_lane();
  overlap.options.overlap = {.overlap_comm = true, .prefetch_bucket_size = 600};
  StageRunSpec& reuse = add("overlap, buckets and reuse");
  reuse.model.blocks = 4;
  reuse.rank_options.lane = own_lane();
  reuse.options.reduce_bucket_size = 700;
  reuse.options.overlap = {.overlap_comm = true, .max_reuse_distance = 1'000};
  add("prefetch without a lane").options.overlap.prefetch_bucket_size = 600;
  StageRunSpec& reproducible = add("reproducible sums");
  reproducible.micro_batches = 2;
  reproducible.options.reproducible = true;
  add("a block that runs twice").model.block_twice = true;
  add("recomputation").model.recompute = Recompute::full;
  add("selective recomputation").model.recompute = Recompute::selective;
  add("one rank").ranks = 1;
  return all;
}

}  // namespace

TEST_CASE("recorded events name exactly the functions of the stage file that run", "[recording]") {
  for (auto& [name, spec] : cases())
    for (const StageKind stage : kStages) {
      spec.stage = stage;
      spec.steps = 2;
      const RecordedRun run = record(spec);
      INFO(zl::name(stage) << ", " << name);
      REQUIRE(run.of_ranks.size() == size_t(spec.ranks));
      for (size_t rank = 0; rank < run.of_ranks.size(); ++rank) {
        REQUIRE_FALSE(run.calls[rank].empty());
        CHECK(by_unit(named_calls(run.of_ranks[rank])) == by_unit(run.calls[rank]));
      }
    }
}

TEST_CASE("the table of another stage names other functions than those that run", "[recording]") {
  for (const StageKind stage : kStages)
    for (const StageKind other : kStages) {
      // zero1's has one more function, which is named where ddp makes no call.
      if (stage == other || (stage == StageKind::ddp && other == StageKind::zero1)) continue;
      StageRunSpec spec;
      spec.stage = stage;
      spec.steps = 2;
      const RecordedRun run = record(spec, other);
      INFO(zl::name(stage) << " recorded as " << zl::name(other));
      CHECK(by_unit(named_calls(run.step.json)) != by_unit(run.calls[0]));
    }
}

TEST_CASE("a skipped step names no update", "[recording]") {
  StageRunSpec spec;
  spec.stage = StageKind::zero2;
  spec.steps = 2;
  spec.lr = 1e30;  // the second step's gradient is not finite
  spec.max_norm = 0;
  spec.options.check_grad_overflow = true;
  const RecordedRun run = record(spec);
  REQUIRE(run.result.steps.back().skipped);
  CHECK(by_unit(named_calls(run.step.json)) == by_unit(run.calls[0]));
}

}  // namespace zl::test
