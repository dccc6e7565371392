#include "dist/trace/chrome_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "dist/trace/call_times.h"
#include "tensor/error.h"

namespace zl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCompute = 1, kCommunication = 2;  // tracks; further lanes follow

double microseconds(int64_t nanoseconds) { return double(nanoseconds) / 1000; }

// The calls of a rank by their ends; then those that have not ended.
std::vector<CallSpan> calls_of(const RankTrace& rank) {
  const auto text = [&](int32_t index) { return rank.texts[size_t(index)].c_str(); };
  OpenCalls open;
  std::vector<CallSpan> all;
  for (const TraceEvent& e : rank.events)
    if (const auto ended = open.see({.nanoseconds = e.nanoseconds,
                                     .kind = e.kind,
                                     .group = text(e.group),
                                     .what = text(e.what),
                                     .detail = text(e.detail),
                                     .bytes = e.bytes,
                                     .count = e.count}))
      all.push_back(*ended);
  all.insert(all.end(), open.calls().begin(), open.calls().end());
  return all;
}

// Writes one event after the other, in pieces of about 1 MiB.
class TraceText {
 public:
  explicit TraceText(const std::function<void(std::string_view)>& write) : write_(write) {}
  void event(const Json& fields) {
    text_ += std::exchange(separator_, ",\n") + text_of(fields);
    if (text_.size() > (size_t(1) << 20)) write_(std::exchange(text_, ""));
  }
  void end(const Json& other) { write_(text_ + "\n],\"otherData\":" + text_of(other) + "}\n"); }

 private:
  static std::string text_of(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const std::function<void(std::string_view)>& write_;
  std::string text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", separator_ = "\n";
};

class RankDrawing {
 public:
  RankDrawing(const RankTrace& trace, size_t rank, int64_t zero, TraceText& out)
      : trace_(trace), rank_(rank), zero_(zero), out_(out) {}

  // Returns the collectives of all ranks, in order. What is open when the events end, ends there.
  std::vector<CallSpan> draw() {
    event("M", 0, zero_, {{"name", "process_name"}, {"args", {{"name", str("rank ", rank_)}}}});
    event("M", 0, zero_, {{"name", "process_sort_index"}, {"args", {{"sort_index", rank_}}}});
    name_track(kCompute, "compute");
    begin_counters();
    for (const TraceEvent& e : trace_.events) see(e);
    close_down_to(0, latest_);
    std::vector<CallSpan> shared;
    for (CallSpan& c : calls_of(trace_)) {
      if (c.ended == 0) c.ended = latest_;
      c.moved = c.end();
      c.met = c.met == 0 ? c.moved : std::min(c.met, c.moved);
      communication(c);
      if (c.index >= 0) shared.push_back(c);
    }
    std::ranges::sort(shared, {}, &CallSpan::index);
    return shared;
  }

  // An end of an arrow: "s" is where it begins, "f" where it points to.
  void arrow(const char* phase, const CallSpan& call, int64_t time, int64_t id) {
    event(phase, kCommunication + call.lane, time,
          {{"cat", "collective"}, {"name", call.kind}, {"id", id}, {"bp", "e"}});
  }

 private:
  // A slice of time on the track "compute": two do not overlap, or one contains the other.
  struct Slice {
    std::string category, name;  // "unit", "h.1 backward"
    int64_t begin;               // [ns]
    Json args = nullptr;
  };

  const std::string& text(int32_t index) const { return trace_.texts[size_t(index)]; }

  void event(const char* phase, int track, int64_t time, const Json& more) {
    Json fields = {
        {"ph", phase}, {"pid", rank_}, {"tid", track}, {"ts", microseconds(time - zero_)}};
    fields.update(more);
    out_.event(fields);
  }
  void name_track(int track, const std::string& name) {
    event("M", track, zero_, {{"name", "thread_name"}, {"args", {{"name", name}}}});
  }
  void draw(int track, const Slice& slice, int64_t end) {
    Json fields = {
        {"cat", slice.category}, {"name", slice.name}, {"dur", microseconds(end - slice.begin)}};
    if (!slice.args.is_null()) fields["args"] = slice.args;
    event("X", track, slice.begin, fields);
  }

  void close_down_to(size_t depth, int64_t now) {
    for (; stack_.size() > depth; stack_.pop_back()) draw(kCompute, stack_.back(), now);
  }
  bool top_is(std::string_view category, std::string_view ending = "") const {
    return !stack_.empty() && stack_.back().category == category &&
           std::string_view(stack_.back().name).ends_with(ending);
  }

  // A kernel lasts until the rank's next event, except for the allocation of its workspace: on a
  // GPU that is the time of its launch.
  void see(const TraceEvent& e) {
    const int64_t now = e.nanoseconds;
    const std::string& what = text(e.what);
    latest_ = std::max(latest_, now);
    const bool workspace = e.kind == EventKind::allocate && what == name(MemoryUse::workspace);
    if (top_is("kernel") && !workspace) close_down_to(stack_.size() - 1, latest_);
    switch (e.kind) {
      case EventKind::phase:
        close_down_to(0, now);
        if (!what.empty()) stack_.push_back({"phase", what, now});
        break;
      case EventKind::unit: unit(e); break;
      case EventKind::kernel:
        stack_.push_back({"kernel", what, now, {{"operations", e.count}, {"bytes", e.bytes}}});
        break;
      case EventKind::allocate: count(text(e.detail) + " memory", what, e.bytes, now); break;
      case EventKind::release: count(text(e.detail) + " memory", what, -e.bytes, now); break;
      case EventKind::move: count("moved", what, e.bytes, now); break;
      case EventKind::collective_end: count("sent", "bytes", e.bytes, now); break;
      default: break;
    }
  }

  // The pass of a unit has a begin and an end; an update lasts until the next event.
  void unit(const TraceEvent& e) {
    const std::string &what = text(e.what), unit = text(e.unit) + " ";
    if (top_is("unit", " update")) close_down_to(stack_.size() - 1, e.nanoseconds);
    if (what == "update") stack_.push_back({"unit", unit + what, e.nanoseconds});
    if (what.starts_with("before_"))
      stack_.push_back({"unit", unit + what.substr(7), e.nanoseconds});
    if (!what.starts_with("after_")) return;
    const auto found =
        std::ranges::find(stack_.rbegin(), stack_.rend(), unit + what.substr(6), &Slice::name);
    if (found != stack_.rend()) close_down_to(size_t(stack_.rend() - found) - 1, e.nanoseconds);
  }

  void communication(const CallSpan& c) {
    for (; lanes_ <= c.lane; ++lanes_)
      name_track(kCommunication + lanes_,
                 lanes_ == 0 ? "communication" : str("communication ", lanes_ + 1));
    Json args = {{"kind", c.kind},       {"name", c.name},
                 {"bytes", c.bytes},     {"count", c.count},
                 {"sent_bytes", c.sent}, {"waited_us", microseconds(c.met - c.began)},
                 {"index", c.index}};
    if (!c.group.empty()) args["group"] = c.group;
    if (c.wait > 0) args["exposed_us"] = microseconds(c.ended - c.wait);
    const int track = kCommunication + c.lane;
    const std::string call = str(c.kind, " ", c.name);
    draw(track, {"collective", call, c.began, args}, c.moved);
    if (c.met > c.began) draw(track, {"wait", "waiting", c.began}, c.met);
    if (c.wait == 0) return;
    // What the rank's own thread did for a call in flight.
    event("i", kCompute, c.began, {{"s", "t"}, {"cat", "issue"}, {"name", "issue " + call}});
    draw(kCompute, {"exposed", "wait for " + call, c.wait}, c.ended);
  }

  // Each counter begins with all of its series, those of memory with what is live already.
  void begin_counters() {
    for (size_t pool = 0; pool < trace_.at_start.size(); ++pool)
      for (int use = 0; use < kMemoryUses; ++use)
        if (const int64_t bytes = trace_.at_start[pool][size_t(use)]; bytes != 0)
          counters_[str(name(Pool(pool)), " memory")][name(MemoryUse(use))] = bytes;
    for (const TraceEvent& e : trace_.events) {
      if (e.kind == EventKind::allocate || e.kind == EventKind::release)
        counters_[text(e.detail) + " memory"].emplace(text(e.what), 0);
      if (e.kind >= EventKind::collective_begin) counters_["sent"].emplace("bytes", 0);
      for (int i = 0; i < kMoves && e.kind == EventKind::move; ++i)
        counters_["moved"].emplace(name(Move(i)), 0);
    }
    if (!trace_.events.empty())
      for (const auto& [counter, values] : counters_)
        draw_counter(counter, trace_.events.front().nanoseconds);
  }
  void count(const std::string& counter, const std::string& series, int64_t bytes, int64_t now) {
    Json& value = counters_[counter][series];
    value = value.get<int64_t>() + bytes;
    draw_counter(counter, now);
  }
  void draw_counter(const std::string& counter, int64_t now) {
    event("C", 0, now, {{"name", counter}, {"args", counters_[counter]}});
  }

  const RankTrace& trace_;
  const size_t rank_;
  const int64_t zero_;  // [ns]
  TraceText& out_;
  std::vector<Slice> stack_;  // that are open
  std::map<std::string, Json> counters_;
  int64_t latest_ = 0;  // [ns] of the events so far; some are reported later
  int lanes_ = 0;
};

// Arrows of each collective, from the rank that came last to the others.
void join(std::vector<RankDrawing>& drawings, const std::vector<std::vector<CallSpan>>& shared) {
  int64_t arrows = 0;
  const auto has = [&](size_t i) {
    return std::ranges::all_of(shared, [i](const auto& calls) { return i < calls.size(); });
  };
  for (size_t i = 0; drawings.size() > 1 && has(i); ++i) {
    size_t last = 0;
    for (size_t r = 1; r < shared.size(); ++r)
      if (shared[r][i].began > shared[last][i].began) last = r;
    const CallSpan& from = shared[last][i];
    for (size_t r = 0; r < shared.size(); ++r) {
      if (r == last) continue;
      const CallSpan& to = shared[r][i];
      drawings[last].arrow("s", from, from.began, ++arrows);
      drawings[r].arrow("f", to, std::clamp(from.began, to.met, to.moved), arrows);
    }
  }
}

// [ns] When each collective of all ranks ended on this one, by its number, as far as known.
std::map<int64_t, int64_t> ends(const RankTrace& rank) {
  std::map<int64_t, int64_t> all;
  for (const CallSpan& c : calls_of(rank))
    if (c.index >= 0 && c.ended > 0) all[c.index] = c.end();
  return all;
}

}  // namespace

void align_clocks(std::vector<RankTrace>& ranks) {
  for (RankTrace& rank : ranks) {
    if (rank.machine == ranks[0].machine) continue;
    const std::map<int64_t, int64_t> here = ends(ranks[0]);
    std::vector<int64_t> differences;
    for (const auto& [index, end] : ends(rank))
      if (const auto same = here.find(index); same != here.end())
        differences.push_back(same->second - end);
    if (differences.empty()) continue;
    const auto middle = differences.begin() + int64_t(differences.size() / 2);
    std::ranges::nth_element(differences, middle);
    for (TraceEvent& e : rank.events) e.nanoseconds += *middle;
  }
}

void write_chrome_trace(const std::vector<RankTrace>& ranks,
                        const std::function<void(std::string_view)>& write) {
  int64_t zero = INT64_MAX, left_out = 0;
  for (const RankTrace& rank : ranks) {
    if (!rank.events.empty()) zero = std::min(zero, rank.events.front().nanoseconds);
    left_out += rank.left_out;
  }
  TraceText out(write);
  std::vector<RankDrawing> drawings;
  std::vector<std::vector<CallSpan>> shared;
  for (const RankTrace& rank : ranks) {
    drawings.emplace_back(rank, drawings.size(), zero, out);
    shared.push_back(drawings.back().draw());
  }
  join(drawings, shared);
  out.end({{"ranks", ranks.size()}, {"events_left_out", left_out}});
}

}  // namespace zl
