#include "dist/trace/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr int kCompute = 1, kCommunication = 2;  // tracks; further lanes follow

// A slice of time on a track: two slices do not overlap, or one contains the other. [ns]
struct Slice {
  enum class Kind { phase, unit, kernel } kind;
  std::string name;  // "backward", "h.1 backward", "matmul"
  int64_t begin = 0, end = 0;
  int64_t bytes = 0, operations = 0;  // of a kernel
};

// A collective, from entering to leaving; one in flight, from its issue until its data had moved.
// [ns]
struct CollectiveSlice {
  int32_t kind = 0, name = 0;              // indices into RankTrace::texts
  int64_t begin = 0, met = 0, end = 0;     // met: the last rank had arrived
  int64_t wait = 0, waited = 0;            // the rank waited for it from and to; both 0: not so far
  int64_t bytes = 0, count = 0, sent = 0;  // of the unsharded side; [n]; by the ring formula
  int lane = 0;                            // overlapping calls have different lanes
  int64_t index = -1;                      // counts the rank's collectives; -1: a send or receive
  bool has_met = false, has_wait = false, has_moved = false, ended = false;
};

struct RankTimeline {
  std::vector<Slice> compute;                // by their ends
  std::vector<CollectiveSlice> collectives;  // by their begins
  int lanes = 0;
  int64_t begin = 0, end = 0;  // of all
};

// What one rank did as slices, from its events. A kernel lasts until the rank's next event, except
// for the allocation of its own workspace: on a GPU that is the time of its launch. What is open
// when the events end, ends there.
class Builder {
 public:
  explicit Builder(const RankTrace& trace) : trace_(trace) {}

  RankTimeline build() {
    for (const TraceEvent& e : trace_.events) see(e);
    if (trace_.events.empty()) return {};
    line_.begin = trace_.events.front().nanoseconds;
    line_.end = latest_;
    close_down_to(0, line_.end);
    for (CollectiveSlice& c : line_.collectives) {
      if (!c.ended && !c.has_moved) c.end = line_.end;
      if (!c.ended && c.has_wait) c.waited = line_.end;
      c.met = c.has_met ? std::min(c.met, c.end) : c.end;
    }
    return std::move(line_);
  }

 private:
  const std::string& text(int32_t index) const { return trace_.texts[size_t(index)]; }

  void open(Slice slice) { stack_.push_back(std::move(slice)); }
  void close_down_to(size_t depth, int64_t now) {
    for (; stack_.size() > depth; stack_.pop_back()) {
      stack_.back().end = now;
      line_.compute.push_back(std::move(stack_.back()));
    }
  }
  bool top_is(Slice::Kind kind, std::string_view ending = "") const {
    return !stack_.empty() && stack_.back().kind == kind &&
           std::string_view(stack_.back().name).ends_with(ending);
  }

  void see(const TraceEvent& e) {
    const int64_t now = e.nanoseconds;
    latest_ = std::max(latest_, now);
    const bool workspace =
        e.kind == EventKind::allocate && text(e.what) == name(MemoryUse::workspace);
    if (top_is(Slice::Kind::kernel) && !workspace) close_down_to(stack_.size() - 1, latest_);
    switch (e.kind) {
      case EventKind::phase:
        close_down_to(0, now);
        if (!text(e.what).empty())
          open({.kind = Slice::Kind::phase, .name = text(e.what), .begin = now});
        break;
      case EventKind::unit: unit(e); break;
      case EventKind::kernel:
        open({.kind = Slice::Kind::kernel,
              .name = text(e.what),
              .begin = now,
              .bytes = e.bytes,
              .operations = e.count});
        break;
      case EventKind::collective_begin: begin(e); break;
      case EventKind::collective_met:
        if (CollectiveSlice* c = find(e, &CollectiveSlice::has_met))
          c->met = now, c->has_met = true;
        break;
      case EventKind::collective_wait:
        if (CollectiveSlice* c = find(e, &CollectiveSlice::has_wait))
          c->wait = c->waited = now, c->has_wait = true;
        break;
      case EventKind::collective_moved:
        if (CollectiveSlice* c = find(e, &CollectiveSlice::has_moved))
          c->end = now, c->has_moved = true;
        break;
      case EventKind::collective_end: end(e); break;
      case EventKind::allocate:
      case EventKind::release: break;
    }
  }

  // The pass of a unit has a begin and an end; an update lasts until the next event.
  void unit(const TraceEvent& e) {
    const std::string_view what = text(e.what);
    if (top_is(Slice::Kind::unit, " update")) close_down_to(stack_.size() - 1, e.nanoseconds);
    const auto pass = [&](std::string_view name) { return text(e.unit) + " " + std::string(name); };
    if (what == "update")
      open({.kind = Slice::Kind::unit, .name = pass(what), .begin = e.nanoseconds});
    if (what.starts_with("before_"))
      open({.kind = Slice::Kind::unit, .name = pass(what.substr(7)), .begin = e.nanoseconds});
    if (!what.starts_with("after_")) return;
    const std::string ended = pass(what.substr(6));
    const auto found = std::ranges::find(stack_.rbegin(), stack_.rend(), ended, &Slice::name);
    if (found != stack_.rend()) close_down_to(size_t(stack_.rend() - found) - 1, e.nanoseconds);
  }

  void begin(const TraceEvent& e) {
    const bool all = text(e.what) != "send" && text(e.what) != "receive";
    std::vector<bool> taken(size_t(line_.lanes) + 1);
    while (first_open_ < line_.collectives.size() && line_.collectives[first_open_].ended)
      ++first_open_;
    for (size_t i = first_open_; i < line_.collectives.size(); ++i)
      if (!line_.collectives[i].ended) taken[size_t(line_.collectives[i].lane)] = true;
    const int lane = int(std::ranges::find(taken, false) - taken.begin());
    line_.lanes = std::max(line_.lanes, lane + 1);
    line_.collectives.push_back({.kind = e.what,
                                 .name = e.detail,
                                 .begin = e.nanoseconds,
                                 .met = e.nanoseconds,
                                 .end = e.nanoseconds,
                                 .bytes = e.bytes,
                                 .count = e.count,
                                 .lane = lane,
                                 .index = all ? collectives_++ : -1});
  }

  void end(const TraceEvent& e) {
    CollectiveSlice* c = find(e, &CollectiveSlice::ended);
    if (!c) return;
    if (!c->has_moved) c->end = e.nanoseconds;
    if (c->has_wait) c->waited = e.nanoseconds;
    c->sent = e.bytes, c->ended = true;
  }

  // The first open one of that name that has not come so far.
  CollectiveSlice* find(const TraceEvent& e, bool CollectiveSlice::*far) {
    for (size_t i = first_open_; i < line_.collectives.size(); ++i) {
      CollectiveSlice& c = line_.collectives[i];
      if (!(c.*far) && c.kind == e.what && c.name == e.detail) return &c;
    }
    return nullptr;
  }

  const RankTrace& trace_;
  RankTimeline line_;
  std::vector<Slice> stack_;
  int64_t latest_ = 0;  // [ns] of the events so far; some are told later than they happened
  int64_t collectives_ = 0;
  size_t first_open_ = 0;  // all before it have ended
};

RankTimeline timeline(const RankTrace& trace) { return Builder(trace).build(); }

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes one event after the other, in pieces of about 1 MiB.
class TraceText {
 public:
  explicit TraceText(const std::function<void(std::string_view)>& write) : write_(write) {
    text_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  }
  // `fields`: the event's, without braces.
  void event(const std::string& fields) {
    text_ += (first_ ? "\n{" : ",\n{") + fields + "}";
    first_ = false;
    if (text_.size() > (size_t(1) << 20)) flush();
  }
  void end(const std::string& other) {
    text_ += "\n],\"otherData\":{" + other + "}}\n";
    flush();
  }

 private:
  void flush() {
    write_(text_);
    text_.clear();
  }
  const std::function<void(std::string_view)>& write_;
  std::string text_;
  bool first_ = true;
};

class Drawing {
 public:
  Drawing(const std::vector<RankTrace>& ranks, const std::function<void(std::string_view)>& write)
      : ranks_(ranks), out_(write) {
    for (const RankTrace& rank : ranks) lines_.push_back(timeline(rank));
    bool any = false;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!ranks[r].events.empty())
        zero_ = any ? std::min(zero_, lines_[r].begin) : lines_[r].begin, any = true;
  }

  void draw() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      name_tracks(r);
      for (const Slice& slice : lines_[r].compute) compute(r, slice);
      for (const CollectiveSlice& c : lines_[r].collectives) communication(r, c);
      for (const int pool : {0, 1}) counters(r, pool);
    }
    join();
    int64_t left_out = 0;
    for (const RankTrace& rank : ranks_) left_out += rank.left_out;
    out_.end(str("\"ranks\":", ranks_.size(), ",\"events_left_out\":", left_out));
  }

 private:
  // [us], exact to the nanosecond.
  static std::string microseconds(int64_t nanoseconds) {
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%03lld", (long long)(nanoseconds / 1000),
                  (long long)(nanoseconds % 1000));
    return text;
  }
  std::string at(int64_t time) const { return ",\"ts\":" + microseconds(time - zero_); }
  static std::string track(size_t rank, int track) {
    return str(",\"pid\":", rank, ",\"tid\":", track);
  }
  std::string during(int64_t begin, int64_t end) const {
    return at(begin) + ",\"dur\":" + microseconds(end - begin);
  }

  void name_tracks(size_t r) {
    const auto name = [&](const char* what, int tid, const std::string& text) {
      out_.event(str("\"ph\":\"M\",\"name\":\"", what, "\"", track(r, tid),
                     ",\"args\":{\"name\":", quoted(text), "}"));
    };
    name("process_name", 0, str("rank ", r));
    out_.event(str("\"ph\":\"M\",\"name\":\"process_sort_index\"", track(r, 0),
                   ",\"args\":{\"sort_index\":", r, "}"));
    name("thread_name", kCompute, "compute");
    for (int lane = 0; lane < lines_[r].lanes; ++lane)
      name("thread_name", kCommunication + lane,
           lane == 0 ? "communication" : str("communication ", lane + 1));
  }

  void compute(size_t r, const Slice& s) {
    const char* kinds[] = {"phase", "unit", "kernel"};
    const std::string args =
        s.kind == Slice::Kind::kernel
            ? str(",\"args\":{\"operations\":", s.operations, ",\"bytes\":", s.bytes, "}")
            : "";
    out_.event(str("\"ph\":\"X\",\"cat\":\"", kinds[int(s.kind)], "\",\"name\":", quoted(s.name),
                   track(r, kCompute), during(s.begin, s.end), args));
  }

  void communication(size_t r, const CollectiveSlice& c) {
    const auto& texts = ranks_[r].texts;
    const std::string where = track(r, kCommunication + c.lane);
    out_.event(str("\"ph\":\"X\",\"cat\":\"collective\",\"name\":",
                   quoted(texts[size_t(c.kind)] + " " + texts[size_t(c.name)]), where,
                   during(c.begin, c.end), ",\"args\":{\"kind\":", quoted(texts[size_t(c.kind)]),
                   ",\"name\":", quoted(texts[size_t(c.name)]), ",\"bytes\":", c.bytes,
                   ",\"count\":", c.count, ",\"sent_bytes\":", c.sent,
                   ",\"waited_us\":", microseconds(c.met - c.begin),
                   c.has_wait ? ",\"exposed_us\":" + microseconds(c.waited - c.wait) : "",
                   ",\"index\":", c.index, "}"));
    if (c.met > c.begin)
      out_.event(
          str("\"ph\":\"X\",\"cat\":\"wait\",\"name\":\"waiting\"", where, during(c.begin, c.met)));
    if (c.has_wait) issue_and_wait(r, c);
  }

  // Of a call in flight: what the rank's own thread did for it.
  void issue_and_wait(size_t r, const CollectiveSlice& c) {
    const auto& texts = ranks_[r].texts;
    const std::string call = texts[size_t(c.kind)] + " " + texts[size_t(c.name)];
    out_.event(str("\"ph\":\"i\",\"s\":\"t\",\"cat\":\"issue\",\"name\":", quoted("issue " + call),
                   track(r, kCompute), at(c.begin)));
    out_.event(str("\"ph\":\"X\",\"cat\":\"exposed\",\"name\":", quoted("wait for " + call),
                   track(r, kCompute), during(c.wait, c.waited)));
  }

  void counters(size_t r, int pool) {
    const RankTrace& rank = ranks_[r];
    auto live = rank.at_start[size_t(pool)];
    const std::string pool_name = name(Pool(pool));
    std::array<bool, kMemoryUses> used{};
    for (size_t i = 0; i < used.size(); ++i) used[i] = live[i] != 0;
    const auto change = [&](const TraceEvent& e) {  // of which use; -1: none of this pool
      if ((e.kind != EventKind::allocate && e.kind != EventKind::release) ||
          rank.texts[size_t(e.detail)] != pool_name)
        return -1;
      for (int i = 0; i < kMemoryUses; ++i)
        if (rank.texts[size_t(e.what)] == name(MemoryUse(i))) return i;
      return -1;
    };
    for (const TraceEvent& e : rank.events)
      if (const int use = change(e); use >= 0) used[size_t(use)] = true;
    if (std::ranges::none_of(used, [](bool u) { return u; }) || rank.events.empty()) return;
    const auto say = [&](int64_t time) {
      std::string values;
      for (int i = 0; i < kMemoryUses; ++i)
        if (used[size_t(i)])
          values += str(values.empty() ? "\"" : ",\"", name(MemoryUse(i)), "\":", live[size_t(i)]);
      out_.event(str("\"ph\":\"C\",\"name\":\"", pool_name, " memory\"", track(r, 0), at(time),
                     ",\"args\":{", values, "}"));
    };
    say(lines_[r].begin);
    for (const TraceEvent& e : rank.events) {
      const int use = change(e);
      if (use < 0) continue;
      live[size_t(use)] += e.kind == EventKind::allocate ? e.bytes : -e.bytes;
      say(e.nanoseconds);
    }
  }

  // Arrows of each collective, from the rank that came last to the others.
  void join() {
    std::vector<std::vector<const CollectiveSlice*>> shared(lines_.size());
    size_t common = size_t(-1);
    for (size_t r = 0; r < lines_.size(); ++r) {
      for (const CollectiveSlice& c : lines_[r].collectives)
        if (c.index >= 0) shared[r].push_back(&c);
      common = std::min(common, shared[r].size());
    }
    for (size_t i = 0; i < common && lines_.size() > 1; ++i) {
      size_t last = 0;
      for (size_t r = 1; r < shared.size(); ++r)
        if (shared[r][i]->begin > shared[last][i]->begin) last = r;
      for (size_t r = 0; r < shared.size(); ++r)
        if (r != last) arrow(*shared[last][i], last, *shared[r][i], r);
    }
  }

  void arrow(const CollectiveSlice& from, size_t last, const CollectiveSlice& to, size_t other) {
    const std::string same =
        str(",\"cat\":\"collective\",\"name\":", quoted(ranks_[last].texts[size_t(from.kind)]),
            ",\"id\":", ++arrows_);
    out_.event("\"ph\":\"s\"" + same + track(last, kCommunication + from.lane) + at(from.begin));
    out_.event("\"ph\":\"f\",\"bp\":\"e\"" + same + track(other, kCommunication + to.lane) +
               at(std::clamp(from.begin, to.met, to.end)));
  }

  const std::vector<RankTrace>& ranks_;
  std::vector<RankTimeline> lines_;
  TraceText out_;
  int64_t zero_ = 0, arrows_ = 0;
};

// When each collective ended on this rank, as far as known.
std::vector<int64_t> ends(const RankTrace& rank) {
  std::vector<int64_t> all;
  for (const CollectiveSlice& c : timeline(rank).collectives)
    if (c.index >= 0 && c.ended) all.push_back(c.end);
  return all;
}

}  // namespace

void align_clocks(std::vector<RankTrace>& ranks) {
  for (RankTrace& rank : ranks) {
    if (rank.machine == ranks[0].machine) continue;
    const std::vector<int64_t> here = ends(ranks[0]), there = ends(rank);
    std::vector<int64_t> differences;
    for (size_t i = 0; i < std::min(here.size(), there.size()); ++i)
      differences.push_back(here[i] - there[i]);
    if (differences.empty()) continue;
    const auto middle = differences.begin() + int64_t(differences.size() / 2);
    std::ranges::nth_element(differences, middle);
    for (TraceEvent& e : rank.events) e.nanoseconds += *middle;
  }
}

void write_chrome_trace(const std::vector<RankTrace>& ranks,
                        const std::function<void(std::string_view)>& write) {
  Drawing(ranks, write).draw();
}

}  // namespace zl
