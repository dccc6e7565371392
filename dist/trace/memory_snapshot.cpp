#include "dist/trace/memory_snapshot.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "dist/trace/pickle_writer.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr int64_t kHeldFrom = 4096;  // addresses of what was held before; no real block is so low

// Where an allocation or a release happened: indices into RankTrace::texts, -1 if unknown, and the
// step.
struct Place {
  int32_t use = -1, unit = -1, phase = -1, event = -1;
  int64_t step = 1;
  auto operator<=>(const Place&) const = default;
};

struct Action {
  bool allocates;
  int64_t address, bytes, nanoseconds;
  Place place;
};

struct Block {
  int64_t bytes;
  Place place;
};

// One pool of one rank.
struct Device {
  std::vector<Action> actions;
  std::map<int64_t, Block> live;            // at the end, by address
  std::map<int64_t, int64_t> extents;       // address to the end, of all that was ever used
  std::array<int64_t, kMemoryUses> held{};  // [B] from before, not released so far
  bool used() const {
    return !actions.empty() || std::ranges::any_of(held, [](int64_t b) { return b > 0; });
  }
};

int use_of(std::string_view text) {
  int use = 0;
  while (use < kMemoryUses - 1 && text != name(MemoryUse(use))) ++use;
  return use;
}

void apply(const Action& action, int use, Device& device) {
  device.actions.push_back(action);
  int64_t& end = device.extents[action.address];
  end = std::max(end, action.address + action.bytes);
  if (action.allocates)
    device.live[action.address] = {action.bytes, action.place};
  else if (device.live.erase(action.address) == 0)
    device.held[size_t(use)] -= action.bytes;
}

// The device pool and the host pool of a rank.
std::array<Device, 2> devices_of(const RankTrace& trace) {
  std::array<Device, 2> pools;
  for (size_t pool = 0; pool < 2; ++pool) pools[pool].held = trace.at_start[pool];
  Place place;
  bool updated = false;  // the next micro-batch belongs to the next step
  for (const TraceEvent& e : trace.events) {
    const std::string& what = trace.texts[size_t(e.what)];
    place.unit = e.unit;
    if (e.kind == EventKind::phase) {
      if (what == "data" && updated) ++place.step;
      updated = what == "step" || (updated && what != "data");
      place.phase = place.event = e.what;
    } else if (e.kind == EventKind::unit) {
      place.event = e.what;
    }
    const bool allocates = e.kind == EventKind::allocate;
    if ((!allocates && e.kind != EventKind::release) || e.bytes == 0) continue;
    require(e.count != 0, "an allocation without an address");
    place.use = e.what;
    if (trace.texts[size_t(e.detail)] == name(Pool::disk)) continue;  // no address in memory
    const bool host = trace.texts[size_t(e.detail)] == name(Pool::host);
    apply({allocates, e.count, e.bytes, e.nanoseconds, place}, use_of(what), pools[host]);
  }
  return pools;
}

class Snapshot {
 public:
  explicit Snapshot(const std::function<void(std::string_view)>& write) : out_(write) {}

  void write(const std::vector<RankTrace>& ranks) {
    std::vector<std::array<Device, 2>> all;
    bool host = false;
    for (const RankTrace& rank : ranks) {
      all.push_back(devices_of(rank));
      host = host || all.back()[1].used();
      for (const TraceEvent& e : rank.events) zero_ = std::min(zero_, e.nanoseconds);
    }
    out_.begin_dict();
    out_.text("segments");
    out_.begin_list();
    for_each(ranks, all, host, [this](const Device& d, int64_t index) { segments(d, index); });
    out_.end();
    out_.text("device_traces");
    out_.begin_list();
    for_each(ranks, all, host, [this](const Device& d, int64_t) { trace(d); });
    out_.end();
    out_.end();
    out_.finish();
  }

 private:
  void for_each(const std::vector<RankTrace>& ranks, const std::vector<std::array<Device, 2>>& all,
                bool host, const auto& what) {
    for (size_t pool = 0; pool < (host ? 2 : 1); ++pool)
      for (size_t r = 0; r < all.size(); ++r) {
        rank_ = &ranks[r];
        frames_.clear();
        what(all[r][pool], int64_t(pool * all.size() + r));
      }
  }

  std::string_view text(int32_t index) const {
    if (index < 0 || rank_->texts[size_t(index)].empty()) return "-";
    return rank_->texts[size_t(index)];
  }

  void frame(std::string_view file, int64_t line, std::string_view function) {
    out_.begin_dict();
    out_.field("filename", file);
    out_.field("line", line);
    out_.field("name", function);
    out_.end();
  }

  void frames(const Place& place) {
    out_.text("frames");
    if (const auto same = frames_.find(place); same != frames_.end())
      return out_.refer(same->second);
    out_.begin_list();
    frame(text(place.unit), place.step, text(place.use));
    frame(text(place.phase), place.step, text(place.event));
    frames_[place] = out_.end_remembered();
  }

  void segments(const Device& device, int64_t index) {
    if (const int64_t held = held_bytes(device); held > 0) {
      begin_segment(index, kHeldFrom, held, held);
      for_each_held(device, [this](MemoryUse use, int64_t address, int64_t bytes) {
        block(address, bytes, "active_allocated");
        held_frames(use);
        out_.end();
      });
      end_segment();
    }
    for (auto first = device.extents.begin(); first != device.extents.end();) {
      auto last = first;
      int64_t end = first->second;
      for (; last != device.extents.end() && last->first <= end; ++last)
        end = std::max(end, last->second);
      segment(device, index, first->first, end);
      first = last;
    }
  }

  // A range of addresses: what is live in it at the end, and the gaps.
  void segment(const Device& device, int64_t index, int64_t begin, int64_t end) {
    const auto first = device.live.lower_bound(begin), last = device.live.lower_bound(end);
    int64_t live = 0;
    for (auto at = first; at != last; ++at) live += at->second.bytes;
    begin_segment(index, begin, end - begin, live);
    int64_t done = begin;
    for (auto at = first; at != last; ++at) {
      gap(done, at->first);
      block(at->first, at->second.bytes, "active_allocated");
      frames(at->second.place);
      out_.end();
      done = at->first + at->second.bytes;
    }
    gap(done, end);
    end_segment();
  }

  void begin_segment(int64_t device, int64_t address, int64_t bytes, int64_t live) {
    out_.begin_dict();
    out_.field("device", device);
    out_.field("address", address);
    out_.field("total_size", bytes);
    for (const char* key : {"allocated_size", "active_size", "requested_size"})
      out_.field(key, live);
    out_.field("stream", 0);
    out_.field("segment_type", "large");
    out_.text("blocks");
    out_.begin_list();
  }
  void end_segment() {
    out_.end();
    out_.end();
  }

  // Its caller writes the frames and ends it.
  void block(int64_t address, int64_t bytes, std::string_view state) {
    out_.begin_dict();
    out_.field("address", address);
    out_.field("size", bytes);
    out_.field("requested_size", bytes);
    out_.field("state", state);
  }
  void gap(int64_t begin, int64_t end) {
    if (begin >= end) return;
    block(begin, end - begin, "inactive");
    out_.text("frames");
    out_.begin_list();
    out_.end();
    out_.end();
  }

  // What was held before recording and is never released: one block per use, at made-up addresses.
  static void for_each_held(const Device& device, const auto& what) {
    int64_t address = kHeldFrom;
    for (int use = 0; use < kMemoryUses; ++use) {
      const int64_t bytes = std::max<int64_t>(0, device.held[size_t(use)]);
      if (bytes > 0) what(MemoryUse(use), address, bytes);
      address += bytes;
    }
  }
  static int64_t held_bytes(const Device& device) {
    int64_t all = 0;
    for_each_held(device, [&](MemoryUse, int64_t, int64_t bytes) { all += bytes; });
    return all;
  }
  void held_frames(MemoryUse use) {
    out_.text("frames");
    out_.begin_list();
    frame("before recording", 0, name(use));
    out_.end();
  }

  void trace(const Device& device) {
    out_.begin_list();
    // MemoryViz.js fails if there are categories but none is "unknown".
    if (device.used()) {
      begin_event("snapshot", 0, 0, 0);
      out_.field("category", "unknown");
      out_.end();
    }
    for_each_held(device, [this](MemoryUse use, int64_t address, int64_t bytes) {
      begin_event("alloc", address, bytes, 0);
      out_.field("category", name(use));
      held_frames(use);
      out_.end();
    });
    for (const Action& a : device.actions) {
      if (a.allocates) {
        event("alloc", a);
      } else {  // two events, because PyTorch's releases may be delayed
        event("free_requested", a);
        event("free_completed", a);
      }
    }
    out_.end();
  }

  void event(std::string_view action, const Action& a) {
    begin_event(action, a.address, a.bytes, a.nanoseconds - zero_);
    out_.field("category", text(a.place.use));
    frames(a.place);
    out_.end();
  }
  void begin_event(std::string_view action, int64_t address, int64_t bytes, int64_t nanoseconds) {
    out_.begin_dict();
    out_.field("action", action);
    out_.field("addr", address);
    out_.field("size", bytes);
    out_.field("stream", 0);
    out_.field("time_us", nanoseconds / 1000);
  }

  PickleWriter out_;
  const RankTrace* rank_ = nullptr;
  std::map<Place, int64_t> frames_;  // that are written and remembered, of this rank
  int64_t zero_ = INT64_MAX;         // [ns]
};

}  // namespace

void write_memory_snapshot(const std::vector<RankTrace>& ranks,
                           const std::function<void(std::string_view)>& write) {
  Snapshot(write).write(ranks);
}

}  // namespace zl
