// Predicted steps of real stages: bounds that hold for every machine, and what must not change.

#include "stages/predict/clock/clock_plan.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "stages/predict/dry_run.h"
#include "tensor/error.h"
#include "tests/pairwise.h"

using namespace zl;
using namespace zl::test;
using Catch::Approx;

namespace {

GptTrainingSpec spec_of(StageKind stage, int ranks, bool overlap, int64_t accumulation = 1) {
  GptTrainingSpec spec =
      gpt_spec({.layers = 6, .heads = 4, .width = 512, .block_size = 256, .vocab = 4096});
  spec.engine.stage = stage;
  spec.ranks = ranks;
  spec.device = DeviceKind::cuda;
  spec.engine.precision = Dtype::bf16;
  spec.engine.accumulation = accumulation;
  set_overlap(spec.engine, overlap);
  return spec;
}

}  // namespace

TEST_CASE("a step takes no longer than its parts together, and no shorter than each",
          "[stages][clock]") {
  SettingsRow pick = any_pair({4, 3, 4, 2});
  const StageKind stage = pick.next_stage();
  const char* machine = pick.next({"a100-80gb", "rtx3090-pcie", "t4"});
  const int ranks = pick.next({1, 3, 16, 24});
  const bool overlap = pick.next({false, true});
  CAPTURE(name(stage), machine, ranks, overlap);
  const ClockTimes t = clock_step(spec_of(stage, ranks, overlap, 5), find_machine(machine)).times;
  const double tiny = 1e-9 * t.seconds;
  CHECK(t.seconds > 0);
  CHECK(t.compute + t.communication >= t.seconds - tiny);
  CHECK(t.seconds >= t.compute - tiny);
  CHECK(t.seconds >= t.communication - tiny);
  CHECK(t.exposed <= t.communication + tiny);
  CHECK(t.compute + t.exposed == Approx(t.seconds));
  if (ranks == 1) CHECK(t.communication == 0);
}

TEST_CASE("without overlap a step is the sum of its kernels and calls", "[stages][clock]") {
  Machine m = find_machine("a100-pcie");  // 25 Gb/s between nodes
  m.contention = 1;
  for (const StageKind stage : kStages) {
    // Where calls do not slow kernels down, overlap makes no step longer.
    CHECK(clock_step(spec_of(stage, 16, true), m).times.seconds <=
          1.0001 * clock_step(spec_of(stage, 16, false), m).times.seconds);
    if (stage == StageKind::zero1) continue;
    const ClockTimes t = clock_step(spec_of(stage, 16, false), find_machine("a100-80gb")).times;
    CHECK(t.exposed > 0.95 * t.communication);  // the loss is gathered beside the updates
    const ClockTimes on = clock_step(spec_of(stage, 16, true), find_machine("a100-80gb")).times;
    CHECK(on.exposed < t.exposed);
    CHECK(on.seconds < t.seconds);
  }
}

TEST_CASE("faster links, shorter latencies and faster GPUs never make a step longer",
          "[stages][clock]") {
  const StageKind stage =
      GENERATE(StageKind::ddp, StageKind::zero1, StageKind::zero2, StageKind::zero3);
  const bool overlap = GENERATE(false, true);
  Machine m = find_machine("a100-80gb");
  m.collectives.clear();
  m.contention = 1;  // a call that ends earlier slows other kernels
  const auto seconds = [&](const Machine& machine) {
    return clock_step(spec_of(stage, 16, overlap), machine).times.seconds;
  };
  const double now = seconds(m);
  Machine links = m, latency = m, memory = m, launch = m;
  links.network.bandwidth *= 2, links.link.bandwidth *= 2;
  latency.network.hop /= 4;
  memory.rank.memory_bandwidth *= 2;
  launch.rank.launch = 0;
  CHECK(seconds(links) < now);
  CHECK(seconds(latency) < now);
  CHECK(seconds(memory) <= now);
  // With overlap, where a step begins depends on what the step before left in flight.
  if (!overlap) CHECK(seconds(launch) <= now);
  Machine slow = m, slow_host = m;
  slow.network.bandwidth /= 10;
  slow_host.rank.launch *= 10;
  CHECK(seconds(slow) > now);
  CHECK(seconds(slow_host) > now);
}

TEST_CASE("stragglers make a step as long as that of the slowest rank", "[stages][clock]") {
  CHECK(slowest({}, 1000) == 1);
  const auto sigmas = [](int ranks, uint64_t seed) {
    return std::log(slowest({.deviation = 0.1, .seed = seed}, ranks)) / 0.1;
  };
  // The largest of 1,000 standard normal numbers is 3.24 on average, with a deviation of 0.35.
  double sum = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) sum += sigmas(1000, seed);
  CHECK(sum / 50 == Approx(3.24).margin(0.2));
  CHECK(sigmas(1000, 1) != sigmas(1000, 2));
  for (const int ranks : {1, 7, 64}) CHECK(sigmas(ranks, 3) <= sigmas(ranks + 1, 3));
  const GptTrainingSpec spec = spec_of(StageKind::zero3, 8, true);
  const Machine m = find_machine("a100-80gb");
  CHECK(clock_step(spec, m, {.deviation = 0.05}).times.seconds > clock_step(spec, m).times.seconds);
}

TEST_CASE("MFU counts a model's operations as PaLM does", "[stages][clock]") {
  GptTrainingSpec spec = spec_of(StageKind::zero1, 8, true, 2);
  const StepTime time = clock_step(spec, find_machine("a100-80gb"));
  CHECK(time.tokens == 2 * spec.micro_batch * 256);
  // 6 N + 12 L H Q T: 6 layers, 4 heads of 128, 256 tokens.
  const double operations =
      double(time.tokens) * (6 * double(spec.model.parameters()) + 12.0 * 6 * 4 * 128 * 256);
  CHECK(time.mfu == Approx(operations / time.times.seconds / 312e12));
  CHECK(time.mfu < 1);
}

TEST_CASE("the clock changes no byte of a plan", "[stages][clock]") {
  const GptTrainingSpec spec = spec_of(StageKind::zero3, 16, true);
  const StepTime time = clock_step(spec, find_machine("h100-sxm"));
  CHECK(time.device_peak == dry_run(spec, 0).rest.peak_total());
  GptTrainingSpec other = spec;
  other.micro_batch *= 2;
  CHECK(time.device_peak != clock_step(other, find_machine("h100-sxm")).device_peak);
}

TEST_CASE("hsdp beats zero3 where many nodes have a slow network, and loses nothing on one node",
          "[stages][clock]") {
  const Machine m = find_machine("a100-80gb-4x100g");
  GptTrainingSpec zero3 = spec_of(StageKind::zero3, 512, true),
                  hsdp = spec_of(StageKind("hsdp"), 512, true);
  hsdp.engine.ranks_per_node = 8, hsdp.engine.replicas = 64;
  CHECK(clock_step(hsdp, m).times.seconds < clock_step(zero3, m).times.seconds);
}

TEST_CASE("ranks on a CPU overlap calls only where each has a second core", "[stages][clock]") {
  Machine cpu = find_machine("l4");
  cpu.rank.device = DeviceKind::cpu;
  const auto times = [&](int cores) {
    cpu.ranks_per_node = cores;
    GptTrainingSpec spec = spec_of(StageKind::zero3, 4, true);
    spec.device = DeviceKind::cpu;
    return clock_step(spec, cpu).times;
  };
  CHECK(times(7).exposed == Approx(times(7).communication));
  CHECK(times(7).seconds == Approx(times(7).compute + times(7).exposed));
  CHECK(times(8).exposed < 0.9 * times(8).communication);
}

TEST_CASE("a machine without a network has no steps of several nodes", "[stages][clock]") {
  Machine one = find_machine("l4");
  one.network.ports = 0;
  const int ranks = one.ranks_per_node;
  CHECK(clock_step(spec_of(StageKind::ddp, ranks, false), one).times.seconds > 0);
  CHECK_THROWS_AS(clock_step(spec_of(StageKind::ddp, ranks + 1, false), one), InputError);
}

TEST_CASE("what is offloaded must fit the host memory and the disk of the node",
          "[stages][clock]") {
  Machine m = find_machine("l4");
  m.ranks_per_node = 8;
  m.host.memory_bytes = 80;
  m.host.disk_bytes = 800;
  GptTrainingSpec spec = spec_of(StageKind::zero1, 16, false);
  const auto lacks = [&](int64_t device, int64_t host, int64_t disk) {
    StepTime time;
    time.device_peak = device, time.host_peak = host, time.disk_peak = disk;
    return shortage(time, spec, m);
  };
  CHECK(lacks(1'000'000, 10, 100) == Shortage::none);  // no limit of the device
  CHECK(lacks(0, 11, 0) == Shortage::host_memory);
  CHECK(lacks(0, 0, 101) == Shortage::disk);
  spec.ranks = 4;  // of which each has a quarter of the node
  CHECK(lacks(0, 20, 200) == Shortage::none);
  CHECK(lacks(0, 21, 200) == Shortage::host_memory);
  spec.device_memory = 5, spec.host_memory = 15;  // of a rank
  CHECK(lacks(5, 15, 0) == Shortage::none);
  CHECK(lacks(6, 15, 0) == Shortage::device_memory);
  CHECK(lacks(5, 16, 0) == Shortage::host_memory);
  m.host.memory_bytes = m.host.disk_bytes = 0;  // unknown
  CHECK(lacks(5, 15, 1'000'000) == Shortage::none);
  m.host.disk_write = 0;  // there is no disk
  CHECK(lacks(5, 15, 1) == Shortage::disk);
  CHECK(lacks(5, 15, 0) == Shortage::none);
}

TEST_CASE("the replicas of hsdp may have several nodes each", "[stages][clock]") {
  const Machine m = find_machine("a100-80gb");
  const auto step = [&](int replicas) {
    GptTrainingSpec spec = spec_of(StageKind("hsdp"), 64, false);
    spec.engine.replicas = replicas;
    return clock_step(spec, m);
  };
  const StepTime node = step(8), two_nodes = step(4), all = step(1);
  CHECK(two_nodes.times.communication > node.times.communication);
  CHECK(two_nodes.device_peak < node.device_peak);
  CHECK(all.device_peak < two_nodes.device_peak);
}
