// Machine files: those that are shipped are right, and a broken one is refused with one sentence.

#include "stages/predict/clock/machine.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "stages/predict/clock/collective_time.h"
#include "stages/predict/clock/kernel_time.h"
#include "tensor/error.h"

using namespace zl;
using Catch::Approx;

namespace {

// The message of the InputError, or "".
std::string refusal(const std::string& text) {
  try {
    read_machine(text, "m.json");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("shipped machines have sources, plausible units, and survive being written",
          "[stages][clock]") {
  REQUIRE(shipped_machines().size() >= 11);
  for (const Machine& m : shipped_machines()) {
    CAPTURE(m.name);
    CHECK_FALSE(m.sources.empty());
    CHECK(m.rank.memory_bytes >= 16e9);
    CHECK(m.rank.memory_bytes <= 300e9);
    CHECK(m.rank.memory_bandwidth >= 3e11);  // bytes per second, not gigabytes
    CHECK(m.rank.memory_bandwidth <= 1e13);
    CHECK(m.rank.half_flops > m.rank.f32_flops);
    CHECK(m.rank.half_flops <= 3e15);
    CHECK(m.link.bandwidth >= 1e10);
    CHECK(m.link.bandwidth <= 1e12);
    if (m.network.ports > 0) {
      CHECK(m.network.bandwidth >= 1e9);      // bytes, not bits: 10 Gb/s is 1.25e9
      CHECK(m.network.bandwidth <= 1.01e11);  // 800 Gb/s
    }
    const std::string text = machine_json(m);
    CHECK(machine_json(read_machine(text, "again")) == text);
    CHECK(find_machine(m.name).title == m.title);
  }
}

TEST_CASE("the machines that lessons and pages name are there", "[stages][clock]") {
  for (const char* name : {"v100-dgx2", "a100-40gb", "a100-80gb", "h100-sxm", "h200-sxm", "b200",
                           "l4", "t4", "rtx3090-pcie", "rtx4090-pcie"})
    CHECK(find_machine(name).name == name);
}

TEST_CASE("a broken machine file is refused with one sentence that names the key",
          "[stages][clock]") {
  const std::string good = machine_json(find_machine("a100-80gb"));
  CHECK(refusal(good) == "");
  CHECK(refusal("{") == "m.json is not JSON");
  CHECK(refusal("[]") == "m.json: the text must be an object");
  CHECK(refusal(replaced(good, "\"memory_bandwidth\"", "\"memory_bandwith\"")) ==
        "m.json: rank.memory_bandwidth is missing");
  CHECK(refusal(replaced(good, "\"attention\"", "\"atention\""))
            .starts_with("m.json: rank.atention is not a key of a machine; known here are "));
  CHECK(refusal(replaced(good, "\"cuda\"", "\"tpu\"")) ==
        "m.json: rank.device must be cuda or cpu, not tpu");
  CHECK(refusal(replaced(good, "\"ports\": 8", "\"ports\": 8.5")) ==
        "m.json: network.ports must be a whole number up to 1048576, not 8.5");
  CHECK(refusal(replaced(good, "\"ports\": 8", "\"ports\": \"eight\"")) ==
        "m.json: network.ports must be a number of at least 1, not \"eight\"");
  CHECK(refusal(replaced(good, "\"contention\": 1.15", "\"contention\": 0.5")) ==
        "m.json: contention must be a number of at least 1, not 0.5");
  CHECK(refusal(replaced(good, "\"kind\": \"nvswitch\"", "\"kind\": \"token ring\"")) ==
        "m.json: link.kind must be nvswitch, nvlink, pcie or memory, not token ring");
}

TEST_CASE("the points of a kernel must be sorted", "[stages][clock]") {
  Machine m = find_machine("l4");
  const auto with = [&](const char* kernel, KernelTimes::Point first, KernelTimes::Point second) {
    m.rank.kernels = {{kernel, Dtype::f32, 1, {first, second}}};
    return refusal(machine_json(m));
  };
  CHECK(with("gelu", {0, 5, 1}, {0, 50, 1}) == "");
  CHECK(with("gelu", {0, 50, 1}, {0, 5, 1}) ==
        "m.json: the points of gelu must be sorted by size, and its point 2 is not");
  // Those of attention by operations per byte.
  CHECK(with("attention", {100, 10, 1}, {40, 2, 1}) == "");
  CHECK(with("attention", {40, 2, 1}, {100, 10, 1}) != "");
}

TEST_CASE("a machine that is not there is refused with the list", "[stages][clock]") {
  const auto message = [](const std::string& name) -> std::string {
    try {
      find_machine(name);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message("h1000").starts_with("there is no machine 'h1000'; known are a100-40gb, "));
  CHECK(message("./not_there.json") == "the machine ./not_there.json cannot be read");
  const auto file = std::filesystem::temp_directory_path() / "zerolab_machine_test.json";
  std::ofstream(file) << machine_json(find_machine("l4"));
  CHECK(find_machine(file.string()).name == "l4");
  std::filesystem::remove(file);
}

TEST_CASE("a ring takes its messages and its bytes, by hand", "[stages][clock]") {
  Machine m = find_machine("a100-80gb");
  m.collectives.clear();
  // One node: bus = 300 GB/s * 0.8; a gather among n ranks has n - 1 messages.
  const CollectiveModel gather =
      collective_model(m, Collective::all_gather, {.ranks = 8, .nodes = 1});
  CHECK(gather.algorithm == std::string("ring"));
  CHECK(gather.terms.bus == 300e9 * 0.8);
  const auto seconds = [&](Collective c, int ranks, int64_t bytes) {
    return collective_seconds(m, c, bytes, places_of(m, ranks));
  };
  CHECK(seconds(Collective::all_gather, 1, 1 << 30) == 0);
  // All-reduce sends twice as much as a gather, so for large tensors it takes twice the time.
  const double ratio = seconds(Collective::all_reduce, 8, int64_t(1) << 36) /
                       seconds(Collective::all_gather, 8, int64_t(1) << 36);
  CHECK(ratio > 1.99);
  CHECK(ratio < 2.01);
  // Latency is linear in the ranks of a ring.
  const double at_64 = seconds(Collective::all_gather, 64, 1),
               at_512 = seconds(Collective::all_gather, 512, 1),
               at_4096 = seconds(Collective::all_gather, 4096, 1);
  CHECK(at_4096 - at_512 > 7.9 * (at_512 - at_64));
  CHECK(at_4096 - at_512 < 8.1 * (at_512 - at_64));
}

TEST_CASE("groups know in how many nodes they are, and share a node's network", "[stages][clock]") {
  const Machine m = find_machine("h100-sxm");  // 8 ranks per node
  const auto all = places_of(m, 64), node = places_of(m, 8), across = places_of(m, 8, 8);
  CHECK((all.nodes == 8 && all.sharing == 1));
  CHECK((node.nodes == 1 && node.sharing == 1));
  CHECK((across.ranks == 8 && across.nodes == 8 && across.sharing == 8));
  // Eight groups at once have an eighth of the ports each.
  Machine plain = m;
  plain.collectives.clear();
  const double shared = collective_model(plain, Collective::all_gather, across).terms.bus,
               alone = collective_model(plain, Collective::all_gather, {8, 8, 1}).terms.bus;
  CHECK(shared * 8 == alone);
}

TEST_CASE(
    "the latency of an all-reduce grows with the logarithm of the nodes, of a gather with them",
    "[stages][clock]") {
  Machine m = find_machine("a100-80gb");
  m.collectives.clear();
  for (const int in_node : {1, 8}) {  // 1: the groups of hsdp between nodes
    const auto latency = [&](Collective c, int nodes) {
      return collective_model(m, c, {nodes * in_node, nodes, 1}).terms.alpha;
    };
    const auto all_reduce = Collective::all_reduce, gather = Collective::all_gather;
    const double doubling = latency(all_reduce, 128) - latency(all_reduce, 64);
    CHECK(doubling == Approx(3 * m.network.hop));  // up and down, 1.5 hops each
    CHECK(latency(all_reduce, 512) - latency(all_reduce, 64) == Approx(3 * doubling));
    CHECK(latency(gather, 512) - latency(gather, 64) >= 448 * m.network.hop * 0.999);
  }
}

TEST_CASE("measured rows come before the model, for their ranks and nodes only",
          "[stages][clock]") {
  Machine m = find_machine("a100-80gb");
  m.collectives = {
      {.collective = Collective::all_gather, .ranks = 8, .nodes = 1, .terms = {1, 0, 1e9}}};
  const auto algorithm = [&](Collective c, int ranks) {
    return std::string(collective_model(m, c, places_of(m, ranks)).algorithm);
  };
  CHECK(algorithm(Collective::all_gather, 8) == "measured");
  CHECK(algorithm(Collective::reduce_scatter, 8) == "measured");  // its sibling
  CHECK(algorithm(Collective::all_reduce, 8) == "ring");
  CHECK(algorithm(Collective::all_gather, 4) == "ring");
}

TEST_CASE("a kernel takes the longer of its operations and its bytes", "[stages][clock]") {
  RankMachine rank{.memory_bandwidth = 10, .f32_flops = 100, .half_flops = 1000};
  rank.matmul = {{0, 0.1}, {1000, 0.5}};
  const auto seconds = [&](const char* kernel, double operations, double bytes, Dtype type) {
    return kernel_seconds(rank, {kernel, operations, bytes, type});
  };
  CHECK(seconds("matmul", 1000, 1, Dtype::f32) == 20);  // 1000 / (100 * 0.5)
  CHECK(seconds("matmul", 500, 1, Dtype::f32) == 50);   // at a tenth of the peak
  CHECK(seconds("matmul", 1000, 1, Dtype::bf16) == 2);
  CHECK(seconds("matmul", 1000, 1000, Dtype::f32) == 100);  // its bytes
  CHECK(seconds("gelu", 1e9, 50, Dtype::f32) == 5);         // limited by memory
  rank.kernels = {{"gelu", Dtype::f32, 1, {{0, 50, 3}, {0, 500, 30}}}};
  CHECK(seconds("gelu", 0, 50, Dtype::f32) == 3);
  CHECK(seconds("gelu", 0, 5000, Dtype::f32) == 300);  // as fast as the largest that was measured
  CHECK(seconds("gelu", 0, 5, Dtype::f32) == 3);       // no faster than the smallest
  CHECK(seconds("gelu", 0, 50, Dtype::bf16) == 5);     // not measured in this type
}

TEST_CASE("between two sizes the time per operation is interpolated, and so it is between shapes",
          "[stages][clock]") {
  RankMachine rank{.memory_bandwidth = 1, .f32_flops = 1, .half_flops = 1};
  rank.kernels = {{"matmul", Dtype::f32, 1, {{100, 1, 100}, {10000, 1, 1000}}, 512},
                  {"matmul", Dtype::f32, 1, {{100, 1, 50}}, 2048},
                  {"matmul", Dtype::f32, 4, {{100, 1, 300}}, 512},
                  {"attention", Dtype::f32, 1, {{80, 10, 80}, {1280, 40, 320}}, 16},
                  {"attention", Dtype::f32, 1, {{80, 10, 20}}, 64}};
  const auto seconds = [&](const char* kernel, double operations, double bytes, int head,
                           int ranks = 1) {
    return kernel_seconds(rank, {kernel, operations, bytes, Dtype::f32, ranks, head, 512});
  };
  // 1 s per operation at 100, 1/10 s at 10,000: the geometric mean at 1,000.
  CHECK(seconds("matmul", 1000, 1, 32) == Approx(1000 / std::sqrt(10)));
  CHECK(seconds("matmul", 200, 1, 32, 3) == Approx(600));  // 4 ranks are nearer than 1
  // 1,024 rows are in the middle of 512 and 2,048.
  CHECK(kernel_seconds(rank, {"matmul", 100, 1, Dtype::f32, 1, 32, 1024}) ==
        Approx(100 / std::sqrt(2)));
  // Twice the batch takes twice the time; the operations per byte say which point is meant.
  CHECK(seconds("attention", 160, 20, 16) == Approx(160));
  CHECK(seconds("attention", 2560, 80, 16) == Approx(640));
  CHECK(seconds("attention", 8, 1, 16) == Approx(8));
  // Heads of 32 are in the middle of 16 and 64: between 1 and 1/4 s per operation.
  CHECK(seconds("attention", 80, 10, 32) == Approx(40));
  CHECK(seconds("attention", 80, 10, 8) == Approx(80));
  CHECK(seconds("attention", 80, 10, 128) == Approx(20));
}
