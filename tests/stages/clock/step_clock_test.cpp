// The clock's lanes, on schedules whose times are worked out by hand. On the machine of these tests
// a kernel takes a second per byte, and a gather among 2 ranks half a second per byte.

#include "stages/predict/clock/step_clock.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace zl;
using Catch::Approx;

namespace {

Machine by_hand() {
  Machine m;
  m.ranks_per_node = 4;
  m.rank.memory_bandwidth = 1;
  m.rank.f32_flops = m.rank.half_flops = 1;
  m.link.bandwidth = 1;
  m.contention = 1;
  m.host = {.link_bandwidth = 0.5, .memory_bandwidth = 4, .disk_read = 1, .disk_write = 0.5};
  for (const int ranks : {2, 4})
    m.collectives.push_back(
        {.collective = Collective::all_gather, .ranks = ranks, .nodes = 1, .terms = {0, 0, 1}});
  return m;
}

// Events of a program that is written down in a test.
class Program {
 public:
  explicit Program(const Machine& machine, ClockOptions options = {.ranks = 2})
      : machine_(machine), clock_(machine_, options) {
    events_.listen([this](const Event& e) { clock_.see(e); });
    forward();
  }
  void forward() { events_.set_phase("forward"); }
  void kernel(int64_t bytes, const char* pool = "") {
    events_.append(EventKind::kernel, "add", bytes, 0, pool);
  }
  void begin(const char* name, int64_t bytes, const char* group = "") {
    call(EventKind::collective_begin, name, bytes, group);
  }
  void met(const char* name, const char* group = "") {
    call(EventKind::collective_met, name, 0, group);
  }
  void issue(const char* name, int64_t bytes, const char* group = "") {
    begin(name, bytes, group), met(name, group);
  }
  void wait(const char* name, const char* group = "") {
    call(EventKind::collective_wait, name, 0, group);
    call(EventKind::collective_end, name, 0, group);
  }
  void gather(const char* name, int64_t bytes) { issue(name, bytes), wait(name); }
  EventStream& events() { return events_; }
  ClockTimes times(int64_t micro_batches = 1) {
    clock_.finish();
    return clock_.step(micro_batches);
  }
  const StepClock& clock() const { return clock_; }

 private:
  void call(EventKind kind, const char* name, int64_t bytes, const char* group) {
    events_.set_group(group);
    events_.append(kind, "all_gather", bytes, 0, events_.keep(name));
    events_.set_group("");
  }

  Machine machine_;
  EventStream events_;
  StepClock clock_;
};

}  // namespace

TEST_CASE("a call in flight hides behind kernels until it is waited for", "[stages][clock]") {
  Program overlapped(by_hand()), waiting(by_hand());
  overlapped.kernel(3), overlapped.issue("a", 8),
      overlapped.kernel(2);  // the call runs from 3 to 7
  overlapped.wait("a"), overlapped.kernel(1);
  ClockTimes t = overlapped.times();
  CHECK(t.seconds == Approx(8));
  CHECK(t.communication == Approx(4));
  CHECK(t.exposed == Approx(2));
  CHECK(t.compute == Approx(6));
  // The same kernels and the same call, waited for at once.
  waiting.kernel(3), waiting.gather("a", 8), waiting.kernel(2), waiting.kernel(1);
  t = waiting.times();
  CHECK(t.seconds == Approx(10));
  CHECK(t.exposed == Approx(4));
}

TEST_CASE("kernels wait for the host to launch them", "[stages][clock]") {
  Machine slow_host = by_hand();
  slow_host.rank.launch = 2;
  Program p(slow_host);
  p.kernel(1), p.kernel(1), p.kernel(1);  // launched at 2, 4 and 6
  ClockTimes t = p.times();
  CHECK(t.seconds == Approx(7));
  CHECK(t.launches == Approx(4));
  // Long kernels hide all launches but the first.
  Program q(slow_host);
  q.kernel(5), q.kernel(5);
  t = q.times();
  CHECK(t.seconds == Approx(12));
  CHECK(t.launches == Approx(2));
}

TEST_CASE("on a CPU a kernel is launched when the kernel before has ended", "[stages][clock]") {
  Machine cpu = by_hand();
  cpu.rank.launch = 2;
  const auto times = [&](DeviceKind device) {
    cpu.rank.device = device;
    Program p(cpu);
    p.kernel(5), p.kernel(1), p.kernel(1);
    return p.times();
  };
  CHECK(times(DeviceKind::cpu).seconds == Approx(2 + 5 + 2 + 1 + 2 + 1));
  CHECK(times(DeviceKind::cpu).launches == Approx(6));
  CHECK(times(DeviceKind::cuda).seconds == Approx(2 + 5 + 1 + 1));
}

TEST_CASE("without a thread for calls the rank does each call at once", "[stages][clock]") {
  const auto times = [](bool in_flight) {
    Program p(by_hand(), {.ranks = 2, .calls_in_flight = in_flight});
    p.kernel(3), p.issue("a", 8), p.kernel(2), p.wait("a"), p.kernel(1);
    return p.times();
  };
  CHECK(times(true).seconds == Approx(8));
  CHECK(times(false).seconds == Approx(3 + 4 + 2 + 1));
  CHECK(times(false).exposed == Approx(4));
}

TEST_CASE("the first update waits until the host has read the norm", "[stages][clock]") {
  Machine slow_host = by_hand();
  slow_host.rank.launch = 1;
  const auto seconds = [&](bool update) {
    Program p(slow_host);
    p.kernel(5);  // launched at 1, ends at 6
    p.events().set_phase("step");
    if (update) p.events().append(EventKind::unit, "update");
    p.kernel(1);
    return p.times().seconds;
  };
  CHECK(seconds(false) == Approx(7));  // launched at 2, long before
  CHECK(seconds(true) == Approx(8));   // launched at 7
}

TEST_CASE("calls of one communicator run in order, those of several share a link",
          "[stages][clock]") {
  const ClockOptions groups{.ranks = 4, .ranks_in_group = 2};
  // Each takes 4 s alone: 8 bytes * 1/2.
  Program same(by_hand(), groups), two(by_hand(), groups);
  same.issue("a", 8, "intra"), same.issue("b", 8, "intra"), same.wait("a", "intra");
  same.kernel(1), same.wait("b", "intra");
  CHECK(same.times().seconds == Approx(8));
  // Both transfer at half the speed, so the first ends later than alone.
  two.issue("a", 8, "intra"), two.issue("b", 8, "inter"), two.wait("a", "intra");
  two.kernel(1), two.wait("b", "inter");
  const ClockTimes t = two.times();
  CHECK(t.seconds == Approx(9));
  CHECK(t.communication == Approx(8));
}

TEST_CASE("a group of several nodes takes what the machine says for these", "[stages][clock]") {
  Machine m = by_hand();  // nodes of 4 ranks
  m.network = {.kind = "Ethernet", .ports = 1, .bandwidth = 1};
  m.collectives.push_back(
      {.collective = Collective::all_gather, .ranks = 8, .nodes = 2, .terms = {0, 0, 0.5}});
  const auto seconds = [&](int ranks_in_group) {
    Program p(m, {.ranks = 16, .ranks_in_group = ranks_in_group});
    p.issue("a", 8, "intra"), p.wait("a", "intra");
    return p.times().seconds;
  };
  CHECK(seconds(8) == Approx(14));  // 8 B * 7/8 at 0.5 B/s
  CHECK(seconds(4) == Approx(6));   // in a node: 8 B * 3/4 at 1 B/s
}

TEST_CASE("the calls of a group are one launch with one latency", "[stages][clock]") {
  Machine late = by_hand();
  for (CollectiveRow& row : late.collectives) row.terms.alpha = 10;
  Program apart(late), grouped(late);
  apart.issue("a", 8), apart.issue("b", 8), apart.wait("a"), apart.wait("b");
  CHECK(apart.times().seconds == Approx(28));
  grouped.begin("a", 8), grouped.begin("b", 8), grouped.met("a"), grouped.met("b");
  grouped.wait("a"), grouped.wait("b");
  CHECK(grouped.times().seconds == Approx(18));
}

TEST_CASE("a kernel is slower while a call is in flight", "[stages][clock]") {
  Machine contended = by_hand();
  contended.contention = 2;
  Program p(contended);
  p.issue("a", 4), p.kernel(4), p.wait("a");  // the call takes 2 s, in which a quarter is computed
  CHECK(p.times().seconds == Approx(5));
  Program q(contended);
  q.kernel(4);
  CHECK(q.times().seconds == Approx(4));
}

TEST_CASE("kernels on the host and moves take the host's rates", "[stages][clock]") {
  Program p(by_hand());
  p.kernel(3, "host");  // a quarter of 4 B/s for each of the 4 ranks of a node
  CHECK(p.times().seconds == Approx(3));
  Program q(by_hand());
  q.events().move(Move::host_to_device, 3);  // at 0.5 B/s
  q.events().move(Move::disk_read, 3);       // two ranks share 1 B/s
  q.events().move(Move::disk_write, 3);
  CHECK(q.times().seconds == Approx(6 + 6 + 12));
}

TEST_CASE("a step of many micro-batches repeats the one in the middle", "[stages][clock]") {
  Program p(by_hand());
  p.kernel(100);  // of a step before
  p.events().set_phase("step");
  p.forward(), p.kernel(2), p.forward(), p.kernel(3), p.forward(), p.kernel(4);
  p.events().set_phase("step"), p.kernel(10);
  CHECK(p.times(3).seconds == Approx(19));
  CHECK(p.clock().step(10).seconds == Approx(19 + 7 * 3));
}

TEST_CASE("spans say what ran when, from the step's begin", "[stages][clock]") {
  Program p(by_hand());
  p.kernel(100);
  p.events().set_phase("step");
  p.forward(), p.kernel(3), p.issue("a", 8), p.kernel(2), p.wait("a");
  p.times();
  const std::vector<ClockSpan> spans = p.clock().spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[1].lane == "compute");
  CHECK(spans[1].begin == Approx(3));
  CHECK(spans[1].end == Approx(5));
  CHECK(spans[2].lane == "calls");
  CHECK(spans[2].what == "all_gather");
  CHECK(spans[2].begin == Approx(3));
  CHECK(spans[2].end == Approx(7));
}

TEST_CASE("gathers that the next step waits for are counted once", "[stages][clock]") {
  // Each step: a kernel, then a gather of 4 s which the next step waits for after 1 s of kernels.
  const auto seconds = [](const char* after_last_step) {
    Program p(by_hand());
    for (int step = 0; step < 3; ++step) {
      if (step > 0) p.forward();
      p.kernel(1);
      if (step > 0) p.wait("a");
      p.kernel(9);
      p.events().set_phase("step");
      p.issue("a", 8);
    }
    p.events().set_phase(after_last_step);
    p.wait("a");  // the program reads its parameters
    return p.times();
  };
  const ClockTimes t = seconds("report");
  CHECK(t.seconds == Approx(1 + 3 + 9));
  CHECK(t.exposed == Approx(3));
  CHECK(t.communication == Approx(4));
  CHECK(seconds("step").seconds == Approx(1 + 3 + 9 + 4));  // as a part of this step
}
