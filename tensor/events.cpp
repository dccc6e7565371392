#include "tensor/events.h"

#include <algorithm>
#include <chrono>

namespace zl {

const char* name(EventKind kind) {
  static constexpr const char* names[] = {"phase",
                                          "unit",
                                          "allocate",
                                          "release",
                                          "kernel",
                                          "move",
                                          "collective_begin",
                                          "collective_met",
                                          "collective_wait",
                                          "collective_moved",
                                          "collective_end"};
  return names[size_t(kind)];
}

int64_t steady_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

EventStream::EventStream(int rank, int64_t capacity)
    : rank_(rank), capacity_(size_t(std::max<int64_t>(capacity, 1))) {
  ring_.reserve(capacity_);  // pages of events that never happen are never touched
}

void EventStream::set_phase(std::string_view phase) {
  phase_ = keep(phase);
  append(EventKind::phase, phase_);
}

const char* EventStream::keep(std::string_view text) { return kept_.emplace(text).first->c_str(); }

int64_t EventStream::append(EventKind kind, const char* what, int64_t bytes, int64_t count,
                            const char* detail, int64_t at) {
  if (ring_.size() < capacity_) ring_.emplace_back();
  Event& event = ring_[size_t(appended_) % capacity_];
  event = {.sequence = appended_++,
           .nanoseconds = at ? at : steady_nanoseconds(),
           .kind = kind,
           .phase = phase_,
           .unit = unit_,
           .group = group_,
           .what = what,
           .detail = detail,
           .bytes = bytes,
           .count = count};
  for (const Listener& listener : listeners_) listener(event);
  return event.nanoseconds;
}

void EventStream::move(Move move, int64_t bytes) {
  if (bytes == 0) return;
  moves_.add(move, bytes);
  append(EventKind::move, name(move), bytes);
}

std::vector<Event> EventStream::recent() const {
  std::vector<Event> events;
  const int64_t first = std::max<int64_t>(0, appended_ - int64_t(capacity_));
  for (int64_t i = first; i < appended_; ++i) events.push_back(ring_[size_t(i) % capacity_]);
  return events;
}

}  // namespace zl
