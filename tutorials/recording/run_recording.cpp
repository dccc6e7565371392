#include "tutorials/recording/run_recording.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "dist/trace/host_id.h"
#include "tutorials/recording/stage_reader.h"

namespace zl::recording {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSeries = 2 * kMemoryUses;         // the uses of the device pool, then of the host's
using LiveBytes = std::array<int64_t, kSeries>;  // [B]
constexpr int kLeftOut = -2;                     // the begin of a call whose events are not kept

std::string text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// In report.json: 0 phase, 1 event of a unit, 2 begin and 3 end of a collective.
int kind_of(const Event& e) {
  return e.kind == EventKind::collective_begin ? 2 : std::min(int(e.kind), 3);
}

std::string series_name(size_t series) {
  const Pool pool = series < kMemoryUses ? Pool::device : Pool::host;
  std::string use = name(MemoryUse(series % kMemoryUses));
  std::ranges::replace(use, '_', ' ');
  return str(name(pool), " ", use);
}

}  // namespace

// One rank and its step: all its events, and with its own clock and all series.
class RunRecording::OfRank {
 public:
  explicit OfRank(Trainer& training)
      : training_(training),
        micro_batches_(training.spec().engine.accumulation),
        last_(std::min(training.steps() + 2, training.spec().steps)) {
    if (training.comm().rank() < kMostRecordedRanks)
      training.comm().events().listen([this](const Event& event) { see(event); });
  }

  int64_t step() const { return last_; }  // the one to record
  void after_step() {
    records_ = false;
    if (training_.engine().updates() != updates_) return;
    for (Json& event : json_["events"])  // the gradient was not finite
      if (json_["texts"][event[5].get<size_t>()] == "update") event[5] = 0;
  }
  // What has been recorded so far, with the calls that are still in flight. The rank may have
  // ended.
  Json recorded() const {
    Json all = json_;
    for (const Call& call : open_)
      if (call.begin >= 0) all["calls"].push_back(call.until(-1));
    all["left_out"] = left_out_;
    all["left_out_micro_batches"] = left_out_micro_batches_;
    return all;
  }

 private:
  struct Call {
    const char *what, *detail, *group;
    int begin = -1;  // event
    int64_t waits = 0, met = 0, moved = 0;
    Json until(int end) const { return {begin, end, waits, met, moved}; }
  };

  void see(const Event& e) {
    if (e.kind == EventKind::phase && e.what == std::string_view("data")) begin_data();
    if (!records_) return;
    if (e.kind == EventKind::allocate) note_peak();
    const char* method = reader_->at(e);
    Json& events = json_["events"];
    if (reader_->resharded() && kept_) events.back()[5] = index_of("reshard");
    int entry = kLeftOut;
    if (is_recorded(e)) {
      kept_ = keeps_ && std::ssize(events) < kMostRecordedEvents;
      left_out_ += !kept_;
      if (kept_) entry = int(events.size());
    }
    if (is_collective(e)) follow_call(e, entry);
    if (entry == kLeftOut) return;
    const bool of_call = e.kind >= EventKind::collective_begin;
    events.push_back({kind_of(e), index_of(e.phase), index_of(e.unit), index_of(e.what),
                      index_of(e.detail), index_of(method), of_call ? e.bytes : 0,
                      of_call ? e.count : 0});
    json_["ns"].push_back(e.nanoseconds);
    add_memory(entry);
    add_cells(entry);
  }

  // A step has as many data phases as micro-batches; then come evaluations.
  void begin_data() {
    const bool begins = training_.steps() != step_;
    if (begins)
      records_ = training_.steps() <= last_;
    else if (micro_batch_ == micro_batches_)
      records_ = false;
    if (!records_) return;
    if (begins) begin_step();
    const auto recorded = std::ssize(json_["events"]);
    if (++micro_batch_ == 2) of_first_ = recorded;
    // The last one reduces more, and the update follows it.
    keeps_ = micro_batch_ == 1 || micro_batch_ == micro_batches_ ||
             recorded + 4 * of_first_ <= kMostRecordedEvents;
    left_out_micro_batches_ += !keeps_;
  }

  void begin_step() {
    step_ = training_.steps();
    updates_ = training_.engine().updates();
    micro_batch_ = left_out_ = left_out_micro_batches_ = 0;
    kept_ = false;
    indices_.clear();
    open_.clear();
    letters_.clear();
    const Stage& stage = training_.engine().stage();
    const std::vector<Unit>& units = training_.model().units();
    reader_.emplace(training_.spec().engine.stage, stage, units);
    json_ = {{"machine", boot_id()}, {"step", step_}, {"micro_batches", micro_batches_}};
    for (const char* list : {"units", "texts", "events", "ns", "cells", "memory", "peaks", "calls"})
      json_[list] = Json::array();
    index_of("");
    for (const Unit& unit : units) {
      const Partition& partition = stage.state(unit).partition;
      json_["units"].push_back(
          {{"name", unit.name}, {"elements", partition.full()}, {"shard", partition.shard()}});
    }
  }

  size_t index_of(const char* text) {
    const auto [at, is_new] = indices_.try_emplace(text, indices_.size());
    if (is_new) json_["texts"].push_back(text);
    return at->second;
  }

  LiveBytes live() const {
    LiveBytes bytes{};
    for (int use = 0; use < kMemoryUses; ++use) {
      bytes[size_t(use)] = training_.memory().ledger().live(MemoryUse(use));
      bytes[size_t(kMemoryUses + use)] = training_.host().ledger().live(MemoryUse(use));
    }
    return bytes;
  }
  void note_peak() {
    const int64_t total = training_.memory().ledger().live_total();
    if (total <= highest_total_) return;
    highest_total_ = total;
    highest_ = live();
  }
  void add_memory(int event) {
    const LiveBytes now = live();
    const int64_t total = training_.memory().ledger().live_total();
    if (event > 0 && highest_total_ > std::max(total, last_total_))
      json_["peaks"].push_back({event, highest_});
    for (size_t s = 0; s < kSeries; ++s)
      if (event == 0 || now[s] != last_live_[s]) json_["memory"].push_back({event, s, now[s]});
    last_live_ = highest_ = now;
    last_total_ = highest_total_ = total;
  }
  void add_cells(int event) {
    const std::vector<Row> rows = reader_->rows();
    letters_.resize(rows.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      std::string letters = rows[r].second;
      std::erase(letters, ' ');
      if (letters_[r] == letters) continue;
      json_["cells"].push_back({event, r, letters});
      letters_[r] = letters;
    }
  }

  // `entry`: of the event, or kLeftOut.
  void follow_call(const Event& e, int entry) {
    auto call = std::ranges::find_if(open_, [&](const Call& c) {
      return c.detail == e.detail && c.group == e.group && std::string_view(c.what) == e.what;
    });
    const bool begins = e.kind == EventKind::collective_begin;
    if (begins || call == open_.end())
      call = open_.insert(open_.end(), {e.what, e.detail, e.group, begins ? entry : -1});
    if (begins || e.kind == EventKind::collective_wait || call->waits == 0)
      call->waits = e.nanoseconds;
    if (e.kind == EventKind::collective_met) call->met = e.nanoseconds;
    if (e.kind == EventKind::collective_moved) call->moved = e.nanoseconds;
    if (e.kind != EventKind::collective_end) return;
    if (call->met == 0) call->met = call->waits;
    if (call->moved == 0) call->moved = e.nanoseconds;
    if (call->begin != kLeftOut && entry != kLeftOut) json_["calls"].push_back(call->until(entry));
    open_.erase(call);
  }

  Trainer& training_;                                   // until after_step()
  const int64_t micro_batches_;                         // A, of a step
  const int64_t last_;                                  // the step to record
  bool records_ = false, keeps_ = true, kept_ = false;  // now; this micro-batch; the last event
  int64_t step_ = 0, updates_ = 0, micro_batch_ = 0;    // from 1, when it began, from 1
  int64_t of_first_ = 0;                                // events of the first micro-batch
  int64_t left_out_ = 0, left_out_micro_batches_ = 0;   // events; of the step
  std::optional<StageReader> reader_;
  Json json_;
  std::unordered_map<std::string, size_t> indices_;  // of the texts
  std::vector<Call> open_;
  std::vector<std::string> letters_;   // of the units, after the last event
  LiveBytes last_live_{}, highest_{};  // at the last event; highest device total since
  int64_t last_total_ = 0, highest_total_ = 0;
};

namespace {

// What is to be added to the times of `rank`, so that they are of rank 0's clock.
int64_t clock_difference(const Json& rank0, const Json& rank, size_t events) {
  if (rank["machine"] == rank0["machine"]) return 0;
  std::vector<int64_t> differences;
  const auto add = [&](size_t event) {
    differences.push_back(rank0["ns"][event].get<int64_t>() - rank["ns"][event].get<int64_t>());
  };
  for (size_t e = 0; e < events; ++e)
    if (rank0["events"][e][0] == 3) add(e);
  if (differences.empty()) add(0);
  const auto median = differences.begin() + std::ssize(differences) / 2;
  std::ranges::nth_element(differences, median);
  return *median;
}

// The series that are ever above 0 on one of these ranks.
std::vector<size_t> series_of(const std::vector<Json>& ranks) {
  LiveBytes most{};
  const auto see = [&](size_t series, int64_t bytes) {
    most[series] = std::max(most[series], bytes);
  };
  for (const Json& rank : ranks) {
    for (const Json& live : rank["memory"]) see(live[1], live[2]);
    for (const Json& peak : rank["peaks"])
      for (size_t s = 0; s < kSeries; ++s) see(s, peak[1][s]);
  }
  std::vector<size_t> all;
  for (size_t s = 0; s < kSeries; ++s)
    if (most[s] > 0) all.push_back(s);
  return all;
}

// The first `events` events of a rank, with these series, and with `shift` added to all times.
void shape(Json& rank, size_t events, const std::vector<size_t>& series, int64_t shift) {
  Json& ns = rank["ns"];
  ns.get_ref<Json::array_t&>().resize(events);
  for (Json& time : ns) time = time.get<int64_t>() + shift;
  for (const char* list : {"cells", "memory", "peaks", "calls"})
    std::erase_if(rank[list].get_ref<Json::array_t&>(),
                  [&](const Json& entry) { return entry[0] >= int64_t(events); });
  Json memory = Json::array();
  for (const Json& live : rank["memory"])
    if (const auto s = std::ranges::find(series, live[1].get<size_t>()); s != series.end())
      memory.push_back({live[0], s - series.begin(), live[2]});
  rank["memory"] = memory;
  for (Json& peak : rank["peaks"]) {
    Json bytes = Json::array();
    for (const size_t s : series) bytes.push_back(peak[1][s]);
    peak[1] = bytes;
  }
  for (Json& call : rank["calls"]) {
    if (call[1] >= int64_t(events)) call[1] = -1;
    for (size_t time = 2; time < 5; ++time)
      if (time == 2 || call[time] != 0) call[time] = call[time].get<int64_t>() + shift;
  }
}

std::vector<std::string> sentences(const Json& rank0, const std::string& stage, size_t shown,
                                   size_t ranks) {
  std::vector<std::string> all;
  if (shown < ranks)
    all.push_back(shown == 1 ? str("Of ", ranks, " ranks only rank 0 is shown.")
                             : str("Of ", ranks, " ranks the first ", shown, " are shown."));
  const int64_t micro_batches = rank0["micro_batches"], less = rank0["left_out_micro_batches"],
                events = std::ssize(rank0["events"]), left_out = rank0["left_out"];
  if (less > 0)
    all.push_back(str("Of the ", micro_batches, " micro-batches of a step in ", stage,
                      " the first ", micro_batches - less - 1, " and the last are shown."));
  else if (left_out > 0)
    all.push_back(str("Of the ", events + left_out, " events of a step in ", stage, " the first ",
                      events, " are shown."));
  return all;
}

}  // namespace

RunRecording::RunRecording(int ranks) : recorders_(size_t(ranks)) {}
RunRecording::~RunRecording() = default;

void RunRecording::at_start(Trainer& training) {
  const auto rank = size_t(training.comm().rank());
  if (rank == 0) stage_ = name(training.spec().engine.stage);
  recorders_[rank] = std::make_unique<OfRank>(training);
}

bool RunRecording::after_step(Trainer& training) {
  Communicator& comm = training.comm();
  OfRank& recorder = *recorders_[size_t(comm.rank())];
  if (training.steps() != recorder.step()) return false;
  const bool recorded = comm.rank() < kMostRecordedRanks;
  if (recorded) recorder.after_step();
  const std::string own = recorded ? text(recorder.recorded()) : "";
  std::vector<std::string> all = comm.all_gather_object(own, "recording");
  if (comm.rank() > 0) return false;
  all.resize(std::min(all.size(), size_t(kMostRecordedRanks)));
  collected_ = all;
  return true;
}

RecordedStep RunRecording::result() const {
  std::vector<Json> ranks;
  for (const std::string& text : collected_) ranks.push_back(Json::parse(text));
  if (collected_.empty())
    for (const auto& recorder : recorders_)
      if (recorder && std::ssize(ranks) < kMostRecordedRanks) ranks.push_back(recorder->recorded());
  size_t events = ranks.empty() ? 0 : SIZE_MAX;
  for (const Json& rank : ranks)
    events = std::min(events, rank.contains("events") ? rank["events"].size() : 0);
  if (events == 0) return {};
  const Json rank0 = ranks[0];
  const std::vector<size_t> used = series_of(ranks);
  Json series = Json::array(), shown = Json::array(), of_all = rank0["events"];
  for (const size_t s : used) series.push_back(series_name(s));
  of_all.get_ref<Json::array_t&>().resize(events);
  for (Json& rank : ranks) {
    const int64_t begin = rank0["ns"][0];
    shape(rank, events, used, clock_difference(rank0, rank, events) - begin);
    shown.push_back({{"rank", shown.size()}});
    for (const char* list : {"ns", "cells", "memory", "peaks", "calls"})
      shown.back()[list] = std::move(rank[list]);
  }
  const Json json{
      {"stage", stage_},         {"step", rank0["step"]},   {"ranks", recorders_.size()},
      {"timed", true},           {"units", rank0["units"]}, {"series", series},
      {"texts", rank0["texts"]}, {"events", of_all},        {"rank", shown}};
  return {text(json), sentences(rank0, stage_, ranks.size(), recorders_.size())};
}

}  // namespace zl::recording
