// Batch sizes. The expected results were recorded from DeepSpeed 0.19.8's own methods, for 4 ranks.

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::joined, config_case::load, config_case::says;
using zl::ConfigValue;

namespace {

// 0: absent
std::string batch_file(int train, int micro, int accumulation) {
  std::string text = "{";
  if (train != 0) text += zl::str("\"train_batch_size\": ", train, ",");
  if (micro != 0) text += zl::str("\"train_micro_batch_size_per_gpu\": ", micro, ",");
  if (accumulation != 0) text += zl::str("\"gradient_accumulation_steps\": ", accumulation, ",");
  return text + "}";
}

const std::string kError = "ds.json:1: error: train_batch_size: ";

}  // namespace

TEST_CASE("two batch keys give the third, and one gives the others, as in DeepSpeed", "[stages]") {
  struct Case {
    int train, micro, accumulation, expected_micro, expected_accumulation;
  };
  for (const Case& c : {Case{32, 4, 2, 4, 2},
                        {32, 0, 0, 8, 1},
                        {0, 4, 0, 4, 1},
                        {0, 4, 2, 4, 2},
                        {32, 4, 0, 4, 2},
                        {32, 0, 2, 4, 2}}) {
    CAPTURE(c.train, c.micro, c.accumulation);
    const auto loaded = load(batch_file(c.train, c.micro, c.accumulation));
    CHECK(loaded.findings.empty());
    CHECK(loaded.config.micro_batch == c.expected_micro);
    CHECK(loaded.config.accumulation == c.expected_accumulation);
  }
  // A number that follows from others may be larger than one that is given.
  for (const ConfigValue& v : effective_values(load("", {"train_batch_size=16777216"})))
    if (v.key == "train_micro_batch_size_per_gpu") CHECK(v.value == "4194304");
  const auto automatic =
      load(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", )"
           R"("gradient_accumulation_steps": "auto"})");
  CHECK((automatic.findings.empty() && automatic.config.micro_batch == 8));
}

TEST_CASE("without either size zerolab takes 4 and warns, because DeepSpeed refuses it",
          "[stages]") {
  for (const int accumulation : {0, 2}) {
    const auto loaded = load(batch_file(0, 0, accumulation));
    CHECK((loaded.ok() && loaded.config.micro_batch == 4));
    CHECK(loaded.config.accumulation == (accumulation == 0 ? 1 : 2));
    CHECK(says(loaded, "ds.json:1: warning: train_batch_size: ",
               "this and train_micro_batch_size_per_gpu are absent or \"auto\", and DeepSpeed "
               "needs one"));
    CHECK(says(loaded, "ds.json:1: warning: ", accumulation == 0 ? "= 16" : "= 32"));
  }
}

TEST_CASE("a batch that cannot be split is refused with arithmetic and advice", "[stages]") {
  struct Case {
    int train, micro, accumulation;
    std::string arithmetic, advice;
  };
  for (const Case& c : std::vector<Case>{
           {30, 0, 0, "30 is not a multiple of 4 ranks.", "Use 28 or 32"},
           {4, 8, 0, "4 is not a multiple of 4 ranks * 8 (train_micro_batch_size_per_gpu) = 32.",
            "Use 32"},
           {32, 4, 4,
            "32 is not 4 ranks * 4 (train_micro_batch_size_per_gpu) * 4 "
            "(gradient_accumulation_steps) = 64.",
            "Use 64, or leave one of them out"},
           {30, 4, 0, "30 is not a multiple of 4 ranks * 4 (train_micro", "Use 16 or 32"},
           {30, 0, 2, "30 is not a multiple of 4 ranks * 2 (gradient_accumulation_steps) = 8.",
            "Use 24 or 32"},
           {2, 0, 0, "2 is not a multiple of 4 ranks.", "Use 4"},
           {1000, 1, 1, "", "Use 4, or leave one of them out"},
           {5, 1'048'576, 0, "", "Use 4194304"}}) {
    CAPTURE(c.train, c.micro, c.accumulation);
    const auto loaded = load(batch_file(c.train, c.micro, c.accumulation));
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, kError, c.arithmetic));
    CHECK(says(loaded, kError, c.advice));
  }
  CHECK(joined(load(R"({"train_batch_size": 1048575})", {}, 3)).empty());
  // zerolab's limit: DeepSpeed has none.
  CHECK(errors(load("", {"train_batch_size=1048577"})) == 1);
}

TEST_CASE("a batch size that is not a positive whole number is one error without arithmetic",
          "[stages]") {
  CHECK(says(load(R"({"train_batch_size": 0})"), kError, "not 0"));
  for (const char* value : {"0", "-4", "5.5", "\"32\"", "true", "[]", "{}", "1e30"}) {
    CAPTURE(value);
    const auto loaded =
        load(zl::str(R"({"train_batch_size": )", value, R"(, "gradient_accumulation_steps": 3})"));
    CHECK(loaded.findings.size() == 1);
    CHECK(says(loaded, kError + "expected a whole number from 1 to "));
  }
}

TEST_CASE("the number of ranks decides whether a batch can be split evenly", "[stages]") {
  for (const int ranks : {1, 2, 4, 8, 16, 32}) {
    const auto loaded = load(R"({"train_batch_size": 32})", {}, ranks);
    CHECK(loaded.ok());
    CHECK(loaded.config.micro_batch * ranks == 32);
  }
  CHECK_FALSE(load(R"({"train_batch_size": 32})", {}, 3).ok());
  CHECK(says(load(batch_file(8, 2, 1), {}, 1), kError + "8 is not 1 rank * 2", " = 2. Use 2"));
  CHECK(load("", {"train_batch_size=12", "train_micro_batch_size_per_gpu=3"}, 2)
            .config.accumulation == 2);
}
