// Every honoured key changes the configuration as documented, and nothing else.

#include "tests/stages/deepspeed/config_case.h"

using config_case::config_of, config_case::errors, config_case::joined, config_case::load,
    config_case::says, config_case::with;
using zl::Config, zl::Dtype, zl::OffloadDevice, zl::OptimizerKind, zl::Overlap, zl::Recompute,
    zl::ScheduleKind, zl::StageKind, zl::str, zl::Swap, zl::WarmupType;

namespace {

// The configuration of a file with this member beside a batch size, which must give no finding.
Config of(const std::string& member) {
  const auto loaded = load("{\"train_micro_batch_size_per_gpu\": 2, " + member + "}");
  INFO(member << "\n" << joined(loaded));
  CHECK(loaded.findings.empty());
  return loaded.config;
}

Config optimizer(const std::string& type, const std::string& params) {
  return of(R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}");
}

Config scheduler(const std::string& type, const std::string& params) {
  return of(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "scheduler": {"type": ")" +
            type + R"(", "params": {)" + params + "}}");
}

zl::LoadedConfig zero_of(const std::string& zero, const std::string& ours = "") {
  return load(R"({"train_batch_size": 8, "zero_optimization": {)" + zero + R"(}, "zerolab": {)" +
              ours + "}}");
}

std::string origin(const zl::LoadedConfig& loaded, const std::string& key) {
  for (const zl::ConfigValue& v : effective_values(loaded))
    if (v.key == key) return v.value + " from " + v.origin;
  return "";
}

}  // namespace

TEST_CASE("gradient_clipping is 1.0 where a file does not give it, and stays off with --set alone",
          "[stages]") {
  CHECK(of("\"zerolab\": {}").gradient_clipping == 1.0);
  CHECK(of("\"gradient_clipping\": 0").gradient_clipping == 0);
  CHECK(of("\"gradient_clipping\": 0.5").gradient_clipping == 0.5);
  CHECK(config_of("zerolab.steps=7").gradient_clipping == 0);
  CHECK(config_of("gradient_clipping=0.5").gradient_clipping == 0.5);
  CHECK(with("zerolab.defaults=deepspeed").config.gradient_clipping == 1.0);
}

TEST_CASE("the optimizer's type and every parameter are honoured", "[stages]") {
  const auto adamw =
      optimizer("adamw", R"("lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, )"
                         R"("bias_correction": false)")
          .optimizer;
  CHECK((adamw.kind == OptimizerKind::adamw && adamw.decoupled && !adamw.bias_correction));
  CHECK((adamw.lr == 3e-4 && adamw.beta1 == 0.8 && adamw.beta2 == 0.95));
  CHECK((adamw.eps == 1e-6 && adamw.weight_decay == 0.1));
  const auto sgd = optimizer("SGD", R"("lr": 0.1, "momentum": 0.9, "dampening": 0, )"
                                    R"("nesterov": true, "weight_decay": 0.01)")
                       .optimizer;
  CHECK((sgd.kind == OptimizerKind::sgd && sgd.lr == 0.1 && sgd.momentum == 0.9 && sgd.nesterov &&
         sgd.weight_decay == 0.01));
  CHECK(optimizer("sgd", R"("momentum": 0.9, "dampening": 0.5)").optimizer.dampening == 0.5);
  // Adam means AdamW unless adam_w_mode is false, and AdamW is always AdamW.
  CHECK(optimizer("Adam", "").optimizer.decoupled);
  CHECK(optimizer("ADAM", "\"adam_w_mode\": true").optimizer.decoupled);
  CHECK_FALSE(optimizer("Adam", "\"adam_w_mode\": false").optimizer.decoupled);
  const auto forced = with("optimizer.type=AdamW; optimizer.params.adam_w_mode=false");
  CHECK(forced.config.optimizer.decoupled);
  CHECK(says(forced, "--set optimizer.params.adam_w_mode: warning: "));
}

TEST_CASE("a weight decay that is absent is that of the class that DeepSpeed makes", "[stages]") {
  // deepspeed 0.19.8, runtime/engine.py, get_optimizer_configuration: torch_adam makes
  // torch.optim.AdamW or Adam, whose defaults are 0.01 and 0; FusedAdam, DeepSpeedCPUAdam and
  // torch.optim.SGD have 0.
  const auto decay = [](const char* type, const std::string& params) {
    return optimizer(type, "\"lr\": 0.1" + params).optimizer.weight_decay;
  };
  for (const char* type : {"Adam", "AdamW"}) {
    CHECK(decay(type, "") == 0);
    CHECK(decay(type, R"(, "torch_adam": true)") == 0.01);
    CHECK(decay(type, R"(, "torch_adam": false)") == 0);
    CHECK(decay(type, R"(, "torch_adam": true, "adam_w_mode": true)") == 0.01);
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
  const std::string from =
      origin(load(R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})"),
             "optimizer.params.weight_decay");
  CHECK((from.starts_with("0.01 from ") && from.ends_with("optimizer.params.torch_adam")));
}

TEST_CASE("every schedule and its parameters are honoured; its maximum may be the optimizer's rate",
          "[stages]") {
  const auto warmup = scheduler("WarmupLR", R"("warmup_min_lr": 1e-5, "warmup_max_lr": 2e-3, )"
                                            R"("warmup_num_steps": 10, "warmup_type": "linear")")
                          .schedule;
  CHECK((warmup.kind == ScheduleKind::warmup && warmup.warmup_type == WarmupType::linear));
  CHECK((warmup.warmup_min_lr == 1e-5 && warmup.warmup_max_lr == 2e-3 &&
         warmup.warmup_num_steps == 10));
  const auto plain = scheduler("WarmupLR", "").schedule;
  CHECK((plain.warmup_max_lr == 0.25 && plain.warmup_num_steps == 1000 &&
         plain.warmup_type == WarmupType::log));
  const auto decay = scheduler("WarmupDecayLR", R"("total_num_steps": 5e3)").schedule;
  CHECK((decay.kind == ScheduleKind::warmup_decay && decay.warmup_max_lr == 0.001 &&
         decay.total_num_steps == 5000));
  const auto cosine =
      scheduler("WarmupCosineLR", R"("total_num_steps": 50, "warmup_num_steps": 5, )"
                                  R"("warmup_min_ratio": 0.1, "cos_min_ratio": 0.01)")
          .schedule;
  CHECK((cosine.kind == ScheduleKind::warmup_cosine && cosine.total_num_steps == 50 &&
         cosine.warmup_num_steps == 5));
  CHECK((cosine.warmup_min_ratio == 0.1 && cosine.cos_min_ratio == 0.01));
  CHECK(says(load(R"({"scheduler": {"type": "WarmupDecayLR"}})"),
             "ds.json:1: error: scheduler.params.total_num_steps: "));
}

// That --steps is the total, also of a resumed run and in compare: tests/zerolab/settings_test.cpp.
TEST_CASE("\"auto\" of a schedule follows the steps, and the optimizer's rate", "[stages]") {
  // transformers fills "auto" with its own arguments: max_steps and learning_rate
  // (integrations/deepspeed.py, HfTrainerDeepSpeedConfig.trainer_config_process).
  for (const std::string type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    const std::string sets = "scheduler.type=" + type + "; scheduler.params.total_num_steps=auto";
    CHECK(with(sets).config.schedule.total_num_steps == 100);
    CHECK(with(sets + "; zerolab.steps=2000").config.schedule.total_num_steps == 2000);
    const auto flag = zl::load_config({.sets = config_case::sets_of(sets + "; zerolab.steps=7"),
                                       .flags = {{"--steps", "zerolab.steps", "12", false}}});
    CHECK(says(flag, "--set ", "is \"auto\": 12, the steps of this run"));
    CHECK(says(flag, "--set zerolab.steps: note: ", "--steps 12 replaces 7"));
    CHECK((flag.config.steps == 12 && flag.config.schedule.total_num_steps == 12));
    CHECK(flag.origins.at("zerolab.steps") == "--steps");
  }
  CHECK(scheduler("WarmupDecayLR", R"("total_num_steps": 5e3, "warmup_max_lr": "auto")")
            .schedule.warmup_max_lr == 0.25);
}

TEST_CASE("the stage is a whole number from 0 to 3", "[stages]") {
  for (const auto& [value, stage] : {std::pair{"0", StageKind::ddp},
                                     {"1", StageKind::zero1},
                                     {"2", StageKind::zero2},
                                     {"3", StageKind::zero3},
                                     {"2.0", StageKind::zero2}})
    CHECK(config_of(str(".stage=", value)).stage == stage);
  CHECK(of("\"zero_optimization\": {}").stage == StageKind::ddp);
  CHECK_FALSE(with("zero_optimization=true").ok());
}

TEST_CASE("bucket sizes are whole numbers in any notation, and 5e8 as DeepSpeed's default",
          "[stages]") {
  const auto c = config_of(".reduce_bucket_size=5e8; .allgather_bucket_size=2e2");
  CHECK((c.reduce_bucket_size == 500'000'000 && c.allgather_bucket_size == 200));
  CHECK(config_of(".reduce_bucket_size=\"auto\"").reduce_bucket_size == 1);
  const auto loaded = zero_of(R"("allgather_bucket_size": 7)", R"("defaults": "deepspeed")");
  CHECK((loaded.config.reduce_bucket_size == 500'000'000 &&
         loaded.config.allgather_bucket_size == 7));
  CHECK(loaded.findings.empty());
  CHECK(config_of("zerolab.defaults=ours").reduce_bucket_size == 1);
}

TEST_CASE("the block \"zerolab\" is honoured", "[stages]") {
  const auto c = of(R"("zerolab": {"separate_master": true, "no_weight_decay": ["*.bias", )"
                    R"("ln_*"], "model": "tiny", "data": "input.txt", )"
                    R"("seed": 18446744073709551615, "steps": 1e3, "reproducible": false})");
  CHECK(c.optimizer.separate_master);
  CHECK(c.optimizer.no_weight_decay == std::vector<std::string>{"*.bias", "ln_*"});
  CHECK((c.model == "tiny" && c.data == "input.txt" && !c.reproducible && c.ordered));
  CHECK((c.seed == 18446744073709551615u && c.steps == 1000));
  CHECK(of(R"("zerolab": {"no_weight_decay": "*.bias"})").optimizer.no_weight_decay ==
        std::vector<std::string>{"*.bias"});
  const auto free = with("zerolab.ordered=false");
  CHECK_FALSE(free.config.ordered);
  CHECK(says(free, "--set zerolab.ordered: note: false lets NCCL choose the order",
             "ranks without NCCL still add in rank order"));
  CHECK(with("zerolab.ordered=true").config.ordered);
  for (const auto& [json, expected] : {std::pair{"\"none\"", Recompute::none},
                                       {"\"selective\"", Recompute::selective},
                                       {"full", Recompute::full},  // as typed
                                       {"false", Recompute::none},
                                       {"true", Recompute::full}}) {
    CAPTURE(json);
    const auto loaded = with(str("zerolab.recompute=", json));
    CHECK(loaded.config.recompute == expected);
    CHECK(origin(loaded, "zerolab.recompute").starts_with(str("\"", name(expected), "\" from ")));
  }
}

TEST_CASE("fp16, bf16, and the types of communication and accumulation are honoured", "[stages]") {
  CHECK(config_of("fp16.enabled=false").precision == Dtype::f32);
  const Config c =
      config_of(R"(fp16={"enabled": true, "initial_scale_power": 8, "loss_scale_window": 50, )"
                R"("hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 4})");
  CHECK(c.precision == Dtype::f16);
  CHECK((c.loss_scale.initial_scale_power == 8 && c.loss_scale.window == 50 &&
         c.loss_scale.hysteresis == 3));
  CHECK((c.loss_scale.consecutive_hysteresis && c.loss_scale.min_scale == 4 &&
         c.loss_scale.static_scale == 0));
  CHECK(config_of("fp16.enabled=true; fp16.loss_scale=0.5").loss_scale.static_scale == 0.5);
  CHECK(
      config_of("fp16.enabled=true; fp16.initial_scale_power=-3").loss_scale.initial_scale_power ==
      -3);
  for (const char* name : {"bf16", "bfloat16"})
    CHECK(config_of(str(name, ".enabled=true")).precision == Dtype::bf16);
  CHECK(config_of("bf16.enabled=true").check_grad_overflow);
  for (const char* off :
       {"bf16.enabled=true; bf16.check_grad_overflow=false", "bfloat16.check_grad_overflow=false"})
    CHECK_FALSE(config_of(off).check_grad_overflow);
  CHECK(load(R"({"train_batch_size": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}})")
            .ok());
  for (const auto& [value, type] :
       {std::pair{"fp32", Dtype::f32}, {"BF16", Dtype::bf16}, {"fp16", Dtype::f16}})
    CHECK(config_of(str("communication_data_type=", value)).communication_data_type == type);
  for (const auto& [value, type] : {std::pair{"fp32", Dtype::f32}, {"BF16", Dtype::bf16}})
    CHECK(
        config_of(str("bf16.enabled=true; data_types.grad_accum_dtype=", value)).grad_accum_dtype ==
        type);
}

TEST_CASE("offload_optimizer is honoured for the devices \"cpu\" and \"nvme\"", "[stages]") {
  for (const auto& [value, device] : {std::pair{"={}", OffloadDevice::none},
                                      {".device=none", OffloadDevice::none},
                                      {".device=cpu", OffloadDevice::cpu},
                                      {R"(={"device": "cpu", "ratio": 1.0})", OffloadDevice::cpu}})
    CHECK(config_of(str(".stage=2; .offload_optimizer", value)).offload_optimizer == device);
  const auto ddp = with(".stage=0; .offload_optimizer.device=cpu");
  CHECK((ddp.ok() && ddp.config.offload_optimizer == OffloadDevice::cpu));
  CHECK(says(ddp, "--set ", "note: has no effect: ddp offloads nothing"));
  const Config disk = config_of(
      ".stage=2; .offload_optimizer.device=nvme; .offload_optimizer.nvme_path=/fast; "
      ".sub_group_size=5000; .offload_optimizer.pipeline_write=false");
  CHECK((disk.offload_optimizer == OffloadDevice::nvme && disk.nvme_path == "/fast"));
  CHECK(disk.swap == Swap{nullptr, 5000, true, false});
  CHECK(with("zerolab.defaults=deepspeed").config.swap ==
        Swap{nullptr, 1'000'000'000, false, false});
  // The older name.
  CHECK(with(".stage=2; .cpu_offload=true").config.offload_optimizer == OffloadDevice::cpu);
  CHECK(with(".stage=2; .cpu_offload=false").config.offload_optimizer == OffloadDevice::none);
}

TEST_CASE("offload_param is honoured for the devices \"cpu\" and \"nvme\", in stage 3",
          "[stages]") {
  const Config host = config_of(".stage=3; .offload_param.device=cpu");
  CHECK(host.offload_param == OffloadDevice::cpu);
  CHECK(host.offload_optimizer == OffloadDevice::none);
  CHECK(config_of(".stage=3; .offload_param.device=none").offload_param == OffloadDevice::none);
  const std::string nvme = R"(={"device": "nvme", "nvme_path": "/fast"})";
  const Config disk = config_of(".stage=3; .offload_param" + nvme);
  CHECK(disk.offload_param == OffloadDevice::nvme);
  CHECK(disk.nvme_path == "/fast");
  config_of(".stage=3; .offload_param" + nvme + "; .offload_optimizer" + nvme);
}

TEST_CASE("each key of activation_checkpointing switches it on, without a change of the model",
          "[stages]") {
  CHECK(config_of("activation_checkpointing.cpu_checkpointing=false").recompute ==
        Recompute::selective);
  const Config host = config_of("activation_checkpointing.cpu_checkpointing=true"),
               two = config_of("activation_checkpointing.number_checkpoints=2");
  CHECK((host.recompute == Recompute::full && host.cpu_checkpointing && host.checkpoints == 0));
  CHECK((two.recompute == Recompute::full && two.checkpoints == 2 && !two.cpu_checkpointing));
  const auto both = with("activation_checkpointing.number_checkpoints=2; zerolab.recompute=full");
  CHECK(origin(both, "zerolab.recompute") == "\"full\" from --set zerolab.recompute");
}

TEST_CASE("overlap, prefetch, live parameters and reuse are honoured in both spellings",
          "[stages]") {
  const Overlap expected{.overlap_comm = true,
                         .prefetch_bucket_size = 500,
                         .max_live_parameters = 7000,
                         .max_reuse_distance = 1};
  for (const std::string prefix : {"", "stage3_"}) {
    const auto loaded = zero_of(
        R"("stage": 3, "overlap_comm": true, ")" + prefix + R"(prefetch_bucket_size": 5e2, ")" +
        prefix + R"(max_live_parameters": 7000, ")" + prefix + R"(max_reuse_distance": 1)");
    INFO(joined(loaded));
    CHECK(loaded.findings.empty());
    CHECK(loaded.config.overlap == expected);
    CHECK(origin(loaded, "zero_optimization.stage3_prefetch_bucket_size").starts_with("500 from "));
    CHECK(origin(loaded, "zero_optimization.stage3_max_reuse_distance").ends_with(".json:1"));
    CHECK(origin(loaded, "zero_optimization.max_reuse_distance").empty());
  }
}

TEST_CASE("DeepSpeed's defaults overlap in stage 3 alone, prefetch 5e7 and keep 1e9", "[stages]") {
  const std::string theirs = R"("defaults": "deepspeed")";
  const Overlap deepspeed{.overlap_comm = true,
                          .prefetch_bucket_size = 50'000'000,
                          .max_live_parameters = 1'000'000'000,
                          .max_reuse_distance = 1'000'000'000};
  const auto overlap = [&](const std::string& zero) {
    return zero_of(zero, theirs).config.overlap;
  };
  CHECK(overlap(R"("stage": 3)") == deepspeed);
  CHECK(overlap(R"("stage": 3, "overlap_comm": null)") == deepspeed);
  for (const std::string stage : {R"("stage": 0)", R"("stage": 1)", R"("stage": 2)"}) {
    CAPTURE(stage);
    CHECK_FALSE(overlap(stage).overlap_comm);
    CHECK(overlap(stage + R"(, "overlap_comm": true)").overlap_comm);
  }
  CHECK_FALSE(overlap(R"("stage": 3, "overlap_comm": false)").overlap_comm);
  CHECK(overlap(R"("stage": 3, "max_reuse_distance": 0)").max_reuse_distance == 0);
  CHECK(zero_of(R"("stage": 3, "overlap_comm": null)").config.overlap == Overlap{});
  const auto loaded = zero_of(R"("stage": 3)", theirs);
  CHECK(loaded.findings.empty());
  CHECK(says(zero_of(R"("stage": 3, "param_persistence_threshold": 7)", theirs),
             "ds.json:1: note: zero_optimization.stage3_param_persistence_threshold: has no "
             "effect"));
  for (const auto& [key, value] :
       {std::pair{"overlap_comm", "true"}, {"stage3_max_live_parameters", "1000000000"}})
    CHECK(origin(loaded, str("zero_optimization.", key)) ==
          str(value, " from default: zerolab.defaults is \"deepspeed\""));
  // A flag for the stage counts, and so does a comparison of several.
  zl::ConfigSource source{.file = "", .sets = {"zerolab.defaults=deepspeed"}};
  CHECK_FALSE(load_config(source).config.overlap.overlap_comm);
  source.stage = StageKind::zero3;
  CHECK(load_config(source).config.overlap == deepspeed);
  source.stage = std::nullopt;
  source.several_stages = true;
  CHECK(load_config(source).config.overlap == deepspeed);
}

TEST_CASE("reproducible sums are honoured, and accumulate in fp32 whatever the precision",
          "[stages]") {
  const auto loaded = with("zerolab.reproducible=true; bf16.enabled=true");
  CHECK(loaded.findings.empty());
  CHECK(loaded.config.reproducible);
  CHECK(gradient_type(loaded.config) == Dtype::f32);
  CHECK(gradient_type(config_of("bf16.enabled=true")) == Dtype::bf16);
  CHECK(origin(loaded, "data_types.grad_accum_dtype") == "\"fp32\" from default");
  CHECK(origin(loaded, "communication_data_type").starts_with("\"fp32\" from "));
  CHECK(origin(loaded, "zerolab.reproducible") == "true from --set zerolab.reproducible");
}

TEST_CASE("the keys of reports are honoured", "[stages]") {
  const Config csv =
      config_of(R"(csv_monitor={"enabled": true, "output_path": "", "job_name": "first"})");
  CHECK((csv.csv_monitor.enabled && csv.csv_monitor.output_path.empty() &&
         csv.csv_monitor.job_name == "first"));
  const Config board = config_of(R"(tensorboard={"enabled": true, "output_path": "a"})");
  CHECK((board.tensorboard.enabled && board.tensorboard.output_path == "a" &&
         board.tensorboard.job_name == "DeepSpeedJobName" && !board.csv_monitor.enabled));
}
