// bench step: rows relative to each other. Speed is not tested.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

const std::string kStep = "bench step --model tiny -q ",
                  kTwo = kStep + "--ranks 2 --steps 3 --warm-up 1 ";

Json rows_of(const std::string& line) { return Json::parse(document(line))["results"]; }

// "STAGE RANKS" of each row.
Words names(const Json& rows) {
  Words all;
  for (const Json& row : rows)
    all.push_back(row["stage"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()));
  return all;
}

int64_t integer(const Json& value) { return value.get<int64_t>(); }

}  // namespace

TEST_CASE("bench step --json has rows for one rank and for each stage, relative to ddp",
          "[zerolab]") {
  const Json json = Json::parse(document(kTwo)), &rows = json["results"];
  CHECK((json["command"] == "bench step" && json["steps"] == 3));
  CHECK(names(rows) == words("'ddp 1' 'ddp 2' 'zero1 2' 'zero2 2' 'zero3 2'"));
  for (const Json& row : rows) {
    CAPTURE(row.dump());
    const Json& seconds = row["seconds_per_step"];
    CHECK((seconds["min"] > 0.0 && seconds["min"] <= seconds["median"] &&
           seconds["median"] <= seconds["max"]));
    CHECK((row["tokens_per_second"] > 0.0 && row["share_of_peak"] > 0.0));
    CHECK(row["peak_total_bytes"].size() == row["ranks"]);
  }
  CHECK(rows[0]["time_relative_to_ddp"].is_null());
  CHECK(rows[1]["time_relative_to_ddp"] == 1.0);
  const Json &range = rows[4]["time_relative_to_ddp_range"],
             &time = rows[4]["time_relative_to_ddp"];
  CHECK((range["min"] > 0.0 && range["min"] < range["max"]));  // three turns
  CHECK((range["min"] <= time && time <= range["max"]));
  // 6 operations per parameter and token, plus 14·B·L·C·T(T+1)/2 of attention per rank. tiny has 2
  // layers of width 32, T 32.
  const double tokens = 2 * 4 * 32, attention = 14.0 * 4 * 2 * 32 * (32 * 33 / 2);
  CHECK(rows[1]["operations_per_step"] ==
        6 * json["parameters"].get<double>() * tokens + 2 * attention);
  CHECK(rows[1]["operations_per_step"] == 2 * rows[0]["operations_per_step"].get<double>());
  CHECK(rows[0]["tokens_per_step"] == 4 * 32);
  // A block of width 32 has 12·32² weights of matrices and 13·32 other parameters.
  const Json deep =
      Json::parse(document(kStep + "--ranks 1 --stages ddp --steps 1 --warm-up 0 --n-layer 4"));
  CHECK(deep["parameters"] == integer(json["parameters"]) + 2 * (12 * 32 * 32 + 13 * 32));
  // One step has one turn.
  const Json once = rows_of(kStep + "--ranks 2 --stages zero1 --steps 1");
  const auto median = [&](size_t row) -> double { return once[row]["seconds_per_step"]["median"]; };
  CHECK(once[2]["time_relative_to_ddp"] == median(2) / median(1));
  CHECK(once[2]["time_relative_to_ddp_range"]["min"] ==
        once[2]["time_relative_to_ddp_range"]["max"]);
}

TEST_CASE(
    "activation checkpointing does not raise the share of the peak; a stage that does not fit is a "
    "row with the reason",
    "[zerolab]") {
  const std::string ddp = kTwo + "--stages ddp ";
  const Json plain = rows_of(ddp), again = rows_of(ddp + "--set zerolab.recompute=full"),
             smaller = rows_of(ddp + "--set train_micro_batch_size_per_gpu=2");
  CHECK(plain.size() == 2);
  CHECK(plain[1]["operations_per_step"] == again[1]["operations_per_step"]);
  CHECK(plain[1]["peak_total_bytes"] != again[1]["peak_total_bytes"]);
  CHECK(plain[0]["operations_per_step"] != smaller[0]["operations_per_step"]);
  const Finished tight = call(kTwo + "--device-memory 300KiB");
  CHECK(tight.code == 3);
  check_says(tight.out, {"zero3 with 2 ranks: ", "parameter"});
}

}  // namespace cli
