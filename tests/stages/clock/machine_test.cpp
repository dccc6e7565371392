// Machine files: those that are shipped are right, and a broken one is refused with one sentence.

#include "stages/predict/clock/machine.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "tests/nn/scratch_folder.h"

using namespace zl;

namespace {

std::string refusal(const std::string& text) {
  return sentence_of([&] { read_machine(text, "m.json"); });
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
  // Lessons and pages name these.
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
  struct Row {
    const char *from, *to, *said;  // of the changed file, behind its name
  };
  for (const Row& row : std::vector<Row>{
           {"\"memory_bandwidth\"", "\"memory_bandwith\"", ": rank.memory_bandwidth is missing"},
           {"\"attention\"", "\"atention\"",
            ": rank.atention is not a key of a machine; known here are "},
           {"\"cuda\"", "\"tpu\"", ": rank.device must be cuda or cpu, not tpu"},
           {"\"ports\": 8", "\"ports\": 8.5",
            ": network.ports must be a whole number up to 1048576, not 8.5"},
           {"\"ports\": 8", "\"ports\": \"eight\"",
            ": network.ports must be a number of at least 1, not \"eight\""},
           {"\"contention\": 1.15", "\"contention\": 0.5",
            ": contention must be a number of at least 1, not 0.5"},
           {"\"kind\": \"nvswitch\"", "\"kind\": \"token ring\"",
            ": link.kind must be nvswitch, nvlink, pcie or memory, not token ring"},
           {"\"schema\": 1", "\"schema\": 2", ": schema must be 1, not 2"},
           {"\"contention\": 1.15", "\"contention\": 1e400",
            " is not valid JSON: a number is out of range: "}})
    CHECK(refusal(replaced(good, row.from, row.to)).starts_with(std::string("m.json") + row.said));
  // The ports of a rank: its part of those of a full node, or what the file says.
  Machine m = find_machine("a100-80gb");
  m.network.ports = 32;
  std::string text = machine_json(m);
  const std::string key = ",\n    \"ports_per_rank\": 1";
  CHECK(read_machine(text, "m").network.ports_per_rank == 1);
  CHECK(read_machine(replaced(text, key, ""), "m").network.ports_per_rank == 4);
  text = replaced(text, "\"ranks_per_node\": 8", "\"ranks_per_node\": 64");
  CHECK(read_machine(replaced(text, key, ""), "m").network.ports_per_rank == 1);
}

TEST_CASE("a machine file's numbers have bounds that tell wrong units", "[stages][clock]") {
  struct Row {
    std::function<void(Machine&)> change;
    const char* said;
  };
  const auto points = [](const char* kernel, KernelTimes::Point first, KernelTimes::Point second) {
    return [=](Machine& m) { m.rank.kernels = {{kernel, Dtype::f32, 1, {first, second}}}; };
  };
  for (const Row& row : std::vector<Row>{
           {[](Machine&) {}, ""},
           {[](Machine& m) { m.link.bandwidth = 64; },
            "link.bandwidth must be a number of bytes per second of at least 1e+06, not 64.0"},
           {[](Machine& m) { m.link.bandwidth = -5; },
            "link.bandwidth must be a number of bytes per second of at least 1e+06, not -5.0"},
           {[](Machine& m) { m.network.bandwidth = 12.5; }, "network.bandwidth must be "},
           {[](Machine& m) { m.rank.half_flops = 121; },
            "rank.half_flops must be a number of operations per second of at least 1e+06, not "},
           {[](Machine& m) { m.rank.launch = 5; },
            "rank.launch_seconds must be a number of seconds of at most 1, not 5.0"},
           {[](Machine& m) { m.rank.memory_bytes = 1e30; },
            "rank.memory_bytes must be a number of bytes of at most 9e+18, not 1e+30"},
           {[](Machine& m) { m.contention = 1e30; },
            "contention must be a number of at most 10, not 1e+30"},
           {[](Machine& m) { m.host.disk_read = 3; }, "host.disk_read"},
           {[](Machine& m) { m.host.disk_read = 0; }, ""},  // it has none
           {[](Machine& m) { m.name = "a\x1b[31mb"; },
            "name has characters that control a terminal: a"},
           {[](Machine& m) { m.name = "two\nlines"; }, "name has characters that control"},
           {points("gelu", {0, 5, 1}, {0, 50, 1}), ""},
           {points("gelu", {0, 50, 1}, {0, 5, 1}),
            "the points of gelu must be sorted by size, and its point 2 is not"},
           {points("attention", {100, 10, 1}, {40, 2, 1}), ""},  // by operations per byte
           {points("attention", {40, 2, 1}, {100, 10, 1}), "the points of attention must be"},
           {[](Machine& m) {
              m.rank.matmul = {{1, 0.1}, {2, 0.3}};
            },
            "rank.matmul[1].share grows faster than the size, so larger work would take less "
            "time"}}) {
    Machine m = find_machine("l4");
    row.change(m);
    const std::string said = refusal(machine_json(m)), expected = row.said;
    CAPTURE(said);
    CHECK(said.empty() == expected.empty());
    if (!expected.empty()) CHECK(said.starts_with("m.json: " + expected));
  }
}

TEST_CASE("a machine that is not there is refused with the list", "[stages][clock]") {
  const auto message = [](const std::string& name) {
    return sentence_of([&] { find_machine(name); });
  };
  CHECK(message("h1000").starts_with("there is no machine 'h1000'; known are a100-40gb, "));
  CHECK(message("./not_there.json") ==
        "the machine ./not_there.json cannot be read: No such file or directory");
  CHECK(message("/tmp") == "the machine /tmp cannot be read: Is a directory");
  CHECK(message("/dev/null") == "/dev/null is empty");
  CHECK(message("/dev/zero") == "/dev/zero is larger than 16384 KiB: it cannot be a machine");
  const ScratchFolder folder;
  CHECK(find_machine(folder.write("m.json", machine_json(find_machine("l4")))).name == "l4");
}
