// Machine files: those that are shipped are right, and a broken one is refused with one sentence.

#include "stages/predict/clock/machine.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "stages/predict/clock/collective_time.h"
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
  CHECK(refusal("") == "m.json is empty");
  CHECK(refusal("{") ==
        "m.json is not valid JSON: error at byte 2, line 1; the text ends too early");
  CHECK(refusal("{\n\"schema\": one\n}") == "m.json is not valid JSON: error at byte 13, line 2");
  CHECK(refusal(good.substr(0, good.size() / 2)).ends_with("the text ends too early"));
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

TEST_CASE("a machine file's numbers have bounds that tell wrong units", "[stages][clock]") {
  const std::string good = machine_json(find_machine("l4"));
  const Machine l4 = find_machine("l4");
  const auto with = [&](const auto& change) {
    Machine m = l4;
    change(m);
    return refusal(machine_json(m));
  };
  CHECK(with([](Machine&) {}) == "");
  CHECK(with([](Machine& m) { m.link.bandwidth = 64; }) ==
        "m.json: link.bandwidth must be a number of bytes per second of at least 1e+06, not 64.0");
  CHECK(with([](Machine& m) { m.link.bandwidth = -5; }).ends_with("at least 1e+06, not -5.0"));
  CHECK(with([](Machine& m) { m.rank.half_flops = 121; }) ==
        "m.json: rank.half_flops must be a number of operations per second of at least 1e+06, not "
        "121.0");
  CHECK(with([](Machine& m) { m.rank.launch = 5; }) ==
        "m.json: rank.launch_seconds must be a number of seconds of at most 1, not 5.0");
  CHECK(with([](Machine& m) { m.rank.memory_bytes = 1e30; }) ==
        "m.json: rank.memory_bytes must be a number of bytes of at most 9e+18, not 1e+30");
  CHECK(with([](Machine& m) { m.contention = 1e30; }) ==
        "m.json: contention must be a number of at most 10, not 1e+30");
  CHECK(with([](Machine& m) { m.network.bandwidth = 12.5; }) != "");
  CHECK(with([](Machine& m) { m.host.disk_read = 3; }) != "");
  CHECK(with([](Machine& m) { m.host.disk_read = 0; }) == "");  // it has none
  CHECK(refusal(replaced(good, "\"schema\": 1", "\"schema\": 2")) ==
        "m.json: schema must be 1, not 2");
  CHECK(refusal(replaced(good, "24000000000.0", "1e400"))
            .starts_with("m.json is not valid JSON: a number is out of range at byte "));
  CHECK(with([](Machine& m) {
          m.name = "a\x1b[31mb";
        }).starts_with("m.json: name has characters that control a terminal: a"));
  CHECK(with([](Machine& m) { m.name = "two\nlines"; }) != "");
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

TEST_CASE("a share must not grow faster than the size", "[stages][clock]") {
  const std::string good = machine_json(find_machine("l4"));
  CHECK(refusal(replaced(good, "\"share\": 0.1\n", "\"share\": 0.01\n")) ==
        "m.json: rank.matmul[1].share grows faster than the size, so larger work would take less "
        "time");
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
  CHECK(message("./not_there.json") ==
        "the machine ./not_there.json cannot be read: No such file or directory");
  CHECK(message("/tmp") == "/tmp is a folder, not a machine file");
  CHECK(message("/dev/null") == "/dev/null is empty");
  CHECK(message("/dev/zero") == "/dev/zero is larger than 16384 KiB: it cannot be a machine");
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
      collective_model(m, Collective::all_gather, 1, {.ranks = 8, .nodes = 1});
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
  // Eight groups at once have an eighth of the ports each, which is one.
  Machine plain = m;
  plain.collectives.clear();
  const auto bus = [&](const RankPlaces& at) {
    return collective_model(plain, Collective::all_gather, 1, at).terms.bus;
  };
  const double port = m.network.bandwidth * m.network.gathers;
  CHECK(bus(across) == Approx(port));
  CHECK(bus({8, 8, 1}) == Approx(port));  // and so has one group, whose node has one rank
  plain.network.ports = 4;                // two ranks share a port
  CHECK(bus(across) == Approx(port / 2));
  CHECK(bus({8, 8, 1}) == Approx(port));
}

TEST_CASE("a node sends through the ports of its ranks only", "[stages][clock]") {
  Machine m = find_machine("a100-80gb");  // 8 ports of 25 GB/s, and 8 ranks
  m.collectives.clear();
  const auto ports = [&](const RankPlaces& at) {
    return collective_model(m, Collective::all_gather, 1, at).terms.bus /
           (m.network.bandwidth * m.network.gathers);
  };
  CHECK(ports({.ranks = 16, .nodes = 2}) == Approx(8));
  CHECK(ports({.ranks = 4, .nodes = 2}) == Approx(2));
  m.network.ports_per_rank = 3;
  CHECK(ports({.ranks = 4, .nodes = 2}) == Approx(6));
  CHECK(ports({.ranks = 16, .nodes = 2}) == Approx(8));  // not 24: the node has no more
  m.network.ports_per_rank = 1;
  CHECK(ports(places_of(m, 9)) == Approx(1));  // the second node has one rank
  CHECK(ports(places_of(m, 12)) == Approx(4));
}

TEST_CASE("a rank has its part of the ports of a full node, or what the file says",
          "[stages][clock]") {
  Machine m = find_machine("a100-80gb");
  m.network.ports = 32;
  std::string text = machine_json(m);
  const std::string key = ",\n    \"ports_per_rank\": 1";
  CHECK(read_machine(text, "m").network.ports_per_rank == 1);
  CHECK(read_machine(replaced(text, key, ""), "m").network.ports_per_rank == 4);
  text = replaced(text, "\"ranks_per_node\": 8", "\"ranks_per_node\": 64");
  CHECK(read_machine(replaced(text, key, ""), "m").network.ports_per_rank == 1);
}

TEST_CASE("a group of consecutive ranks may span nodes, and the worst group counts",
          "[stages][clock]") {
  const Machine m = find_machine("h100-sxm");  // 8 ranks per node
  const auto is = [](const RankPlaces& at, int nodes, int sharing, int fewest) {
    return at.nodes == nodes && at.sharing == sharing && at.fewest == fewest;
  };
  CHECK(is(places_of_groups(m, 64, 8), 1, 1, 8));
  CHECK(is(places_of_groups(m, 64, 4), 1, 1, 4));
  CHECK(is(places_of_groups(m, 8192, 512), 64, 1, 8));
  CHECK(is(places_of_groups(m, 24, 12), 2, 2, 4));  // the node in the middle has two of them
  CHECK(is(places_of_groups(m, 24, 6), 2, 2, 2));   // ranks 6 to 11
  CHECK(is(places_of_groups(m, 12, 12), 2, 1, 4));  // all ranks: it has no neighbour
  // A replica group of 16 has one rank on each of its nodes, with 7 others there.
  const RankPlaces replicas = places_of(m, 16, 512);
  CHECK((replicas.nodes == 16 && replicas.sharing == 8 && replicas.fewest == 1));
}

TEST_CASE("an all-reduce takes the algorithm that is faster for its size", "[stages][clock]") {
  Machine m;
  m.ranks_per_node = 8;
  m.link = {.kind = NodeLink::Kind::nvlink, .bandwidth = 100e9, .ring = 0.5};
  m.network = {.kind = "InfiniBand", .ports = 8, .bandwidth = 25e9, .hop = 8e-6};
  const RankPlaces at = places_of(m, 32);
  const auto model = [&](int64_t bytes) {
    return collective_model(m, Collective::all_reduce, bytes, at);
  };
  // 62 messages of a ring, of which 8 leave a node; two levels of a tree of 4 nodes, up and down.
  const CollectiveModel small = model(1024), large = model(int64_t(1) << 30);
  CHECK(small.algorithm == std::string("two levels"));
  CHECK(small.terms.alpha == Approx(8e-6 + 2 * 2 * 1.5 * 8e-6 + 2 * 7 * 1.2e-6));
  CHECK(large.algorithm == std::string("ring"));
  CHECK(large.terms.alpha == Approx(8e-6 + 54 * 1.2e-6 + 8 * 8e-6));
  CHECK(large.terms.bus > 2 * small.terms.bus);  // its node's links limit the tree
  const auto seconds = [&](const CollectiveModel& by, int64_t bytes) {
    return seconds_of(by.terms, Collective::all_reduce, bytes, 32);
  };
  bool differ = false;
  for (int64_t bytes = 1024; bytes <= int64_t(1) << 30; bytes *= 2) {
    CAPTURE(bytes);
    const double least = std::min(seconds(small, bytes), seconds(large, bytes));
    CHECK(collective_seconds(m, Collective::all_reduce, bytes, at) == Approx(least));
    differ = differ || least < 0.8 * std::max(seconds(small, bytes), seconds(large, bytes));
  }
  CHECK(differ);
}

TEST_CASE(
    "the latency of an all-reduce grows with the logarithm of the nodes, of a gather with them",
    "[stages][clock]") {
  Machine m = find_machine("a100-80gb");
  m.collectives.clear();
  for (const int in_node : {1, 8}) {  // 1: the groups of hsdp between nodes
    const auto latency = [&](Collective c, int nodes) {
      return collective_model(m, c, 1, {nodes * in_node, nodes, 1}).terms.alpha;
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
    return std::string(collective_model(m, c, 1, places_of(m, ranks)).algorithm);
  };
  CHECK(algorithm(Collective::all_gather, 8) == "measured");
  CHECK(algorithm(Collective::reduce_scatter, 8) == "measured");  // its sibling
  CHECK(algorithm(Collective::all_reduce, 8) == "ring");
  CHECK(algorithm(Collective::all_gather, 4) == "ring");
}
