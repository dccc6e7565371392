// Every honoured key changes the configuration as documented, and nothing else.

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "tests/stages/deepspeed/config_case.h"

using config_case::errors, config_case::load, config_case::says;
using zl::Config, zl::OptimizerKind, zl::Recompute, zl::ScheduleKind, zl::StageKind, zl::WarmupType;

namespace {

// The configuration of a file with this member beside a batch size, which must give no finding.
Config of(const std::string& member) {
  const auto loaded = load("{\"train_micro_batch_size_per_gpu\": 2, " + member + "}");
  INFO(member << "\n" << config_case::joined(loaded));
  CHECK(loaded.findings.empty());
  return loaded.config;
}

Config optimizer(const std::string& type, const std::string& params) {
  return of(R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}");
}

Config scheduler(const std::string& type, const std::string& params) {
  return of(R"("scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}");
}

}  // namespace

TEST_CASE("without file and --set the configuration has the defaults", "[stages]") {
  const auto loaded = load("");
  const Config& c = loaded.config;
  CHECK(loaded.findings.empty());
  CHECK_FALSE(c.from_file);
  CHECK((c.micro_batch == 4 && c.accumulation == 1 && c.steps == 100 && c.seed == 1337));
  CHECK(c.gradient_clipping == 0);
  CHECK((c.optimizer.kind == OptimizerKind::adamw && c.optimizer.lr == 1e-3 &&
         c.optimizer.weight_decay == 0));
  CHECK((c.reduce_bucket_size == 1 && c.allgather_bucket_size == 1 && !c.stage));
  CHECK(
      (c.recompute == Recompute::selective && !c.model && !c.data && !c.optimizer.separate_master));
}

TEST_CASE("gradient_clipping is 1.0 where a file does not give it, and stays off with --set alone",
          "[stages]") {
  CHECK(of("\"zerolab\": {}").gradient_clipping == 1.0);
  CHECK(of("\"gradient_clipping\": 0").gradient_clipping == 0);
  CHECK(of("\"gradient_clipping\": 0.5").gradient_clipping == 0.5);
  CHECK(load("", {"zerolab.steps=7"}).config.gradient_clipping == 0);
  CHECK(load("", {"gradient_clipping=0.5"}).config.gradient_clipping == 0.5);
  CHECK(load("", {"zerolab.defaults=deepspeed"}).config.gradient_clipping == 1.0);
}

TEST_CASE("the optimizer's type and every parameter of AdamW are honoured", "[stages]") {
  const auto c =
      optimizer("adamw", R"("lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, )"
                         R"("bias_correction": false)");
  CHECK(c.optimizer.kind == OptimizerKind::adamw);
  CHECK((c.optimizer.lr == 3e-4 && c.optimizer.beta1 == 0.8 && c.optimizer.beta2 == 0.95));
  CHECK(
      (c.optimizer.eps == 1e-6 && c.optimizer.weight_decay == 0.1 && !c.optimizer.bias_correction));
  CHECK(c.optimizer.decoupled);
}

TEST_CASE("Adam means AdamW unless adam_w_mode is false, and AdamW is always AdamW", "[stages]") {
  CHECK(optimizer("Adam", "").optimizer.decoupled);
  CHECK(optimizer("ADAM", "\"adam_w_mode\": true").optimizer.decoupled);
  CHECK_FALSE(optimizer("Adam", "\"adam_w_mode\": false").optimizer.decoupled);
  const auto loaded = load(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", )"
                           R"("params": {"adam_w_mode": false}}})");
  CHECK(loaded.config.optimizer.decoupled);
  CHECK(says(loaded, "ds.json:1: warning: optimizer.params.adam_w_mode: "));
}

TEST_CASE("every parameter of SGD is honoured", "[stages]") {
  const auto c = optimizer(
      "SGD",
      R"("lr": 0.1, "momentum": 0.9, "dampening": 0, "nesterov": true, "weight_decay": 0.01)");
  CHECK(c.optimizer.kind == OptimizerKind::sgd);
  CHECK((c.optimizer.lr == 0.1 && c.optimizer.momentum == 0.9 && c.optimizer.nesterov &&
         c.optimizer.weight_decay == 0.01));
  CHECK(optimizer("sgd", R"("momentum": 0.9, "dampening": 0.5)").optimizer.dampening == 0.5);
}

TEST_CASE(
    "WarmupLR and its parameters are honoured, and its maximum is the optimizer's rate by default",
    "[stages]") {
  const auto c = scheduler(
      "WarmupLR", R"("warmup_min_lr": 1e-5, "warmup_max_lr": 2e-3, "warmup_num_steps": 10, )"
                  R"("warmup_type": "linear")");
  CHECK(c.schedule.kind == ScheduleKind::warmup);
  CHECK((c.schedule.warmup_min_lr == 1e-5 && c.schedule.warmup_max_lr == 2e-3 &&
         c.schedule.warmup_num_steps == 10));
  CHECK(c.schedule.warmup_type == WarmupType::linear);
  const auto d = of(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, )"
                    R"("scheduler": {"type": "WarmupLR", "params": {}})");
  CHECK((d.schedule.warmup_max_lr == 0.25 && d.schedule.warmup_num_steps == 1000 &&
         d.schedule.warmup_type == WarmupType::log));
}

TEST_CASE("WarmupDecayLR has its default maximum and needs its total", "[stages]") {
  const auto c = of(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.25}},
                       "scheduler": {"type": "WarmupDecayLR",
                                     "params": {"total_num_steps": 5e3}})");
  CHECK(c.schedule.kind == ScheduleKind::warmup_decay);
  CHECK((c.schedule.warmup_max_lr == 0.001 && c.schedule.total_num_steps == 5000));
  CHECK(says(load(R"({"scheduler": {"type": "WarmupDecayLR"}})"),
             "ds.json:1: error: scheduler.params.total_num_steps: "));
  const auto automatic =
      load(R"({"scheduler": {"type": "WarmupDecayLR", )"
           R"("params": {"total_num_steps": "auto"}}, "zerolab": {"steps": 2000}})");
  CHECK(automatic.ok());
  CHECK(automatic.config.schedule.total_num_steps == 2000);
}

TEST_CASE("\"auto\" of a schedule follows the flag for the steps and the optimizer's rate",
          "[stages]") {
  // transformers fills "auto" with its own arguments: max_steps and learning_rate
  // (integrations/deepspeed.py, HfTrainerDeepSpeedConfig.trainer_config_process).
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    const config_case::File file(zl::str(R"({"train_batch_size": 4, "scheduler": {"type": ")", type,
                                         R"(", "params": {"total_num_steps": "auto"}}})"));
    CHECK(zl::load_config({.file = file.path()}).config.schedule.total_num_steps == 100);
    const auto loaded = zl::load_config({.file = file.path(), .steps = 12});
    CHECK(loaded.config.schedule.total_num_steps == 12);
    CHECK(says(loaded, file.path() + ":1: note: ", "is \"auto\": 12, as --steps"));
    CHECK(loaded.config.steps == 100);  // the caller says that the flag replaces this
  }
  const auto rate = [](const std::string& most) {
    return of(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "scheduler": {"type": )"
              R"("WarmupDecayLR", "params": {"total_num_steps": 5e3)" +
              most + "}}")
        .schedule.warmup_max_lr;
  };
  CHECK(rate(R"(, "warmup_max_lr": "auto")") == 0.25);
  CHECK(rate("") == 0.001);
}

TEST_CASE("a weight decay that is absent is that of the class that DeepSpeed makes", "[stages]") {
  // deepspeed 0.19.8, runtime/engine.py, get_optimizer_configuration: torch_adam makes
  // torch.optim.AdamW or Adam, whose defaults are 0.01 and 0; FusedAdam, DeepSpeedCPUAdam and
  // torch.optim.SGD have 0.
  const auto decay = [](const char* type, const std::string& params) {
    return of(zl::str(R"("optimizer": {"type": ")", type, R"(", "params": {"lr": 0.1)", params,
                      "}}"))
        .optimizer.weight_decay;
  };
  for (const char* type : {"Adam", "AdamW"}) {
    CHECK(decay(type, "") == 0);
    CHECK(decay(type, R"(, "torch_adam": true)") == 0.01);
    CHECK(decay(type, R"(, "torch_adam": true, "adam_w_mode": true)") == 0.01);
    CHECK(decay(type, R"(, "torch_adam": 1)") == 0.01);  // as Python takes it in `if`
    CHECK(decay(type, R"(, "torch_adam": "yes")") == 0.01);
    for (const char* off : {"false", "null", "0", "\"\"", "[]", "{}"})
      CHECK(decay(type, zl::str(R"(, "torch_adam": )", off)) == 0);
    CHECK(decay(type, R"(, "torch_adam": true, "weight_decay": 0)") == 0);
    CHECK(decay(type, R"(, "torch_adam": true, "weight_decay": 0.5)") == 0.5);
    // The Trainer of transformers fills "auto" with its own default, 0.
    CHECK(decay(type, R"(, "torch_adam": true, "weight_decay": "auto")") == 0);
  }
  CHECK(decay("Adam", R"(, "torch_adam": true, "adam_w_mode": false)") == 0);
  CHECK(load(R"({"optimizer": {"type": "AdamW", )"  // the type forces it, with a warning
             R"("params": {"torch_adam": true, "adam_w_mode": false}}})")
            .config.optimizer.weight_decay == 0.01);
  CHECK(decay("SGD", "") == 0);
  const auto loaded = load(R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", )"
                           R"("params": {"torch_adam": true}}})");
  CHECK(loaded.findings.empty());
  for (const zl::ConfigValue& value : effective_values(loaded))
    if (value.key == "optimizer.params.weight_decay") {
      CHECK(value.value == "0.01");
      CHECK(value.origin.ends_with("optimizer.params.torch_adam"));
    }
}

TEST_CASE("WarmupCosineLR and its parameters are honoured", "[stages]") {
  const auto c = scheduler(
      "WarmupCosineLR", R"("total_num_steps": 50, "warmup_num_steps": 5, "warmup_min_ratio": 0.1, )"
                        R"("cos_min_ratio": 0.01)");
  CHECK(c.schedule.kind == ScheduleKind::warmup_cosine);
  CHECK((c.schedule.total_num_steps == 50 && c.schedule.warmup_num_steps == 5));
  CHECK((c.schedule.warmup_min_ratio == 0.1 && c.schedule.cos_min_ratio == 0.01));
}

TEST_CASE("the stage is honoured in every form that DeepSpeed takes", "[stages]") {
  const auto stage = [](const std::string& value) {
    return *of("\"zero_optimization\": {\"stage\": " + value + "}").stage;
  };
  CHECK(stage("0") == StageKind::ddp);
  CHECK(stage("1") == StageKind::zero1);
  CHECK(stage("2") == StageKind::zero2);
  CHECK(stage("3") == StageKind::zero3);
  CHECK(stage("\"2\"") == StageKind::zero2);
  CHECK(stage("2.0") == StageKind::zero2);
  CHECK(says(load(R"({"train_batch_size": 4, "zero_optimization": {"stage": true}})"),
             "ds.json:1: error: zero_optimization.stage: expected a whole number from 0 to 3"));
  CHECK_FALSE(of("\"zero_optimization\": {}").stage);
  const auto old = load(R"({"train_batch_size": 4, "zero_optimization": true})");
  CHECK(old.config.stage == StageKind::zero1);
  CHECK(says(old, "ds.json:1: warning: zero_optimization: ", "deprecated"));
  CHECK(load(R"({"zero_optimization": false})").config.stage == StageKind::ddp);
}

TEST_CASE(
    "bucket sizes are whole numbers in any notation, one unit by default, 5e8 as DeepSpeed's "
    "default",
    "[stages]") {
  const auto c =
      of(R"("zero_optimization": {"reduce_bucket_size": 5e8, "allgather_bucket_size": "200"})");
  CHECK((c.reduce_bucket_size == 500'000'000 && c.allgather_bucket_size == 200));
  CHECK(of(R"("zero_optimization": {"reduce_bucket_size": "auto"})").reduce_bucket_size == 1);
  const auto loaded = load(R"({"zerolab": {"defaults": "deepspeed"}, )"
                           R"("zero_optimization": {"allgather_bucket_size": 7}})");
  CHECK((loaded.config.reduce_bucket_size == 500'000'000 &&
         loaded.config.allgather_bucket_size == 7));
  CHECK(says(loaded,
             "ds.json:1: note: zerolab.defaults: ", "persistence thresholds have an effect in"));
  CHECK(of(R"("zerolab": {"defaults": "ours"})").reduce_bucket_size == 1);
}

TEST_CASE("sums are in rank order unless a file selects another order, which is a note",
          "[stages]") {
  const auto free = load(R"({"zerolab": {"ordered": false}})");
  CHECK_FALSE(free.config.ordered);
  CHECK(says(free, "ds.json:1: note: zerolab.ordered: false lets NCCL or MPI choose the order",
             "ranks without them still add in rank order"));
  const auto ordered = load(R"({"zerolab": {"ordered": true}})");
  CHECK(ordered.config.ordered);
  CHECK_FALSE(says(ordered, "ds.json:1: note: zerolab.ordered"));
  CHECK(of(R"("zerolab": {})").ordered);
}

TEST_CASE("the block \"zerolab\" is honoured", "[stages]") {
  const auto c = of(R"("zerolab": {"separate_master": true, "no_weight_decay": ["*.bias", )"
                    R"("ln_*"], "recompute": true,
                       "model": "tiny", "data": "input.txt", )"
                    R"("seed": 18446744073709551615, "steps": 1e3, "reproducible": false})");
  CHECK(c.optimizer.separate_master);
  CHECK(c.optimizer.no_weight_decay == std::vector<std::string>{"*.bias", "ln_*"});
  CHECK((c.recompute == Recompute::full && c.model == "tiny" && c.data == "input.txt"));
  CHECK((c.seed == 18446744073709551615u && c.steps == 1000));
  CHECK(of(R"("zerolab": {"no_weight_decay": "*.bias"})").optimizer.no_weight_decay ==
        std::vector<std::string>{"*.bias"});
}

TEST_CASE("recompute is one of three words; true means full, false means none", "[stages]") {
  for (const auto& [json, expected] : {std::pair{"\"none\"", Recompute::none},
                                       {"\"selective\"", Recompute::selective},
                                       {"\"full\"", Recompute::full},
                                       {"false", Recompute::none},
                                       {"true", Recompute::full}}) {
    CAPTURE(json);
    CHECK(of(zl::str(R"("zerolab": {"recompute": )", json, "}")).recompute == expected);
    const auto loaded = load("", {zl::str("zerolab.recompute=", json)});
    CHECK(loaded.config.recompute == expected);
    for (const auto& value : zl::effective_values(loaded))
      if (value.key == "zerolab.recompute")
        CHECK(value.value == zl::str("\"", name(expected), "\""));
  }
  CHECK(load("", {"zerolab.recompute=full"}).config.recompute == Recompute::full);  // as typed
}

TEST_CASE("the origin of each value is recorded", "[stages]") {
  const auto loaded =
      load("{\"train_batch_size\": 8,\n \"zerolab\": {\n\"seed\": 3}}", {"zerolab.steps=5"});
  CHECK(loaded.origins.at("zerolab.seed").ends_with(".json:3"));
  CHECK(loaded.origins.at("zerolab.steps") == "--set zerolab.steps");
  CHECK(loaded.origins.count("gradient_clipping") == 0);
}
