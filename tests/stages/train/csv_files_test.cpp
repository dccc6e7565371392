// The files of csv_monitor, byte for byte.

#include "stages/train/csv_files.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>

#include "tensor/error.h"
#include "tests/tensor/io/safetensors_case.h"

using namespace zl;
using zl::test::Folder, zl::test::read_bytes;

TEST_CASE("csv_monitor's files are those that DeepSpeed writes, byte for byte", "[stages]") {
  const Folder folder;
  const Monitor monitor{.enabled = true, .output_path = folder / "logs/of mine", .job_name = "gpt"};
  {
    CsvFiles files(monitor, {"lr", "train_loss"});
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
  CsvFiles again(monitor, {"lr"});  // a second run goes on below, with a header
  CHECK(read_bytes(lr).ends_with("96,1e-05\r\n"));
  again.add("lr", 32, 0.5);
  CHECK(read_bytes(lr).ends_with("96,1e-05\r\nstep,lr\r\n32,0.5\r\n"));
  CHECK_THROWS_AS(again.add("train_loss", 32, 1.0), std::invalid_argument);
}

TEST_CASE("a csv file that cannot be written is refused before any time is spent", "[stages]") {
  const Folder folder;
  zl::test::write_bytes(folder / "file", "x");
  const auto open = [&](const std::string& path, const std::string& job) {
    CsvFiles({.enabled = true, .output_path = path, .job_name = job}, {"lr"});
  };
  const auto says = [](const std::string& part) {
    return Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(part));
  };
  CHECK_THROWS_MATCHES(open(folder / "file", "job"), InputError, says("cannot be created"));
  std::filesystem::create_directories(folder / "taken/job/Train_Samples_lr.csv");
  CHECK_THROWS_MATCHES(open(folder / "taken", "job"), InputError,
                       says("cannot be written to: Is a directory"));
}

TEST_CASE("numbers stand there as Python prints them", "[stages]") {
  for (const auto& [number, text] :
       std::vector<std::pair<double, std::string>>{{0, "0.0"},
                                                   {1, "1.0"},
                                                   {-2.5, "-2.5"},
                                                   {0.1, "0.1"},
                                                   {1.0 / 3, "0.3333333333333333"},
                                                   {1e-4, "0.0001"},
                                                   {1e-5, "1e-05"},
                                                   {65536, "65536.0"},
                                                   {1e22, "1e+22"},
                                                   {HUGE_VAL, "inf"},
                                                   {-HUGE_VAL, "-inf"}})
    CHECK(python_number(number) == text);
}
