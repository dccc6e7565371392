#include "tensor/events.h"

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

void EventStream::set_phase(std::string_view phase) {
  phase_ = keep(phase);
  append(EventKind::phase, phase_);
}

void EventStream::set_unit(std::string_view unit, const char* event) {
  unit_ = keep(unit);
  if (event) append(EventKind::unit, event);
}

const char* EventStream::keep(std::string_view text) { return kept_.emplace(text).first->c_str(); }

int64_t EventStream::append(EventKind kind, const char* what, int64_t bytes, int64_t count,
                            const char* detail, int64_t at) {
  const Event event{.sequence = appended_++,
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

}  // namespace zl
