// Phase times from events whose times are known. A real run: tests/zerolab/reports_test.cpp.

#include "stages/train/phase_times.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <vector>

using namespace zl;

namespace {

Event phase(int64_t milliseconds, const char* name) {
  return {.nanoseconds = milliseconds * 1'000'000,
          .kind = EventKind::phase,
          .phase = name,
          .what = name};
}
Event call(int64_t milliseconds, EventKind kind, const char* what) {
  return {.nanoseconds = milliseconds * 1'000'000, .kind = kind, .what = what};
}
Event begin(int64_t milliseconds, const char* what) {
  return call(milliseconds, EventKind::collective_begin, what);
}
Event end(int64_t milliseconds, const char* what) {
  return call(milliseconds, EventKind::collective_end, what);
}

// Two micro-batches, one step, then something that is no part of it.
const std::vector<Event> kStep = {
    call(3, EventKind::allocate, "parameter"),  // before any phase
    phase(10, "forward"),
    begin(12, "all_gather"),
    call(13, EventKind::collective_met, "all_gather"),
    end(15, "all_gather"),
    phase(20, "backward"),
    call(31, EventKind::kernel, "matmul"),
    phase(50, "forward"),
    phase(60, "backward"),
    begin(65, "all_gather"),
    end(66, "all_gather"),
    begin(70, "reduce_scatter"),
    end(80, "reduce_scatter"),
    phase(100, "step"),
    begin(101, "all_reduce"),
    end(103, "all_reduce"),
    begin(110, "all_gather"),
    end(114, "all_gather"),
};

StepTimes read(const std::vector<Event>& events) {
  PhaseTimes times;
  for (const Event& e : events) times.see(e);
  return times.take();
}

}  // namespace

TEST_CASE("the time of each phase and of its communication adds up over the micro-batches",
          "[stages]") {
  const StepTimes t = read(kStep);
  CHECK(t.forward == 10 + 10);
  CHECK(t.backward() == 30 + 40);
  CHECK(t.backward_allreduce == 10);
  CHECK(t.backward_inner == 60);
  CHECK(t.step == 14);  // to its last event
  CHECK(t.communication == 3 + 1 + 10 + 2 + 4);
  CHECK(time_line(t) ==
        "time (ms) | fwd: 20.00 | bwd: 70.00 | bwd_inner: 60.00 | bwd_allreduce: 10.00 | step: "
        "14.00 | comm: 20.00");
}

TEST_CASE("what lies between two steps counts nowhere", "[stages]") {
  PhaseTimes times;
  for (const Event& e : kStep) times.see(e);
  const StepTimes first = times.take();
  times.see(call(5000, EventKind::allocate,
                 "activation"));  // the next step's data, still labelled with the last phase
  for (Event e : kStep) {
    e.nanoseconds += 6'000'000'000;
    times.see(e);
  }
  const StepTimes second = times.take();
  CHECK(time_line(first) == time_line(second));
  CHECK(time_line(times.take()) == time_line({}));
}

TEST_CASE(
    "collectives of a group that are under way together count once, and across phases in each",
    "[stages]") {
  const StepTimes grouped =
      read({phase(0, "backward"), begin(1, "reduce_scatter"), begin(2, "reduce_scatter"),
            end(5, "reduce_scatter"), end(9, "reduce_scatter"), phase(10, "step")});
  CHECK(grouped.backward_allreduce == 8);
  CHECK(grouped.communication == 8);
  const StepTimes across = read(
      {phase(0, "backward"), begin(4, "all_reduce"), phase(10, "step"), end(13, "all_reduce")});
  CHECK(across.backward_allreduce == 6);
  CHECK(across.step == 3);
  CHECK(across.communication == 9);
}

TEST_CASE("an evaluation is a phase of its own", "[stages]") {
  auto events = kStep;
  events.push_back(phase(120, "evaluate"));
  events.push_back(call(900, EventKind::kernel, "matmul"));
  const StepTimes t = read(events);
  CHECK(t.step == 20);
  CHECK(t.forward + t.backward() == 90);
}

TEST_CASE("a call in flight counts while the rank waits for it, not while it computes",
          "[stages]") {
  const auto named = [](int64_t milliseconds, EventKind kind, const char* name) {
    Event event = call(milliseconds, kind, "reduce_scatter");
    event.detail = name;
    return event;
  };
  const bool waits = GENERATE(true, false);  // the twin: a rank that computes inside the call
  std::vector<Event> events = {phase(10, "backward"),
                               named(20, EventKind::collective_begin, "a"),
                               call(22, EventKind::kernel, "matmul"),
                               named(40, EventKind::collective_wait, "a"),
                               named(30, EventKind::collective_met, "a"),
                               named(35, EventKind::collective_moved, "a"),
                               named(45, EventKind::collective_end, "a"),
                               named(50, EventKind::collective_begin, "a"),
                               call(51, EventKind::kernel, "matmul"),
                               named(60, EventKind::collective_wait, "a"),
                               named(63, EventKind::collective_end, "a"),
                               phase(70, "step")};
  if (!waits) std::erase_if(events, [](const Event& e) { return e.kind == EventKind::kernel; });
  const StepTimes t = read(events);
  CHECK(t.backward() == 60);
  CHECK(t.backward_allreduce == (waits ? 2 + 5 + 1 + 3 : 25 + 13));
  CHECK(t.backward_inner == 60 - t.backward_allreduce);
}
