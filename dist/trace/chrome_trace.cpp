#include "dist/trace/chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "dist/trace/rank_timeline.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr int kCompute = 1, kCommunication = 2;  // tracks; further lanes follow

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
      for (const int pool : {0, 1, 2}) counters(r, pool);
      sent(r);
      moved(r);
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
    const std::string where = track(r, kCommunication + c.lane), label = texts[size_t(c.group)],
                      group = label.empty() ? "" : ",\"group\":" + quoted(label);
    out_.event(str("\"ph\":\"X\",\"cat\":\"collective\",\"name\":",
                   quoted(texts[size_t(c.kind)] + " " + texts[size_t(c.name)]), where,
                   during(c.begin, c.end), ",\"args\":{\"kind\":", quoted(texts[size_t(c.kind)]),
                   ",\"name\":", quoted(texts[size_t(c.name)]), group, ",\"bytes\":", c.bytes,
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

  // What the rank has sent so far, at the end of each call.
  void sent(size_t r) {
    int64_t bytes = 0;
    const auto say = [&](int64_t time) {
      out_.event(str("\"ph\":\"C\",\"name\":\"sent\"", track(r, 0), at(time),
                     ",\"args\":{\"bytes\":", bytes, "}"));
    };
    if (!lines_[r].collectives.empty()) say(lines_[r].begin);
    for (const TraceEvent& e : ranks_[r].events) {
      if (e.kind != EventKind::collective_end) continue;
      bytes += e.bytes;
      say(e.nanoseconds);
    }
  }

  // What the rank has moved so far between memory spaces, at each move.
  void moved(size_t r) {
    std::array<int64_t, kMoves> bytes{};
    const auto say = [&](int64_t time) {
      std::string values;
      for (int i = 0; i < kMoves; ++i)
        values += str(i == 0 ? "\"" : ",\"", name(Move(i)), "\":", bytes[size_t(i)]);
      out_.event(str("\"ph\":\"C\",\"name\":\"moved\"", track(r, 0), at(time), ",\"args\":{",
                     values, "}"));
    };
    bool any = false;
    for (const TraceEvent& e : ranks_[r].events) {
      if (e.kind != EventKind::move) continue;
      if (!std::exchange(any, true)) say(lines_[r].begin);
      for (int i = 0; i < kMoves; ++i)
        if (ranks_[r].texts[size_t(e.what)] == name(Move(i))) bytes[size_t(i)] += e.bytes;
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
