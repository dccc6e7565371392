#include "tensor/io/safetensors.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "tensor/error.h"
#include "tests/tensor/io/safetensors_case.h"

namespace {

using namespace zl;
using namespace zl::test;

std::vector<float> ramp(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[size_t(i)] = float(i % 1013) * 0.37f - 5;
  return values;
}

bool same_floats(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_CASE("what was written is read again, bit for bit, with names, shapes and metadata",
          "[tensor]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> big = ramp(300 * 700),
                           odd{1, -0.0f, std::numeric_limits<float>::quiet_NaN(), 1e-45f, INFINITY},
                           scalar{7};
  write_safetensors(
      path,
      {safetensors_source("wte.weight", {300, 700}, big), safetensors_source("h.10.bias", {5}, odd),
       safetensors_source("h.2.bias", {}, scalar), safetensors_source("none", {0, 3}, {})},
      {{"format", "pt"}, {"n_head", "12"}, {"text", "a \"quoted\" line\n"}});
  const SafetensorsFile file(path);
  REQUIRE(file.entries().size() == 4);
  CHECK(file.entries()[0].name == "h.10.bias");  // bytewise: '1' before '2'
  CHECK(file.entries()[1].shape.empty());
  CHECK((file.entries()[3].shape == Shape{300, 700} && file.entries()[3].dtype == "F32" &&
         file.entries()[3].numel() == 210000));
  CHECK(file.metadata() ==
        SafetensorsMetadata{{"format", "pt"}, {"n_head", "12"}, {"text", "a \"quoted\" line\n"}});
  CHECK(same_floats(file.read_floats("wte.weight"), big));
  CHECK(same_floats(file.read_floats("h.10.bias"), odd));
  CHECK(same_floats(file.read_floats("h.2.bias"), scalar));
  CHECK(file.read_floats("none").empty());
  CHECK_FALSE(same_floats(file.read_floats("h.10.bias"), ramp(5)));
  CHECK((file.find("h.2.bias") != nullptr && file.find("h.3.bias") == nullptr));
  CHECK(folder.files() == 1);
}

TEST_CASE("the file has the bytes that the format prescribes, data at a multiple of 8",
          "[tensor]") {
  const Folder folder;
  const std::string path = folder / "two.safetensors";
  const std::vector<float> b{1, 2}, a{3};
  write_safetensors(path, {safetensors_source("b", {2}, b), safetensors_source("a", {1}, a)},
                    {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const float data[] = {3, 1, 2};
  CHECK(read_bytes(path) ==
        with_header(padded, {reinterpret_cast<const char*>(data), sizeof data}));
  for (int n = 1; n < 9; ++n) {
    write_safetensors(path, {safetensors_source(std::string(size_t(n), 'x'), {1}, a)});
    CHECK(read_bytes(path).size() % 8 == 4);
  }
}

TEST_CASE("F16, BF16 and F64 are read as floats, other types only as bytes", "[tensor]") {
  const Folder folder;
  const std::string path = folder / "types.safetensors";
  std::string data("\x00\x3c\x00\xc0\x80\x3f\x20\xc0", 8);  // F16 1, -2; BF16 1, -2.5
  const double doubles[] = {0.1, -3};
  const int64_t integer = -5;
  data += {reinterpret_cast<const char*>(doubles), 16};
  data += {reinterpret_cast<const char*>(&integer), 8};
  write_bytes(path, with_header(R"({"f16":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                                R"("bf16":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]},)"
                                R"("f64":{"dtype":"F64","shape":[2],"data_offsets":[8,24]},)"
                                R"("i64":{"dtype":"I64","shape":[],"data_offsets":[24,32]}})",
                                data));
  const SafetensorsFile file(path);
  CHECK(file.read_floats("f16") == std::vector<float>{1, -2});
  CHECK(file.read_floats("bf16") == std::vector<float>{1, -2.5});
  CHECK(file.read_floats("f64") == std::vector<float>{0.1f, -3});
  int64_t read = 0;
  file.read_bytes("i64", 0, std::as_writable_bytes(std::span(&read, 1)));
  CHECK(read == -5);
  CHECK(sentence_of([&] { file.read_floats("i64"); }) ==
        path + ": tensor 'i64' is I64; expected F32, F16, BF16 or F64");
  CHECK_THROWS_AS(file.read_floats("f128"), InputError);
}

TEST_CASE("a range of a tensor is read without the rest, and none outside of it", "[tensor]") {
  const Folder folder;
  const std::string path = folder / "part.safetensors";
  const std::vector<float> values = ramp(200000);
  write_safetensors(path, {safetensors_source("w", {200000}, values)});
  const SafetensorsFile file(path);
  std::vector<float> part(70001);
  file.read_floats("w", 129999, part);
  CHECK(same_floats(part, std::span(values).subspan(129999, 70001)));
  CHECK_THROWS_AS(file.read_floats("w", 130000, part), std::invalid_argument);
  CHECK_THROWS_AS(file.read_floats("w", -1, part), std::invalid_argument);
  CHECK_THROWS_AS(file.read_floats("w", INT64_MAX, part), std::invalid_argument);
}

TEST_CASE("sources are read in consecutive ranges that are smaller than a big tensor", "[tensor]") {
  const Folder folder;
  const std::string path = folder / "stream.safetensors";
  int64_t next = 0, largest = 0;
  write_safetensors(path, {{"w", {1000, 500}, [&](int64_t first, std::span<float> out) {
                              CHECK(first == next);
                              next += int64_t(out.size()),
                                  largest = std::max(largest, int64_t(out.size()));
                              for (size_t i = 0; i < out.size(); ++i)
                                out[i] = float(first + int64_t(i));
                            }}});
  CHECK((next == 500000 && largest <= 65536));
  const std::vector<float> read = SafetensorsFile(path).read_floats("w");
  CHECK((read[0] == 0 && read[65536] == 65536 && read[499999] == 499999));
}

TEST_CASE("invalid names are refused before anything is written", "[tensor]") {
  const Folder folder;
  const std::vector<float> one{1};
  const auto write = [&](const std::string& a, const std::string& b) {
    write_safetensors(folder / "x",
                      {safetensors_source(a, {1}, one), safetensors_source(b, {1}, one)});
  };
  CHECK_THROWS_AS(write("a", "a"), std::invalid_argument);
  CHECK_THROWS_AS(write("a", "__metadata__"), std::invalid_argument);
  CHECK_THROWS_AS(write("a", "\xff"), std::invalid_argument);
  CHECK_THROWS_AS(safetensors_source("a", {2}, one), std::invalid_argument);
  CHECK(folder.files() == 0);
  CHECK_NOTHROW(write("a", "b"));
}

// Writes over an old file with a source that ends in the middle by `interrupt`.
template <class Interrupt>
void write_interrupted(const std::string& path, Interrupt interrupt) {
  write_safetensors(path, {{"w", {300000}, [&](int64_t first, std::span<float> out) {
                              std::ranges::fill(out, 1.0f);
                              if (first > 100000) interrupt();
                            }}});
}

TEST_CASE("a save that ends in the middle leaves the old file, also when the program is killed",
          "[tensor]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> old{1, 2, 3};
  write_safetensors(path, {safetensors_source("old", {3}, old)});

  CHECK_THROWS_AS(write_interrupted(path, [] { throw std::logic_error("out of values"); }),
                  std::logic_error);
  CHECK(folder.files() == 1);
  if (const pid_t child = fork(); child == 0) {
    write_interrupted(path, [] { raise(SIGKILL); });
    _exit(0);
  } else {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  }
  CHECK(SafetensorsFile(path).read_floats("old") == old);
  write_interrupted(path, [] {});  // the leftover of the killed program does no harm
  CHECK(SafetensorsFile(path).entries()[0].name == "w");
}

TEST_CASE(
    "a full disk and a folder that is not there are errors with the path and the system's reason",
    "[tensor]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> old{1, 2, 3}, big = ramp(100000);
  write_safetensors(path, {safetensors_source("old", {3}, old)});

  // A limit of the file size simulates the full disk.
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limited{.rlim_cur = 300000, .rlim_max = before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limited);
  const std::string message =
      sentence_of([&] { write_safetensors(path, {safetensors_source("big", {100000}, big)}); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(message == path +
                       ": cannot be written: File too large (after 300000 bytes); an existing file "
                       "of this name is unchanged");
  CHECK((SafetensorsFile(path).read_floats("old") == old && folder.files() == 1));

  CHECK_THROWS_AS(write_safetensors(folder / "missing/model.safetensors", {}), InputError);
  CHECK_THROWS_AS(write_safetensors(path + "/model.safetensors", {}), InputError);
  std::filesystem::create_directory(folder / "directory");
  CHECK_THROWS_AS(write_safetensors(folder / "directory", {safetensors_source("old", {3}, old)}),
                  InputError);
  CHECK(folder.files() == 2);
}

}  // namespace
