#include "stages/residual/fragmentation.h"

#include <string_view>
#include <unordered_map>

#include "stages/predict/dry_run.h"

namespace zl {

void BlockRecorder::see(const Event& e) {
  if (e.kind != EventKind::allocate && e.kind != EventKind::release) return;
  if (e.bytes == 0 || e.detail != std::string_view(name(Pool::device))) return;
  const std::string_view use = e.what, phase = e.phase;
  seen_.push_back({{.block = e.count, .bytes = e.bytes, .allocates = e.kind == EventKind::allocate},
                   use == name(MemoryUse::gradient),
                   use == name(MemoryUse::activation),
                   phase == "data" || phase == "forward"});
}

std::vector<ChunkEvent> BlockRecorder::events() const {
  std::vector<ChunkEvent> events;
  std::unordered_map<int64_t, size_t> allocated;  // of live blocks: where in `events`
  for (const Seen& s : seen_) {
    const size_t now = events.size();
    events.push_back({s.event, s.gradient ? Chunk::gradient : Chunk::rest});
    if (s.event.allocates) {
      allocated[s.event.block] = now;
      continue;
    }
    const auto at = allocated.find(s.event.block);
    require(at != allocated.end(), "a block of ", s.event.bytes,
            " bytes is released that was not allocated while events were recorded");
    if (s.activation && seen_[at->second].before_backward && !s.before_backward)
      events[at->second].chunk = events[now].chunk = Chunk::kept;
    allocated.erase(at);
  }
  return events;
}

Fragmentation fragmentation(const std::vector<ChunkEvent>& events, Fit fit) {
  ArenaModel together(fit), kept(fit), gradient(fit), rest(fit);
  for (const ChunkEvent& e : events) {
    together.see(e.event);
    (e.chunk == Chunk::kept ? kept : e.chunk == Chunk::gradient ? gradient : rest).see(e.event);
  }
  return {fit, together.use(), kept.use(), gradient.use(), rest.use()};
}

std::vector<ChunkEvent> block_events(const TrainingSpec& spec, int rank) {
  TrainingSpec unlimited = spec;
  unlimited.device_memory = unlimited.host_memory = 0;
  BlockRecorder recorder;
  dry_run(unlimited, rank, 3, {}, [&](const Event& e) { recorder.see(e); });
  return recorder.events();
}

}  // namespace zl
