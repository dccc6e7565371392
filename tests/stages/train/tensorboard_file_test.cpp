// The file of the key tensorboard, byte for byte and through a reader of the format.

#include "stages/train/tensorboard_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>

#include "tensor/error.h"
#include "tests/stages/train/event_file.h"
#include "tests/tensor/io/safetensors_case.h"

using namespace zl;
using zl::test::Folder, zl::test::read_bytes, zl::test::read_event_file;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("a scalar's frame has the bytes that TensorBoard 2.21 itself writes", "[stages]") {
  const std::string theirs = from_hex(
      "2700000000000000bbe1b1460900000000004a934010ac022a190a170a10547261696e2f53616d706c65732f6c72"
      "156f12833a6b2c2128");
  CHECK(tfrecord(scalar_event(1234.5, 300, "Train/Samples/lr", 0.001f)) == theirs);
  CHECK(tfrecord(scalar_event(1234.5, 301, "Train/Samples/lr", 0.001f)) != theirs);
}

TEST_CASE("tensorboard's file has DeepSpeed's name, folder, tags and x axis", "[stages]") {
  const Folder folder;
  const Monitor monitor{.enabled = true, .output_path = folder / "logs", .job_name = "a job"};
  {
    TensorboardFile file(monitor);
    file.add("lr", 32, 0.001);
    file.add("train_loss", int64_t(1) << 40, std::nan(""));
  }
  const std::string path = folder / "logs/a job";
  const auto names = names_in(path);
  REQUIRE(names.size() == 1);
  CHECK(names[0].starts_with("events.out.tfevents.1"));  // seconds since 1970
  const std::string bytes = read_bytes(path + "/" + names[0]);
  const auto events = read_event_file(bytes);
  REQUIRE(events.size() == 3);
  CHECK((events[0].version == "brain.Event:2" && events[0].tag.empty()));
  CHECK((events[1].tag == "Train/Samples/lr" && events[1].step == 32));
  CHECK(events[1].value == 0.001f);
  CHECK((events[2].tag == "Train/Samples/train_loss" && events[2].step == int64_t(1) << 40));
  CHECK(std::isnan(events[2].value));
  CHECK(std::abs(events[2].seconds - double(std::time(nullptr))) < 3600);
  const TensorboardFile again(monitor);  // a second run has its own file
  CHECK(names_in(path).size() == 2);
  for (const size_t damaged : {size_t(0), size_t(20), bytes.size() - 1}) {
    std::string wrong = bytes;
    wrong[damaged] = char(wrong[damaged] ^ 1);
    CHECK_THROWS(read_event_file(wrong));
  }
}

TEST_CASE("a tensorboard folder that cannot be made is refused before any time is spent",
          "[stages]") {
  const Folder folder;
  zl::test::write_bytes(folder / "file", "x");
  CHECK_THROWS_MATCHES(
      TensorboardFile({.enabled = true, .output_path = folder / "file", .job_name = "job"}),
      InputError,
      Catch::Matchers::MessageMatches(
          Catch::Matchers::ContainsSubstring("tensorboard: the folder")));
}
