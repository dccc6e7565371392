#include "dist/trace/call_times.h"

#include <algorithm>

namespace zl {
namespace {

// When a call came so far, by the kinds of its events from collective_begin on.
constexpr int64_t CallSpan::*kSteps[] = {&CallSpan::began, &CallSpan::met, &CallSpan::wait,
                                         &CallSpan::moved, &CallSpan::ended};

}  // namespace

std::optional<CallSpan> OpenCalls::see(const Event& e) {
  if (e.kind < EventKind::collective_begin) return {};
  CallSpan call{.kind = e.what, .name = e.detail, .group = e.group};
  if (e.kind == EventKind::collective_begin) {
    call.began = e.nanoseconds, call.bytes = e.bytes, call.count = e.count;
    while (std::ranges::find(open_, call.lane, &CallSpan::lane) != open_.end()) ++call.lane;
    if (call.kind != "send" && call.kind != "receive" && call.group.empty())
      call.index = collectives_++;
    open_.push_back(call);
    return {};
  }
  const auto step = kSteps[int(e.kind) - int(EventKind::collective_begin)];
  const auto open = std::ranges::find_if(open_, [&](const CallSpan& o) {
    return o.*step == 0 && o.name == call.name && o.kind == call.kind && o.group == call.group;
  });
  if (open == open_.end()) return {};
  (*open).*step = e.nanoseconds;
  if (e.kind != EventKind::collective_end) return {};
  call = *open;
  call.sent = e.bytes;
  open_.erase(open);
  return call;
}

Bandwidth bandwidth(std::string_view kind, int64_t bytes, double nanoseconds, int ranks) {
  if (nanoseconds <= 0) return {};
  const double share = double(ranks - 1) / ranks;
  const bool shards = kind == "reduce_scatter" || kind == "all_gather" || kind == "all_to_all";
  const double factor = kind == "all_reduce" ? 2 * share : shards ? share : 1;
  const double gbit = 8 * double(bytes) / nanoseconds;  // a bit per nanosecond is a Gbit per second
  return {gbit, gbit * factor};
}

}  // namespace zl
