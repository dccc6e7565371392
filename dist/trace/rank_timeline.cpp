#include "dist/trace/rank_timeline.h"

#include <algorithm>
#include <string_view>

namespace zl {
namespace {

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
      case EventKind::release:
      case EventKind::move: break;
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
    const bool all = text(e.what) != "send" && text(e.what) != "receive" && text(e.group).empty();
    std::vector<bool> taken(size_t(line_.lanes) + 1);
    while (first_open_ < line_.collectives.size() && line_.collectives[first_open_].ended)
      ++first_open_;
    for (size_t i = first_open_; i < line_.collectives.size(); ++i)
      if (!line_.collectives[i].ended) taken[size_t(line_.collectives[i].lane)] = true;
    const int lane = int(std::ranges::find(taken, false) - taken.begin());
    line_.lanes = std::max(line_.lanes, lane + 1);
    line_.collectives.push_back({.kind = e.what,
                                 .name = e.detail,
                                 .group = e.group,
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
      if (!(c.*far) && c.kind == e.what && c.name == e.detail && c.group == e.group) return &c;
    }
    return nullptr;
  }

  const RankTrace& trace_;
  RankTimeline line_;
  std::vector<Slice> stack_;
  int64_t latest_ = 0;  // [ns] of the events so far; some are reported later
  int64_t collectives_ = 0;
  size_t first_open_ = 0;  // all before it have ended
};

}  // namespace

RankTimeline timeline(const RankTrace& trace) { return Builder(trace).build(); }

}  // namespace zl
