#include "tutorials/recording/rank_recording.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "dist/communicator.h"
#include "dist/trace/host_id.h"
#include "tensor/error.h"

namespace zl::recording {
namespace {

constexpr int32_t kLeftOut = -2;  // the begin of a call whose events are not kept

}  // namespace

int32_t RankRecorder::index_of(const std::string& text) {
  const auto [at, is_new] = indices_.try_emplace(text, int32_t(recording_.texts.size()));
  if (is_new) recording_.texts.push_back(text);
  return at->second;
}

LiveBytes RankRecorder::live() const {
  LiveBytes bytes{};
  for (int use = 0; use < kMemoryUses; ++use) {
    bytes[size_t(use)] = device_->ledger().live(MemoryUse(use));
    if (host_) bytes[size_t(kMemoryUses + use)] = host_->ledger().live(MemoryUse(use));
  }
  return bytes;
}

void RankRecorder::note_peak() {
  const int64_t total = device_->ledger().live_total();
  if (total <= highest_total_) return;
  highest_total_ = total;
  highest_ = live();
}

void RankRecorder::add_memory(int32_t event) {
  const LiveBytes now = live();
  const int64_t total = device_->ledger().live_total();
  if (event > 0 && highest_total_ > std::max(total, last_total_))
    recording_.peaks.push_back({event, highest_});
  for (int s = 0; s < kSeries; ++s)
    if (event == 0 || now[size_t(s)] != last_[size_t(s)])
      recording_.live.push_back({event, s, now[size_t(s)]});
  last_ = highest_ = now;
  last_total_ = highest_total_ = total;
}

void RankRecorder::add_rows(int32_t event, const std::vector<Row>& rows) {
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r == recording_.rows.size()) {
      recording_.rows.push_back(rows[r].first);
      row_texts_.push_back(-1);
    }
    const int32_t text = index_of(rows[r].second);
    if (text == row_texts_[r]) continue;
    row_texts_[r] = text;
    recording_.cells.push_back({event, int32_t(r), text});
  }
}

// `entry`: of the event, or kLeftOut.
void RankRecorder::follow_call(const Event& e, int32_t entry) {
  auto call = std::ranges::find_if(open_, [&](const OpenCall& o) {
    return o.detail == e.detail && o.group == e.group && std::string_view(o.what) == e.what;
  });
  const bool begins = e.kind == EventKind::collective_begin;
  if (begins || call == open_.end()) {
    open_.push_back({e.what, e.detail, e.group, {begins ? entry : -1, -1, 0, 0, 0}});
    call = open_.end() - 1;
  }
  RankRecording::Call& c = call->call;
  if (begins || e.kind == EventKind::collective_wait || c.waits == 0) c.waits = e.nanoseconds;
  if (e.kind == EventKind::collective_met) c.met = e.nanoseconds;
  if (e.kind == EventKind::collective_moved) c.moved = e.nanoseconds;
  if (e.kind != EventKind::collective_end) return;
  if (c.met == 0) c.met = c.waits;
  if (c.moved == 0) c.moved = e.nanoseconds;
  c.end = entry;
  if (c.begin != kLeftOut && c.end != kLeftOut) recording_.calls.push_back(c);
  open_.erase(call);
}

void RankRecorder::see(const Event& e, const std::function<std::vector<Row>()>& rows,
                       const char* method) {
  if (e.kind == EventKind::allocate) note_peak();
  const bool records = is_recorded(e);
  const auto entry = records && keeps_ ? int32_t(recording_.events.size()) : kLeftOut;
  const bool of_call = e.kind >= EventKind::collective_begin;
  if (is_collective(e)) follow_call(e, entry);
  if (records && !keeps_) ++recording_.left_out;
  if (entry == kLeftOut) return;
  if (entry == 0) {
    recording_.machine = boot_id();
    index_of("");
  }
  recording_.events.push_back({.kind = e.kind,
                               .phase = index_of(e.phase),
                               .unit = index_of(e.unit),
                               .what = index_of(e.what),
                               .detail = index_of(e.detail),
                               .method = index_of(method),
                               .nanoseconds = e.nanoseconds,
                               .bytes = of_call ? e.bytes : 0,
                               .elements = of_call ? e.count : 0});
  add_memory(entry);
  if (rows) add_rows(entry, rows());
}

void RankRecorder::set_method_of_last(const char* method) {
  if (!recording_.events.empty() && keeps_) recording_.events.back().method = index_of(method);
}

void RankRecorder::forget_method(const char* method) {
  for (RankRecording::Entry& e : recording_.events)
    if (recording_.text(e.method) == method) e.method = 0;
}

RankRecording RankRecorder::finish() const {
  RankRecording all = recording_;
  for (const OpenCall& open : open_)
    if (open.call.begin >= 0) all.calls.push_back(open.call);
  return all;
}

// ---- as bytes ----------------------------------------------------------------------------------

using Recorded = RankRecording;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::UnitSize, elements, shard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::Entry, kind, phase, unit, what, detail, method,
                                   nanoseconds, bytes, elements)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::Cell, event, row, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::Live, event, series, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::Peak, event, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded::Call, begin, end, waits, met, moved)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recorded, machine, step, left_out, micro_batches,
                                   left_out_micro_batches, texts, rows, units, events, cells, live,
                                   peaks, calls)

std::string encode(const RankRecording& recording) {
  std::string bytes;
  nlohmann::json::to_cbor(recording, bytes);
  return bytes;
}

RankRecording decode_recording(const std::string& bytes) try {
  return nlohmann::json::from_cbor(bytes);
} catch (const nlohmann::json::exception& error) {
  throw CommunicationError(str("a recording cannot be read: ", error.what()));
}

}  // namespace zl::recording
