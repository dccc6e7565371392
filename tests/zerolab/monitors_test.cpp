// The files of csv_monitor and of the key tensorboard, byte for byte, and through a reader of the
// latter's format.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>

#include "tests/tensor/io/safetensors_case.h"
#include "tests/zerolab/event_file.h"
#include "tutorials/zerolab/monitors/monitor_files.h"

using Catch::Matchers::ContainsSubstring;
using zl::Monitor, zl::cli::MonitorFiles, zl::cli::python_number, zl::cli::scalar_event,
    zl::cli::tfrecord;
using zl::test::Folder, zl::test::read_bytes, zl::test::read_event_file;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

TEST_CASE("csv_monitor's files are those that DeepSpeed writes, byte for byte", "[zerolab]") {
  const Folder folder;
  const Monitor monitor{.enabled = true, .output_path = folder / "logs/of mine", .job_name = "gpt"};
  {
    MonitorFiles files("csv_monitor", monitor);
    files.add("lr", 32, 0.001);
    files.add("train_loss", 32, 5.545177444479562);
    files.add("lr", 64, 0.0001);
    files.add("train_loss", 64, std::nan(""));
    files.add("lr", 96, 1e-5);
    files.add("train_loss", 96, 4);
  }
  const std::string lr = folder / "logs/of mine/gpt/Train_Samples_lr.csv",
                    loss = folder / "logs/of mine/gpt/Train_Samples_train_loss.csv";
  CHECK(read_bytes(lr) == "step,lr\r\n32,0.001\r\n64,0.0001\r\n96,1e-05\r\n");
  CHECK(read_bytes(loss) == "step,train_loss\r\n32,5.545177444479562\r\n64,nan\r\n96,4.0\r\n");
  MonitorFiles again("csv_monitor", monitor);  // a second run goes on below, with a header
  CHECK(read_bytes(lr).ends_with("96,1e-05\r\n"));
  again.add("lr", 32, 0.5);
  CHECK(read_bytes(lr).ends_with("96,1e-05\r\nstep,lr\r\n32,0.5\r\n"));
}

TEST_CASE("a folder of monitors that cannot be made is refused before any time is spent",
          "[zerolab]") {
  const Folder folder;
  zl::test::write_bytes(folder / "file", "x");
  for (const std::string key : {"csv_monitor", "tensorboard"})
    CHECK_THROWS_WITH(
        MonitorFiles(key, {.enabled = true, .output_path = folder / "file", .job_name = "job"}),
        ContainsSubstring(key + ": the folder ") && ContainsSubstring("cannot be created"));
  std::filesystem::create_directories(folder / "taken/job/Train_Samples_lr.csv");
  MonitorFiles taken("csv_monitor",
                     {.enabled = true, .output_path = folder / "taken", .job_name = "job"});
  CHECK_THROWS_WITH(taken.add("lr", 32, 1),
                    ContainsSubstring("cannot be written after 32 samples: Is a directory"));
}

TEST_CASE("numbers stand there as Python prints them", "[zerolab]") {
  // clang-format off
  for (const auto& [number, text] : std::vector<std::pair<double, std::string>>{
           {0, "0.0"}, {1, "1.0"}, {-2.5, "-2.5"}, {0.1, "0.1"}, {1.0 / 3, "0.3333333333333333"},
           {1e-4, "0.0001"}, {1e-5, "1e-05"}, {65536, "65536.0"}, {1e22, "1e+22"},
           {HUGE_VAL, "inf"}, {-HUGE_VAL, "-inf"}})
    // clang-format on
    CHECK(python_number(number) == text);
}

TEST_CASE("a scalar's frame has the bytes that TensorBoard 2.21 itself writes", "[zerolab]") {
  const std::string theirs = from_hex(
      "2700000000000000bbe1b1460900000000004a934010ac022a190a170a10547261696e2f53616d706c65732f6c72"
      "156f12833a6b2c2128");
  CHECK(tfrecord(scalar_event(1234.5, 300, "Train/Samples/lr", 0.001f)) == theirs);
  CHECK(tfrecord(scalar_event(1234.5, 301, "Train/Samples/lr", 0.001f)) != theirs);
}

TEST_CASE("tensorboard's file has DeepSpeed's name, folder, tags and x axis", "[zerolab]") {
  const Folder folder;
  const Monitor monitor{.enabled = true, .output_path = folder / "logs", .job_name = "a job"};
  {
    MonitorFiles file("tensorboard", monitor);
    file.add("lr", 32, 0.001);
    file.add("train_loss", int64_t(1) << 40, std::nan(""));
  }
  const std::filesystem::directory_iterator files(folder / "logs/a job");
  const std::filesystem::path path = files->path();
  CHECK(path.filename().string().starts_with("events.out.tfevents.1"));  // seconds since 1970
  REQUIRE(std::distance(files, {}) == 1);
  const std::string bytes = read_bytes(path);
  const auto events = read_event_file(bytes);
  REQUIRE(events.size() == 3);
  CHECK((events[0].version == "brain.Event:2" && events[0].tag.empty()));
  CHECK((events[1].tag == "Train/Samples/lr" && events[1].step == 32));
  CHECK(events[1].value == 0.001f);
  CHECK((events[2].tag == "Train/Samples/train_loss" && events[2].step == int64_t(1) << 40));
  CHECK(std::isnan(events[2].value));
  CHECK(std::abs(events[2].seconds - double(std::time(nullptr))) < 3600);
  {
    MonitorFiles second("tensorboard", monitor);  // has its own file
    second.add("lr", 1, 1);
    CHECK(second.paths() != std::vector<std::string>{path});
    CHECK(read_bytes(path) == bytes);
    const MonitorFiles unused("tensorboard", monitor);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "logs/a job"), {}) == 2);
  for (const size_t damaged : {size_t(0), size_t(20), bytes.size() - 1}) {
    std::string wrong = bytes;
    wrong[damaged] = char(wrong[damaged] ^ 1);
    CHECK_THROWS(read_event_file(wrong));
  }
}
