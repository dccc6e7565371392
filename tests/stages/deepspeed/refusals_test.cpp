// What is refused or has no effect, and the sentence for it.

#include "tests/stages/deepspeed/config_case.h"

using config_case::check, config_case::errors, config_case::joined, config_case::load,
    config_case::says, config_case::sets_of, config_case::with;
using zl::Dtype, zl::str;

TEST_CASE("a wrong type or value of an honoured key is an error that names the value", "[stages]") {
  check({
      {"gradient_clipping=-1", "error: expected a number of at least 0, not -1"},
      {"gradient_clipping=true", "error: expected a number of at least 0, not true"},
      {"optimizer=\"Adam\"", "error: expected an object, not the string \"Adam\""},
      {"optimizer.params=[]", "error: expected an object, not an empty array"},
      {"optimizer.type=3", "error: expected one of \"Adam\", \"AdamW\", \"SGD\", not 3"},
      {"scheduler.type=OneCycle",
       "error: expected one of \"WarmupLR\", \"WarmupDecayLR\", \"WarmupCosineLR\", not the string "
       "\"OneCycle\""},
      {"optimizer.params.betas=[0.9]",
       "error: expected an array of two numbers from 0 to below 1, not an array"},
      {"optimizer.params.betas=[0.9, /* one */ 1]",
       "error: expected an array of two numbers from 0 to below 1, not an array [0.9,1]"},
      {".overlap_comm=maybe", "error: expected true or false, not the string \"maybe\""},
      {".stage=-1", "error: expected a whole number from 0 to 3, not -1"},
      {".stage=two", "error: expected a whole number from 0 to 3, not the string \"two\""},
      {".reduce_bucket_size=\"5e8\"",
       "error: expected a whole number of at least 1, not the string \"5e8\""},
      {".sub_group_size=0", "note: has no effect: it is for the device nvme"},
      {".allgather_bucket_size=1e19", "error: expected a whole number of at least 0, not 1e+19"},
      {"zerolab.defaults=torch",
       "error: expected one of \"ours\", \"deepspeed\", not the string \"torch\""},
      {"communication_data_type=int8",
       "error: expected one of \"fp32\", \"bf16\", \"fp16\", not the string \"int8\""},
      {"zerolab.sed=3", "error: unknown key; did you mean \"seed\"?"},
      {"zerolab.model=smal", "error: expected one of \"tiny\", \"small\", "},
      {"zerolab.recompute=0",
       "error: expected one of \"none\", \"selective\", \"full\", \"false\", \"true\", not 0"},
      {"zerolab.no_weight_decay=[\"a\", 1]",
       "error: expected an array of strings, not an array [\"a\",1]"},
      {"zerolab.seed=-1", "error: expected a whole number from 0 to 2^64 - 1, not -1"},
      {"zerolab.seed=18446744073709551616",
       "error: expected a whole number from 0 to 2^64 - 1, not 1.8446744073709552e+19"},
      {".reduce_bucket_size=9223372036854775808",
       "error: expected a whole number of at least 1, not 9223372036854775808"},
      {"optimizer.params.max_grad_norm=1", "error: write \"gradient_clipping\" at the top level"},
  });
  for (const char* key : {"zerolab.data", "csv_monitor.output_path", "csv_monitor.job_name",
                          "tensorboard.output_path", "tensorboard.job_name"})
    check({{str(key, "=\"a\\u0000b\"").c_str(), "error: expected a string without zero bytes"}});
  CHECK(joined(with(".allgather_bucket_size=1e19")).find("DeepSpeed") == std::string::npos);
}

TEST_CASE("parameters that contradict each other, or that a type does not use, have a finding",
          "[stages]") {
  check({
      {"optimizer.type=SGD; optimizer.params.nesterov=true",
       "error: Nesterov momentum needs a momentum above 0 and dampening 0, not 0 and 0"},
      {"scheduler.type=WarmupLR; scheduler.params.warmup_min_lr=-1e30", ""},
      {"scheduler.type=WarmupLR; scheduler.params.warmup_num_steps=0",
       "error: expected a whole number of at least 1, not 0"},
      {"scheduler.type=WarmupLR; scheduler.params.warmup_type=cosine",
       "error: expected one of \"log\", \"linear\", not the string \"cosine\""},
      {"optimizer.type=SGD; optimizer.params.betas=[0.9,0.9]",
       "error: is no parameter of this type (DeepSpeed refuses it); leave it out"},
      {"optimizer.params.momentum=0.9", "error: is no parameter of this type"},
      {"scheduler.type=WarmupLR; scheduler.params.total_num_steps=9", "error: is no parameter"},
      {"scheduler.params.warmup_num_steps=2", "warning: "},  // a block without a type
  });
  CHECK(with("scheduler.params.warmup_num_steps=2").config.schedule.kind ==
        zl::ScheduleKind::constant);
  const auto optimizer = load(R"({"train_batch_size": 4, "optimizer": {"params": {"lr": 2}}})");
  CHECK(optimizer.config.optimizer.lr == 2);
  CHECK(says(optimizer, "ds.json:1: note: optimizer.type: is absent"));
  CHECK(with("optimizer.params.lr=2").findings.empty());
}

TEST_CASE("a precision that cannot be had is refused, and what it does not use is noted",
          "[stages]") {
  const std::string out_of_range = "error: expected 0 or a number from 2^-126 to 2^126";
  for (const char* scale : {"1e-38", "1e39", "1e300", "5e-324", "8.6e37"})
    check({{str("fp16.enabled=true; fp16.loss_scale=", scale).c_str(), out_of_range.c_str()}});
  for (const char* power : {"127", "-127", "1000000"})
    check({{str("fp16.initial_scale_power=", power).c_str(),
            "error: expected a whole number from -126 to 126"}});
  const std::string window = "fp16.enabled=true; fp16.loss_scale_window=",
                    fixed = "fp16.enabled=true; fp16.loss_scale=8; fp16.loss_scale_window=50";
  check({{(window + "0").c_str(), "error: expected a whole number of at least 1, not 0"},
         {(window + "50").c_str(), ""},
         {fixed.c_str(), "note: has no effect: it is for fp16 with a dynamic loss scale"},
         {"fp16.min_loss_scale=0", ""},  // nothing is scaled
         {"fp16.min_loss_scale=0.5", "error: expected a whole number of at least 0, not 0.5"}});
  check({
      {"fp16.enabled=true; fp16.loss_scale=8.5e37", ""},
      {"fp16.enabled=true; fp16.loss_scale=1.18e-38", ""},
      {"fp16.enabled=true; fp16.hysteresis=0", ""},  // it never halves the scale
      {"bf16.enabled=false; bfloat16.enabled=true",
       "error: bfloat16: is given under two names; leave one of the two out"},
      {"bf16.enable=true", "error: unknown key; did you mean \"enabled\"?"},
      {"fp16.fp16_master_weights_and_grads=true",
       "error: zerolab always works as if this were false"},
      {"bf16.bf16_master_weights_and_grads=true",
       "error: zerolab always works as if this were false"},
      {"bf16.bf16_optimizer_states=true", "error: zerolab always works as if this were false"},
      {"torch_autocast.enabled=true", "error: zerolab has no autocast"},
      {"torch_autocast.enbled=true", "error: unknown key; did you mean \"enabled\"?"},
      {"fp16.auto_cast=true", "note: has no effect: "},
      {"bf16.immediate_grad_update=true", "note: has no effect: "},
      {"bf16.enabled=true; data_types.grad_accum_dtype=fp16", "error: is neither fp32 nor"},
      {"data_types.grad_accum_dtype=bf16", "error: "},
  });
  CHECK(with("fp16.enabled=true; fp16.hysteresis=0").config.loss_scale.hysteresis == 0);
  CHECK(with("fp16.hysteresis=-2").config.loss_scale.hysteresis == 2);
  CHECK(
      says(with("data_types.grad_accum_dtype=bf16"), "--set ", "the type of this run's gradients"));
  const auto both = load(
      "{\"train_batch_size\": 4, \"fp16\": {\"enabled\": true},\n\"bf16\": {\n\"enabled\": true}}");
  CHECK(errors(both) == 1);
  CHECK(says(both, "ds.json:3: error: bf16.enabled: ", "fp16 is enabled too"));
}

TEST_CASE("offload that cannot be had is refused, and what it does not use is noted", "[stages]") {
  const std::string ratio = R"(.offload_optimizer={"device": "cpu", "ratio": 0.5})",
                    param = R"(.offload_param={"device": "nvme", "nvme_path": "/fast"})",
                    optimizer = R"(.offload_optimizer={"device": "nvme", "nvme_path": "/fast"})",
                    low = ".stage=2; " + ratio, high = ".stage=3; " + ratio,
                    other = ".stage=3; " + optimizer + "; " + param +
                            "; .offload_param.nvme_path=/slow";
  check({
      {".stage=2; .offload_optimizer.device=nvme", "error: nvme needs nvme_path"},
      {".stage=3; .offload_param.device=nvme", "error: nvme needs nvme_path"},
      {".sub_group_size=5000", "note: has no effect"},
      {low.c_str(), "note: "},
      {high.c_str(), "note: "},
      {other.c_str(), "error: "},
      {".stage=2; .cpu_offload=true",
       "warning: is deprecated: write \"offload_optimizer\": {\"device\": \"cpu\"}"},
      {".offload_optimizer={}; .cpu_offload=true",
       "error: leave it out: offload_optimizer replaces it, and is given too"},
      {".stage=3; .cpu_offload_param=true", "error: deprecated: write offload_param"},
  });
  const auto said = [](const std::string& sets, const std::string& words) {
    return says(with(sets), "--set zero_optimization.offload_", words);
  };
  CHECK(said(high, "has no effect: zerolab always works as if this were 1"));
  CHECK(said(other, "a rank makes one file"));
  CHECK(said(".stage=2; .offload_param.device=cpu", "has no effect: it is for stage 3"));
  CHECK(with(".stage=2; .offload_param.device=cpu").ok());
  for (const char* key : {".nvme_path=/fast", ".pipeline_read=false", ".pipeline_write=false"})
    CHECK(said(str(".stage=2; .offload_optimizer.device=cpu; .offload_optimizer", key),
               "has no effect: it is for the device nvme"));
  const std::string quantized = ".stage=3; .offload_param.device=cpu; .zero_quantized_weights=true";
  CHECK((!with(quantized).ok() && said(quantized, "quantizes its parameter shard")));
  CHECK(says(with(".stage=3; .zero_quantized_gradients=true; communication_data_type=fp32"),
             "--set communication_data_type", "zero3_qgz sends its gradients in 4 bits"));
}

TEST_CASE("what contradicts overlap, activation checkpointing or reproducible sums has a finding",
          "[stages]") {
  for (int stage = 0; stage < 3; ++stage)
    for (const char* key : {"stage3_prefetch_bucket_size", "stage3_max_live_parameters",
                            "stage3_max_reuse_distance"}) {
      const std::string here = str(".stage=", stage, "; .", key, "=5"),
                        note = "note: has no effect: it is for stage 3",
                        in_3 = str(".stage=3; .", key, "=5");
      check({{here.c_str(), note.c_str()}, {in_3.c_str(), ""}});
      zl::ConfigSource all{.sets = sets_of(here), .several_stages = true};  // plan and compare
      CHECK(load_config(all).findings.empty());
    }
  for (const char* key :
       {"contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"}) {
    const std::string set = str("activation_checkpointing.", key), on = set + "=true",
                      off = set + "=false";
    check({{on.c_str(), "note: has no effect"}, {off.c_str(), ""}});
    CHECK(with(on).config.recompute == zl::Recompute::selective);
  }
  const std::string on = "zerolab.reproducible=true";
  check({
      {".stage=2; .stage3_max_reuse_distance=0", ""},  // as it is anyway
      {".stage=1; .overlap_comm=true", ""},
      {".stage=3; .prefetch_bucket_size=5; .stage3_prefetch_bucket_size=7",
       "error: is given under two names; leave one of the two out"},
      {"activation_checkpointing.number_checkpoints=2; zerolab.recompute=none",
       "error: activation_checkpointing needs \"full\""},
      {"activation_checkpointing.number_checkpoints=0", "error: "},
      {"activation_checkpointing.partition_activations=true",
       "note: has no effect: zerolab always works as if this were false"},
      {"zerolab.ordered=false; zerolab.reproducible=true", "error: needs sums in rank order"},
      {"zerolab.reproducible=true; bf16.enabled=true; data_types.grad_accum_dtype=bf16",
       "error: zerolab.reproducible adds in fp32"},
      {"zerolab.reproducible=true; communication_data_type=fp16",
       "error: zerolab.reproducible adds in fp32"},
  });
  CHECK(with(on + "; communication_data_type=fp32; data_types.grad_accum_dtype=fp32").ok());
  CHECK(with("communication_data_type=fp16").ok());
}

TEST_CASE("what changes results in DeepSpeed, or what it refuses itself, is an error", "[stages]") {
  check({
      {".stage=1; prescale_gradients=true", "note: has no effect: "},
      {".stage=3; prescale_gradients=false; gradient_predivide_factor=1.0", ""},
      {"gradient_allreduce_op=sum", "error: gradients are averaged"},
      {"gradient_allreduce_op=max", "error: gradients are averaged"},
      {".zenflow={}", "error: zerolab always works as if this were absent"},
      {R"(.zenflow={"topk_ratio": 0.1, "update_interval": 4})",
       "error: zerolab always works as if this were absent"},
      {"sparse_gradients=true", "error: DeepSpeed 0.19.8 refuses"},
      {".grad_hooks=true", "error: DeepSpeed 0.19.8 refuses"},
      {".legacy_stage1=true", "note: has no effect: zerolab has no such mechanism"},
      {"comms_logger.enabled=true", "note: has no effect: --trace FILE has the time"},
      {"steps_per_print=10", "note: has no effect: progress says how a run goes"},
      {R"(tensor_parallel={"autotp_size": 0, "tp": {"tp_size": 1}})", ""},
      {"tensor_parallel.tp_size=1", "error: unknown key; it belongs in \"tensor_parallel.tp\""},
      {"tensor_parallel.tp.size=1", "error: unknown key"},
      {"tensor_parallel.tp.enable=true", "error: unknown key"},
      {"tensor_parallel.dtype=fp16", "error: DeepSpeed 0.19.8 refuses"},
      {"data_efficiency.enabled=true", "error: zerolab always works as if this were false"},
      {"data_efficiency.seed=1234", "note: has no effect: "},
      {"data_efficiency=false", "error: expected an object, not false"},
      {"csv_monitor.enable=true", "error: unknown key"},
      {"tensorboard.enable=true", "error: unknown key"},
      {"comms_logger.enable=true", "error: unknown key"},
  });
  for (const char* set :
       {R"(tensor_parallel={"autotp_size": 2})", R"(tensor_parallel={"tp": {"tp_size": 2}})"}) {
    check({{set, "error: "}});
    CHECK(says(with(set), "--set ", "_size: zerolab always works as if this were "));
  }
  CHECK(
      says(with("amp.enabled=true"), "--set amp", "error: amp: DeepSpeed 0.19.8 refuses this key"));
  CHECK(with("amp.enabled=auto").findings.empty());
}
