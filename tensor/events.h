// One stream of events per rank: what happened, when, in which phase and unit.
//
// Traces, --step and reports listen to this stream; the flight recorder and the message of
// OutOfMemory take the phase and the unit from it. It keeps no event: a listener does that.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tensor/moves.h"

namespace zl {

enum class EventKind {
  phase,     // a phase begins; `what` is its name
  unit,      // a unit event such as before_forward; `what` is the event, `unit` the unit
  allocate,  // `bytes` were allocated at address `count` (0: no bytes); `what` is the memory use
  release,   // `bytes` at address `count` were freed
  kernel,    // a kernel ran: `what`, floating-point operations in `count`, bytes touched in `bytes`
  move,      // `bytes` of model state were copied between memory spaces; `what` is the Move's name
  collective_begin,  // this rank begins a collective of `count` elements and `bytes` bytes; `what`
                     // is its kind, `detail` its name
  collective_met,    // the last rank has begun it: until now this rank waited for other ranks
  collective_wait,   // the rank begins to wait for it; only where it is in flight until then
  collective_moved,  // its data has moved; appended when the rank has waited for it
  collective_end,    // this rank has finished; `bytes` were sent, by the ring formula
};
const char* name(EventKind kind);

// [ns] Now, by the steady clock.
int64_t steady_nanoseconds();

struct Event {
  int64_t sequence = 0;     // counts from 0, never skips
  int64_t nanoseconds = 0;  // steady clock
  EventKind kind = EventKind::phase;
  const char* phase = "";  // the stream owns these five strings
  const char* unit = "";
  const char* group = "";  // the label of a collective's group of ranks; "": all ranks
  const char* what = "";
  const char* detail = "";  // the name of a collective, the pool of an allocation or of a kernel
  int64_t bytes = 0;        // [B]
  int64_t count = 0;        // [n] elements of a collective, operations of a kernel; an address
};

// Not thread-safe: a rank is one thread.
class EventStream {
 public:
  using Listener = std::function<void(const Event&)>;

  explicit EventStream(int rank = 0) : rank_(rank) {}

  // The labels of every later event. The stream copies the text; an event's is from keep(), or a
  // literal.
  void set_phase(std::string_view phase);                             // appends a phase event
  void set_unit(std::string_view unit, const char* event = nullptr);  // appends this unit event
  void set_group(const char* group) { group_ = group; }               // from keep(), or a literal
  const char* phase() const { return phase_; }
  const char* unit() const { return unit_; }
  int rank() const { return rank_; }

  // `what` and `detail` must come from keep() or be literals. Returns the event's time [ns]. `at`:
  // when it happened, if that was earlier than now.
  int64_t append(EventKind kind, const char* what, int64_t bytes = 0, int64_t count = 0,
                 const char* detail = "", int64_t at = 0);

  // Counts a move, and appends its event.
  void move(Move move, int64_t bytes);
  // All moves so far. Assign {} to begin again; code that is not counted saves and restores it.
  MoveLog& moves() { return moves_; }

  // Calls `listener` at each append, on the rank's own thread. It may block, but must not append.
  // It must not throw at a release, because destructors release.
  void listen(Listener listener) { listeners_.push_back(std::move(listener)); }

  int64_t appended() const { return appended_; }

  // A copy of `text` that lives as long as the stream; equal texts share one copy.
  const char* keep(std::string_view text);

 private:
  int rank_;
  int64_t appended_ = 0;
  const char* phase_ = "";
  const char* unit_ = "";
  const char* group_ = "";
  MoveLog moves_;
  std::unordered_set<std::string> kept_;
  std::vector<Listener> listeners_;
};

}  // namespace zl
