// Optimizer state on disk: the bits of state in memory, in the bytes of the formulas, also on a
// disk that is as slow as can be.
#include "optim/swapped_state.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tests/optim/flat_values.h"
#include "tests/tensor/kept_events.h"

using namespace zl;

namespace {

// Memory that behaves like a disk: a transfer takes place when it is waited for, or at once.
class PretendedDisk final : public CpuBackend {
 public:
  explicit PretendedDisk(bool late) : late_(late) {}
  std::future<void> start_copy(const Tensor& from, const Tensor& to) override {
    most_in_flight = std::max(most_in_flight, ++in_flight);
    const std::shared_ptr<void> flight(this, [this](void*) { --in_flight; });
    if (!late_) copy(from, to);
    return std::async(std::launch::deferred, [=, this, number = ++started] {
      (void)flight;  // until this transfer was waited for
      if (fails) throw OutputError(str("transfer ", number));
      if (late_) copy(from, to);
    });
  }
  int in_flight = 0, most_in_flight = 0, started = 0;
  bool fails = false;

 private:
  const bool late_;
};

struct Settings {
  OptimizerConfig config;
  int64_t n = 10'000;
  Dtype type = Dtype::f32;
  std::vector<ParameterGroup> groups = {};
};

struct Bits {
  std::vector<std::vector<double>> all;
  bool operator==(const Bits&) const = default;
};

// Three updates of parameters in another memory, which is poisoned like the optimizer's.
Bits updated(const Settings& s, EventStream& events, Memory& memory, const Swap& swap) {
  Workbench device;
  const Tensor p = Tensor::empty(device.memory, MemoryUse::parameter, {s.n}, s.type);
  kernel::normal({.seed = 3}, 0, p);
  FlatOptimizer optimizer(memory, s.n, s.type, s.config, s.groups, swap);
  for (const OptimizerState& state : optimizer.state()) kernel::fill(0, state.tensor);
  if (optimizer.master().defined())
    kernel::copy(device.tensor({s.n}, values(p), optimizer.master().dtype()), optimizer.master());
  for (int64_t step = 0; step < 3; ++step) {
    events.set_phase("step");
    optimizer.update(p, device.tensor({s.n}, gradient_values(s.n, step), s.type), 0.01, 0.5f);
  }
  Bits bits{{values(p)}};
  for (const OptimizerState& state : optimizer.state()) bits.all.push_back(values(state.tensor));
  return bits;
}

struct Swapped {
  explicit Swapped(bool late) : backend(late) {}
  Bits run(const Settings& s, Swap swap) {
    swap.disk = &disk;
    return updated(s, events, host, swap);
  }
  PretendedDisk backend;
  EventStream events;
  std::shared_ptr<const std::vector<Event>> kept = test::keep_events(events);
  Memory host{{}, cpu_backend(), events, {.poison = true, .pool = Pool::host}};
  Memory disk{{}, backend, events, {.pool = Pool::disk}};
};

Bits in_memory(const Settings& s) {
  Workbench bench;
  EventStream events;
  return updated(s, events, bench.memory, {});
}

Settings adamw(Dtype type) { return {.config = {.weight_decay = 0.1}, .type = type}; }

// Of the second step.
std::string order_of(const std::vector<Event>& events) {
  std::string text;
  int64_t steps = 0;
  for (const Event& e : events) {
    if (e.kind == EventKind::phase) ++steps;
    if (steps != 2) continue;
    if (e.kind == EventKind::move && e.what == std::string_view("disk read")) text += "r";
    if (e.kind == EventKind::move && e.what == std::string_view("disk write")) text += "w";
    if (e.kind == EventKind::kernel && e.what == std::string_view("adamw")) text += "U";
  }
  return text;
}

}  // namespace

TEST_CASE("an update of state on disk has the bits of one in memory, for every chunk size",
          "[optim]") {
  const bool late = GENERATE(false, true);
  const int64_t sub_group = GENERATE(1, 3000, 1'000'000'000);
  const bool read = GENERATE(false, true), write = GENERATE(false, true);
  const Dtype type = GENERATE(Dtype::f32, Dtype::f16);
  const Settings s = adamw(type);
  CAPTURE(late, sub_group, read, write, name(type));
  Swapped swapped(late);
  const Bits bits = swapped.run(s, {nullptr, sub_group, read, write});
  CHECK(bits == in_memory(s));
  Settings other = s;
  other.config.beta1 = 0.91;
  CHECK(bits != in_memory(other));
}

TEST_CASE("the late disk shows what is used before its transfer was waited for", "[optim]") {
  Swapped swapped(true);
  const Tensor chunk = Tensor::empty(swapped.host, MemoryUse::optimizer_state, {4}),
               stored = Tensor::empty(swapped.disk, MemoryUse::optimizer_state, {4});
  kernel::fill(1, stored);
  auto read = kernel::start_copy(stored, chunk);
  CHECK(std::isnan(values(chunk)[0]));
  read.get();
  CHECK(values(chunk)[0] == 1);
  auto write = kernel::start_copy(chunk, stored);
  kernel::fill(2, chunk);  // too early
  write.get();
  CHECK(values(stored)[0] == 2);
}

TEST_CASE("groups, frozen parameters, SGD and a separate master copy are swapped likewise",
          "[optim]") {
  Settings s{.config = {.weight_decay = 0.1, .momentum = 0.9}};
  s.config.kind = GENERATE(OptimizerKind::adamw, OptimizerKind::sgd);
  s.config.separate_master = GENERATE(false, true);
  s.groups = {{.begin = 0, .end = 1000, .weight_decay = 0.1, .frozen = false},
              {.begin = 1000, .end = 5500, .weight_decay = 0, .frozen = true},
              {.begin = 5500, .end = 10'000, .weight_decay = 0, .frozen = false}};
  Swapped swapped(true);
  const Bits bits = swapped.run(s, {.sub_group_size = 2048});
  CHECK(bits == in_memory(s));
  s.groups[1].frozen = false;
  CHECK(bits != in_memory(s));
}

TEST_CASE("an optimizer without state takes nothing on disk", "[optim]") {
  const Settings s{.config = {.kind = OptimizerKind::sgd}};
  Swapped swapped(true);
  CHECK(swapped.run(s, {}) == in_memory(s));
  CHECK(swapped.disk.ledger().peak_total() == 0);
}

// n = 10,000 is stored as 10 blocks of 1,024 elements.
TEST_CASE("state on disk takes whole blocks there, and up to three chunks of memory", "[optim]") {
  const bool read = GENERATE(false, true), write = GENERATE(false, true),
             master = GENERATE(false, true);
  Settings s = adamw(Dtype::f32);
  s.config.separate_master = master;
  Swapped swapped(true);
  swapped.run(s, {nullptr, 2000, read, write});
  const int64_t buffers = 1 + read + write, tensors = master ? 3 : 2;
  const MemoryLedger &host = swapped.host.ledger(), &disk = swapped.disk.ledger();
  CHECK(host.peak(MemoryUse::optimizer_state) == buffers * 2 * 4 * 2048);
  CHECK(host.peak(MemoryUse::master_weights) == buffers * (tensors - 2) * 4 * 2048);
  CHECK(host.live_total() == 0);
  CHECK(disk.peak(MemoryUse::optimizer_state) == 2 * 4 * 10'240);
  CHECK(disk.peak(MemoryUse::master_weights) == (tensors - 2) * 4 * 10'240);
  CHECK(swapped.backend.most_in_flight == buffers * tensors);
  CHECK(swapped.backend.in_flight == 0);
}

TEST_CASE("the next chunk is read, and the previous one written, while one is updated", "[optim]") {
  struct Case {
    bool read, write;
    std::string order;
  };
  // Reads and writes as they begin; of two moments each.
  const Case c = GENERATE(
      Case{true, true, "rr rr U ww rr U ww U ww"}, Case{true, false, "rr rr U ww rr U ww U ww"},
      Case{false, true, "rr U ww rr U ww rr U ww"}, Case{false, false, "rr U ww rr U ww rr U ww"});
  Settings s = adamw(Dtype::f32);
  s.n = 3 * 1024;
  Swapped swapped(true);
  swapped.run(s, {nullptr, 1024, c.read, c.write});
  std::string expected = c.order;
  std::erase(expected, ' ');
  CHECK(order_of(*swapped.kept) == expected);
}

TEST_CASE("a chunk size is rounded up to 1,024, and no larger than the state", "[optim]") {
  struct Case {
    int64_t sub_group, n, stored, chunk, buffers;
  };
  for (const Case& c : {Case{1, 5000, 5120, 1024, 3},
                        {1024, 1024, 1024, 1024, 1},
                        {1025, 5000, 5120, 2048, 3},
                        {3000, 5000, 5120, 3072, 2},
                        {1'000'000'000, 5000, 5120, 5120, 1},
                        {7, 1, 1024, 1024, 1}}) {
    const SwapPlan plan = swap_plan({.sub_group_size = c.sub_group}, c.n);
    CHECK((plan.stored == c.stored && plan.chunk == c.chunk && plan.buffers == c.buffers));
  }
}

TEST_CASE("an error in an update leaves nothing in flight, and passes", "[optim]") {
  class Failing : public CpuBackend {
   public:
    void update_parameters(const OptimizerUpdate& u) override {
      if (--left == 0) throw std::runtime_error("of the update");
      CpuBackend::update_parameters(u);
    }
    int left = 2;
  } failing;
  PretendedDisk backend(false);
  EventStream events;
  Memory host({}, failing, events, {.pool = Pool::host});
  Memory disk({}, backend, events, {.pool = Pool::disk});
  Swap swap{.disk = &disk, .sub_group_size = 1024};
  const Tensor p = Tensor::zeros(host, MemoryUse::parameter, {5000});
  FlatOptimizer optimizer(host, 5000, Dtype::f32, {}, {}, swap);
  CHECK_THROWS_WITH(optimizer.update(p, p, 0.1, 1), "of the update");
  backend.fails = true, backend.started = 0;  // several transfers fail: the first one is named
  CHECK_THROWS_WITH(optimizer.update(p, p, 0.1, 1), "transfer 1");
  CHECK(backend.in_flight == 0);
  CHECK(host.ledger().live_total() == 4 * 5000);
}
