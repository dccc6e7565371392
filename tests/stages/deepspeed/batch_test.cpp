// Batch sizes. The expected results were recorded from DeepSpeed 0.19.8's own methods, for 4 ranks.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::load, config_case::says;

namespace {

// 0: absent
std::string batch_file(int train, int micro, int accumulation) {
  std::string text = "{";
  if (train != 0) text += "\"train_batch_size\": " + std::to_string(train) + ",";
  if (micro != 0) text += "\"train_micro_batch_size_per_gpu\": " + std::to_string(micro) + ",";
  if (accumulation != 0)
    text += "\"gradient_accumulation_steps\": " + std::to_string(accumulation) + ",";
  return text + "}";
}

constexpr char kCheck[] =
    "(DeepSpeed: Check batch related parameters. train_batch_size is not equal to "
    "micro_batch_per_gpu * "
    "gradient_acc_step * world_size ";

}  // namespace

TEST_CASE("two batch keys give the third, and one gives the others, as in DeepSpeed", "[stages]") {
  struct Case {
    const char* called;
    int train, micro, accumulation, expected_micro, expected_accumulation;
  };
  const auto c = GENERATE(
      Case{"all three", 32, 4, 2, 4, 2}, Case{"the whole batch", 32, 0, 0, 8, 1},
      Case{"the micro-batch", 0, 4, 0, 4, 1}, Case{"micro-batch and accumulation", 0, 4, 2, 4, 2},
      Case{"whole batch and micro-batch", 32, 4, 0, 4, 2},
      Case{"whole batch and accumulation", 32, 0, 2, 4, 2});
  DYNAMIC_SECTION(c.called) {
    const auto loaded = load(batch_file(c.train, c.micro, c.accumulation));
    CHECK(loaded.findings.empty());
    CHECK(loaded.config.micro_batch == c.expected_micro);
    CHECK(loaded.config.accumulation == c.expected_accumulation);
    CHECK_FALSE(load(batch_file(c.train, c.micro, c.accumulation), {}, 5).config.micro_batch * 5 *
                    c.expected_accumulation ==
                32);
  }
}

TEST_CASE("each combination of given and absent batch keys gives sizes or an error", "[stages]") {
  int even = 0, uneven = 0;
  for (const int train : {0, 24, 25})
    for (const int micro : {0, 2, 3})
      for (const int accumulation : {0, 1, 3}) {
        CAPTURE(train, micro, accumulation);
        const auto loaded = load(batch_file(train, micro, accumulation));
        const int64_t taken = loaded.config.micro_batch * loaded.config.accumulation * 4;
        if (loaded.ok() && train != 0) CHECK(taken == train);
        if (loaded.ok() && micro != 0) CHECK(loaded.config.micro_batch == micro);
        if (loaded.ok() && accumulation != 0) CHECK(loaded.config.accumulation == accumulation);
        if (!loaded.ok())
          CHECK(says(loaded, "ds.json:1: error: train_batch_size: ", " (DeepSpeed: "));
        if (train == 25) CHECK_FALSE(loaded.ok());
        loaded.ok() ? ++even : ++uneven;
      }
  CHECK((even == 15 && uneven == 12));
}

TEST_CASE("without either size zerolab takes 4 and warns with DeepSpeed's sentence", "[stages]") {
  const int accumulation = GENERATE(0, 2);
  const auto loaded = load(batch_file(0, 0, accumulation));
  CHECK(loaded.ok());
  CHECK(loaded.config.micro_batch == 4);
  CHECK(loaded.config.accumulation == (accumulation == 0 ? 1 : 2));
  CHECK(says(loaded, "ds.json:1: warning: train_batch_size: ",
             "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"));
  CHECK(says(loaded, "ds.json:1: warning: ", accumulation == 0 ? "= 16" : "= 32"));
}

TEST_CASE(
    "a batch that cannot be split evenly is refused with the arithmetic and DeepSpeed's "
    "sentence",
    "[stages]") {
  struct Case {
    int train, micro, accumulation;
    std::string arithmetic, deepspeed, advice;
  };
  const auto c = GENERATE_COPY(
      Case{30, 0, 0, "30 cannot be split over 4 ranks: 30 / 4 = 7 remainder 2",
           kCheck + std::string("30 != 7 * 1 * 4)"), "Use 28 or 32"},
      Case{4, 8, 0, "4 cannot be split over micro-batches of 8 on 4 ranks: 4 / 32 = 0 remainder 4",
           "(DeepSpeed: Gradient accumulation steps: 0 has to be greater than 0)", "Use 32"},
      Case{32, 4, 4,
           "32 is not 4 (train_micro_batch_size_per_gpu) * 4 (gradient_accumulation_steps) * 4 "
           "ranks = 64",
           kCheck + std::string("32 != 4 * 4 * 4)"),
           "Use 64, leave one of the three out, or run with --ranks 2"},
      Case{30, 4, 0, "30 / 16 = 1 remainder 14", kCheck + std::string("30 != 4 * 1 * 4)"),
           "Use 16 or 32"},
      Case{30, 0, 2, "30 cannot be split over 2 micro-batches on 4 ranks: 30 / 8 = 3 remainder 6",
           kCheck + std::string("30 != 3 * 2 * 4)"), "Use 24 or 32"},
      Case{2, 0, 0, "2 / 4 = 0 remainder 2",
           "(DeepSpeed: Micro batch size per gpu: 0 has to be greater than 0)", "Use 4"});
  CAPTURE(c.train, c.micro, c.accumulation);
  const auto loaded = load(batch_file(c.train, c.micro, c.accumulation));
  CHECK(errors(loaded) == 1);
  CHECK(says(loaded, "ds.json:1: error: train_batch_size: ", c.arithmetic));
  CHECK(says(loaded, "ds.json:1: error: train_batch_size: ", c.deepspeed));
  CHECK(says(loaded, "ds.json:1: error: train_batch_size: ", c.advice));
}

TEST_CASE("a batch size that is not a positive whole number is one error without arithmetic",
          "[stages]") {
  CHECK(says(load(R"({"train_batch_size": 0})"), "ds.json:1: error: train_batch_size: ", "not 0"));
  for (const char* value : {"0", "-4", "5.5", "\"32\"", "true", "[]", "{}", "1e30"}) {
    CAPTURE(value);
    const auto loaded = load(std::string(R"({"train_batch_size": )") + value +
                             R"(, "gradient_accumulation_steps": 3})");
    CHECK(loaded.findings.size() == 1);
    CHECK(says(loaded, "ds.json:1: error: train_batch_size: expected a whole number from 1 to "));
  }
}

TEST_CASE("the number of ranks decides whether a batch can be split evenly", "[stages]") {
  for (const int ranks : {1, 2, 4, 8, 16, 32}) {
    const auto loaded = load(R"({"train_batch_size": 32})", {}, ranks);
    CHECK(loaded.ok());
    CHECK(loaded.config.micro_batch * ranks == 32);
  }
  CHECK_FALSE(load(R"({"train_batch_size": 32})", {}, 3).ok());
  CHECK(says(load(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, )"
                  R"("gradient_accumulation_steps": 1})",
                  {}, 1),
             "ds.json:1: error: train_batch_size: 8 is not 2", "1 rank = 2"));
}

TEST_CASE("batch sizes that are \"auto\" count as absent", "[stages]") {
  const auto loaded = load(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", )"
                           R"("gradient_accumulation_steps": "auto"})");
  CHECK(loaded.findings.empty());
  CHECK(loaded.config.micro_batch == 8);
}
