// All errors of a configuration are reported at once, each with its line, and so are keys without
// effect.

#include <catch2/catch_test_macros.hpp>

#include "stages/deepspeed/keys.h"
#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::lines, config_case::load, config_case::says;

TEST_CASE("nine mistakes in one file are reported at once, each with its line", "[stages]") {
  const auto loaded = load(R"({
  "train_batch_size": 30,
  "gradient_clipping": "one",
  "optimizer": {
    "type": "Lamb",
    "params": {"lr": -1}
  },
  "zero_optimization": {
    "stage": 4,
    "reduce_bucket_size": 5.5,
    "overlap_com": true
  },
  "zerolab": {
    "sed": 3,
    "model": "smal"
  }
})");
  CHECK(errors(loaded) == 9);
  CHECK_FALSE(loaded.ok());
  const auto found = lines(loaded);
  const std::vector<std::string> expected = {
      "ds.json:2: error: train_batch_size: 30 cannot be split over 4 ranks: 30 / 4 = 7 remainder 2 "
      "(",
      "ds.json:3: error: gradient_clipping: expected a number of at least 0, not the string "
      "\"one\"",
      "ds.json:5: error: optimizer.type: expected Adam, AdamW or SGD, not \"Lamb\"",
      "ds.json:6: error: optimizer.params.lr: expected a number of at least 0, not -1",
      "ds.json:9: error: zero_optimization.stage: expected a whole number from 0 to 3, not 4",
      "ds.json:10: error: zero_optimization.reduce_bucket_size: expected a whole number of at "
      "least 1, not 5.5",
      "ds.json:11: error: zero_optimization.overlap_com: unknown key; did you mean "
      "\"overlap_comm\"? (DeepSpeed refuses it)",
      "ds.json:14: error: zerolab.sed: unknown key; did you mean \"seed\"?",
      "ds.json:15: error: zerolab.model: expected one of tiny, small, "};
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(found[i]);
    CHECK(found[i].starts_with(expected[i]));
  }
}

TEST_CASE("the same file without its mistakes has no finding", "[stages]") {
  CHECK(load(R"({
  "train_batch_size": 32,
  "gradient_clipping": 1,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 1}
  },
  "zero_optimization": {
    "stage": 3,
    "reduce_bucket_size": 5
  },
  "zerolab": {
    "seed": 3,
    "model": "small"
  }
})")
            .findings.empty());
}

TEST_CASE("a wrong type or value of an honoured key is an error that names the value", "[stages]") {
  struct Case {
    const char *key, *value, *text;
  };
  for (const Case& c : std::vector<Case>{
           {"gradient_clipping", "-1", "expected a number of at least 0, not -1"},
           {"gradient_clipping", "true", "expected a number of at least 0, not true"},
           {"optimizer", "\"Adam\"", "expected an object, not the string \"Adam\""},
           {"optimizer.type", "3", "expected a string, not 3"},
           {"optimizer.type", "\"\"", "expected Adam, AdamW or SGD, not \"\""},
           {"optimizer.params", "[]", "expected an object, not an empty array"},
           {"optimizer.params.betas", "[0.9]",
            "expected an array of two numbers from 0 to below 1, not an array"},
           {"optimizer.params.betas", "[0.9, 1]",
            "expected an array of two numbers from 0 to below 1, not an array [0.9, 1]"},
           {"optimizer.params.betas", "0.9",
            "expected an array of two numbers from 0 to below 1, not 0.9"},
           {"optimizer.params.eps", "-1e-8", "expected a number of at least 0, not -1e-8"},
           {"optimizer.params.bias_correction", "1", "expected true or false, not 1"},
           {"optimizer.params.max_grad_norm", "1",
            "cannot be honoured: write \"gradient_clipping\" at the top level"},
           {"scheduler", "true", "expected an object, not true"},
           {"scheduler.type", "\"OneCycle\"",
            "expected WarmupLR, WarmupDecayLR or WarmupCosineLR, not \"OneCycle\""},
           {"zero_optimization", "3", "expected an object, not 3"},
           {"zero_optimization.stage", "-1", "expected a whole number from 0 to 3, not -1"},
           {"zero_optimization.stage", "\"two\"",
            "expected a whole number from 0 to 3, not the string \"two\""},
           {"zero_optimization.stage", "2.5", "expected a whole number from 0 to 3, not 2.5"},
           {"zero_optimization.reduce_bucket_size", "\"5e8\"",
            "expected a whole number of at least 1, not the string \"5e8\""},
           {"zero_optimization.reduce_bucket_size", "0",
            "expected a whole number of at least 1, not 0"},
           {"zero_optimization.allgather_bucket_size", "-1",
            "expected a whole number of at least 0, not -1"},
           {"zero_optimization.allgather_bucket_size", "1e19",
            "expected a whole number of at least 0, not 1e19"},
           {"zerolab", "[]", "expected an object, not an empty array"},
           {"zerolab.defaults", "\"torch\"",
            "expected one of \"ours\", \"deepspeed\", not the string \"torch\""},
           {"zerolab.reproducible", "1", "expected true or false, not 1"},
           {"zerolab.separate_master", "\"yes\"", "expected true or false, not the string \"yes\""},
           {"zerolab.no_weight_decay", "[1]", "expected an array of strings, not an array"},
           {"zerolab.recompute", "0",
            "expected one of \"none\", \"selective\", \"full\", true, false, not 0"},
           {"zerolab.recompute", "\"some\"", "not the string \"some\""},
           {"zerolab.model", "7", "expected a string, not 7"},
           {"zerolab.seed", "-1", "expected a whole number from 0 to 2^64 - 1, not -1"},
           {"zerolab.seed", "18446744073709551616",
            "expected a whole number from 0 to 2^64 - 1, not 18446744073709551616"},
           {"zerolab.steps", "0", "expected a whole number of at least 1, not 0"}}) {
    CAPTURE(c.key, c.value);
    const auto loaded = load("", {std::string(c.key) + "=" + c.value});
    CHECK(errors(loaded) == 1);
    CHECK(says(loaded, std::string("--set ") + c.key + ": error: ", c.text));
  }
}

TEST_CASE("parameters that contradict each other have a finding", "[stages]") {
  CHECK(says(load("", {"optimizer.type=SGD", "optimizer.params.nesterov=true"}),
             "--set optimizer.params.nesterov: error: ",
             "Nesterov momentum requires a momentum and zero dampening"));
  const auto total =
      load("", {"scheduler.type=WarmupDecayLR", "scheduler.params.total_num_steps=10"});
  CHECK(total.ok());
  CHECK(says(total,
             "--set scheduler.params.total_num_steps: warning: total_num_steps 10 is less than "
             "warmup_num_steps 1000"));
  CHECK(says(load("", {"scheduler.type=WarmupLR", "scheduler.params.warmup_num_steps=0"}),
             "--set scheduler.params.warmup_num_steps: error: ",
             "expected a whole number of at least 1, not 0"));
  CHECK(says(load("", {"scheduler.type=WarmupLR", "scheduler.params.warmup_type=cosine"}),
             "--set scheduler.params.warmup_type: warning: ",
             "is neither \"log\" nor \"linear\": log is taken"));
}

TEST_CASE("a parameter that the chosen type does not use is an error, as in DeepSpeed",
          "[stages]") {
  CHECK(says(load("", {"optimizer.type=SGD", "optimizer.params.betas=[0.9,0.9]"}),
             "--set optimizer.params.betas: error: has no effect: SGD does not use it"));
  CHECK(says(load("", {"optimizer.params.momentum=0.9"}),
             "--set optimizer.params.momentum: error: has no effect: AdamW does not use it"));
  CHECK(says(load("", {"scheduler.type=WarmupLR", "scheduler.params.total_num_steps=9"}),
             "--set scheduler.params.total_num_steps: error: has no effect"));
}

TEST_CASE("a block without a type has a finding that compares zerolab with DeepSpeed", "[stages]") {
  const auto optimizer = load(R"({"train_batch_size": 4, "optimizer": {"params": {"lr": 2}}})");
  CHECK(optimizer.config.optimizer.lr == 2);
  CHECK(says(optimizer, "ds.json:1: note: optimizer.type: is absent"));
  CHECK(load("", {"optimizer.params.lr=2"}).findings.empty());
  const auto scheduler = load("", {"scheduler.params.warmup_num_steps=2"});
  CHECK(scheduler.config.schedule.kind == zl::ScheduleKind::constant);
  CHECK(says(scheduler, "--set scheduler.params.warmup_num_steps: warning: ", ""));
}

TEST_CASE(
    "a key without effect is a note, an unknown key a warning or an error with the nearest key",
    "[stages]") {
  const auto loaded = load(R"({"train_batch_size": 4,
"dump_state": true, "zero_optimisation": {"stage": 2}, "lr": 3,
"comet": {"enabled": true}, "wandb": {"enabled": false}, "entirely_else": 1,
"zero_optimization": {"aio": {}, "stag": 2, "gradient_clipping": 1, )"
                           R"("pin_memory": true, "enabled": true}})");
  CHECK(errors(loaded) == 5);
  CHECK_FALSE(loaded.config.stage);
  CHECK(says(loaded, "ds.json:2: note: dump_state: has no effect: "));
  CHECK(says(loaded,
             "ds.json:2: warning: zero_optimisation: unknown key; did you mean "
             "\"zero_optimization\"? (DeepSpeed ignores it)"));
  CHECK(says(loaded,
             "ds.json:2: warning: lr: unknown key; it belongs in \"optimizer.params\" (DeepSpeed "
             "ignores it)"));
  CHECK(says(loaded,
             "ds.json:3: note: comet: has no effect: --out writes each step to metrics.jsonl"));
  CHECK(says(loaded, "ds.json:3: warning: entirely_else: unknown key (DeepSpeed ignores it)"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.aio: unknown key; it belongs at the top level "
             "(DeepSpeed "
             "refuses it)"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.gradient_clipping: unknown key; it belongs at "
             "the top level"));
  CHECK(says(loaded, "ds.json:4: error: zero_optimization.stag: ", "did you mean \"stage\"?"));
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.pin_memory: unknown key; it belongs in "
             "\"zero_optimization.offload_optimizer\" or in \"zero_optimization.offload_param\" "
             "(DeepSpeed refuses it)"));
  // Several blocks have "enabled", so no block is suggested.
  CHECK(says(loaded,
             "ds.json:4: error: zero_optimization.enabled: unknown key (DeepSpeed refuses it)"));
  CHECK(loaded.findings.size() == 10);  // wandb is off, as asked
}

TEST_CASE("the nearest name is at most two edits away and shares more than half", "[stages]") {
  const std::vector<std::string> names = {"tiny", "small", "gpt2"};
  CHECK(zl::nearest_name("smal", names) == "small");
  CHECK(zl::nearest_name("gtp2", names).empty());  // two of four
  CHECK(zl::nearest_name("x", names).empty());
  CHECK(zl::nearest_config_key("zero_optimization", "stage3_prefech_bucket_sizes") ==
        "stage3_prefetch_bucket_size");
  CHECK(zl::nearest_config_key("zero_optimization", "completely_different").empty());
}

TEST_CASE("a finding is one line without control characters", "[stages]") {
  const auto loaded = load(
      "{\"train_micro_batch_size_per_gpu\": 1, \"two\\nlines\\u001b[2J\": "
      "{\"\\u009b\\t\\u007f\\u00e9\": 1}, \"fp16\": {\"a\\u0000b\": 1}}",
      {"x\ny=1"});
  for (const std::string& line : lines(loaded)) {
    CAPTURE(line);
    CHECK(line.find_first_of("\n\x1b\t\x7f") == std::string::npos);
    CHECK(line.find("\xc2\x9b") == std::string::npos);
  }
  CHECK(says(loaded, "ds.json:1: warning: two\\nlines\\u001b[2J: unknown key"));
  CHECK(says(loaded, "--set x\\ny: warning: "));
}

TEST_CASE("a finding has no marks of writing direction, in keys, values and names of --set",
          "[stages]") {
  const std::string mark = "\u202e", isolate = "\u2066";
  const auto loaded =
      load("{\"train_batch_size\": 4, \"a" + mark + "b\": 1, \"zerolab\": {\"model\": \"" + mark +
               "\"}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": "
               "\"\\u001b[2J\"}}}",
           {"x" + isolate + "=1", "optimizer.type=" + mark});
  CHECK(loaded.findings.size() == 5);
  for (const std::string& line : lines(loaded)) {
    CAPTURE(line);
    CHECK(line.find(mark) == std::string::npos);
    CHECK(line.find(isolate) == std::string::npos);
    CHECK(line.find('\x1b') == std::string::npos);
  }
  CHECK(says(loaded, "ds.json:1: warning: a\\u202eb: unknown key"));
  CHECK(says(loaded, "--set x\\u2066: warning: unknown key"));
}
