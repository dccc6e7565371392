// The rows of the table. tutorials/reference/configuration.md says what each key sets.

#include <sstream>

#include "stages/deepspeed/members.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"

namespace zl {
namespace {

using namespace members;
using enum ConfigUse;
using Keys = std::vector<ConfigKey>;
using Effect = ConfigKey::Effect;

constexpr char kDisk[] = "it is for the device nvme";
constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kRemoved[] = "DeepSpeed removed this feature";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";
constexpr char kDivided[] =
    "gradients are added, then divided by the number of ranks; only rounding differs";

void add(Keys& all, std::string_view block, Keys rows) {
  for (ConfigKey& row : rows) row.block = block, all.push_back(std::move(row));
}

// Keys that are honoured if a condition holds.
Effect note_unless(bool holds, const std::string& reason, bool any_value = false) {
  return holds ? Effect{} : Effect{noted, reason, "", any_value};
}
Effect error_unless(bool holds, const std::string& reason) {
  return holds ? Effect{} : Effect{refused, reason};
}
// DeepSpeed passes parameters on to the class of the type, which knows only its own.
Effect only(bool holds) {
  return error_unless(holds, "is no parameter of this type (DeepSpeed refuses it); leave it out");
}
// A key that makes stage 3 a variant.
Effect selects(const Config& c, const char* variant, bool is_used = false) {
  return note_unless(
      is_used || c.stage == StageKind(variant),
      str("it chooses ", variant,
          " only where one run has stage 3 and neither --stage nor \"as\" is given"));
}

void add_update(Keys& all, Config& c) {
  using enum ScheduleKind;
  OptimizerConfig& o = c.optimizer;
  ScheduleConfig& s = c.schedule;
  const bool is_sgd = o.kind == OptimizerKind::sgd, cosine_runs = s.kind == warmup_cosine;
  const Effect sgd = only(is_sgd), adam = only(!is_sgd), any = only(s.kind != constant),
               cosine = only(cosine_runs), rates = only(s.kind != constant && !cosine_runs),
               ends = only(s.kind == warmup_decay || cosine_runs);
  const Effect nesterov =
      error_unless(!o.nesterov || (o.momentum != 0 && o.dampening == 0),
                   str("Nesterov momentum requires a momentum and zero dampening; momentum is ",
                       o.momentum, " and dampening ", o.dampening));
  // bf16 keeps 8 significant bits of a sum and fp16 11, but reproducible sums need fp32's 24.
  const auto sums = [&](std::optional<Dtype> type) {
    return error_unless(!c.reproducible || type.value_or(Dtype::f32) == Dtype::f32,
                        "zerolab.reproducible adds in fp32; leave it out or write \"fp32\"");
  };
  add(all, "",
      {{"train_batch_size", at(c.train_batch_size, 1, 1ll << 52)},
       {"train_micro_batch_size_per_gpu", at(c.micro_batch, 1, 1 << 20)},
       {"gradient_accumulation_steps", at(c.accumulation, 1, 1 << 20)},
       {"gradient_clipping", at(c.gradient_clipping, 0), "1"},
       {"communication_data_type", type_of(c.communication_data_type, c), "",
        sums(c.communication_data_type)},
       {"steps_per_print", at(c.steps_per_print, 1)},
       {"wall_clock_breakdown", at(c.wall_clock_breakdown), "false"}});
  add(all, "data_types",
      {{"grad_accum_dtype", type_of(c.grad_accum_dtype, c), "", sums(c.grad_accum_dtype)}});
  add(all, "optimizer", {{"type", optimizer_type(o)}});
  add(all, "optimizer.params",
      {{"lr", at(o.lr, 0), "0.001"},
       {"betas", betas_of(o), "[0.9, 0.999]", adam},
       {"eps", at(o.eps, 0), "1e-08", adam},
       {"weight_decay", at(o.weight_decay, 0), "0"},
       {"bias_correction", at(o.bias_correction), "true", adam},
       {"adam_w_mode", at(o.decoupled), "true", adam},
       {"torch_adam", value<bool>([](bool) {}, {}), "false", adam},
       {"momentum", at(o.momentum, 0), "0", sgd},
       {"dampening", at(o.dampening), "0", sgd},
       {"nesterov", at(o.nesterov), "false", is_sgd ? nesterov : sgd}});
  add(all, "scheduler",
      {{"type", one_of(s.kind, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}, 1)}});
  add(all, "scheduler.params",
      {{"warmup_min_lr", at(s.warmup_min_lr), "0", rates},
       {"warmup_max_lr", at(s.warmup_max_lr), "", rates},
       {"warmup_num_steps", at(s.warmup_num_steps, 1), "1000", any},
       {"warmup_type", one_of(s.warmup_type, {"log", "linear"}), "\"log\"", any},
       {"total_num_steps", at(s.total_num_steps, 1), "", ends},
       {"warmup_min_ratio", at(s.warmup_min_ratio), "0", cosine},
       {"cos_min_ratio", at(s.cos_min_ratio), "1e-04", cosine}});
}

void add_precision(Keys& all, Config& c) {
  LossScaleConfig& l = c.loss_scale;
  // Many files have these keys while fp16 is off; that needs no note.
  const Effect dynamic = note_unless(c.precision != Dtype::f16 || l.static_scale == 0,
                                     "it is for fp16 with a dynamic loss scale");
  const auto precision = [&c](Dtype type) {
    return value<bool>([&c, type](bool on) { c.precision = on ? type : c.precision; },
                       [&c, type] { return json(c.precision == type); });
  };
  const ConfigMember min_scale =
      value<int64_t>([&l](int64_t n) { l.min_scale = double(n); }, at(l.min_scale).show, 0);
  add(all, "fp16",
      {{"enabled", precision(Dtype::f16), "false"},
       {"loss_scale", at(l.static_scale, 0), "0"},
       {"initial_scale_power", at(l.initial_scale_power, -126, 126), "16", dynamic},
       {"loss_scale_window", at(l.window, 1), "1000", dynamic},
       {"hysteresis", at(l.hysteresis), "2", dynamic},
       {"consecutive_hysteresis", at(l.consecutive_hysteresis), "false", dynamic},
       {"min_loss_scale", min_scale, "1", dynamic}});
  add(all, "bf16",
      {{"enabled", precision(Dtype::bf16), "false"},
       {"check_grad_overflow", at(c.check_grad_overflow), "true"}});
}

void add_zero(Keys& all, Config& c) {
  static const Texts devices{"none", "cpu", "nvme"};
  Overlap& o = c.overlap;
  const Effect stage_3 = note_unless(shards_parameter(c.stage), "it is for stage 3");
  const Effect sharded = note_unless(shards_optimizer(c.stage), "ddp offloads nothing");
  const Effect nvme = note_unless(c.offload_optimizer == OffloadDevice::nvme, kDisk, true);
  const Effect param_nvme = note_unless(c.offload_param == OffloadDevice::nvme, kDisk, true);
  const Effect preset = note_unless(
      c.as == "deepspeed-3",
      "every parameter is sharded; only what compare and plan predict of \"deepspeed-3\" uses it");
  const bool has_groups = file_of(c.stage).groups != VariantGroups::none;
  const ConfigMember stage = value<int64_t>([&c](int64_t n) { c.stage = kStages[n]; },
                                            [&c] { return json(stage_number(c.stage)); }, 0, 3);
  const ConfigMember cpu_offload = value<bool>(
      [&c](bool on) { c.offload_optimizer = on ? OffloadDevice::cpu : OffloadDevice::none; }, {});
  // DeepSpeed's own, in its preset (stages/predict/preset_forms.cpp).
  const auto shown = [&c] {
    return json(c.persistence_threshold.value_or(c.as == "deepspeed-3" ? 100'000 : 0));
  };
  const ConfigMember threshold{at(c.persistence_threshold, 0).store, shown};
  add(all, "zero_optimization",
      {{"stage", stage, "0"},
       {"reduce_bucket_size", at(c.reduce_bucket_size, 1), "500000000"},
       {"allgather_bucket_size", at(c.allgather_bucket_size, 0), "500000000"},
       {"overlap_comm", at(o.overlap_comm), "null"},
       {"stage3_prefetch_bucket_size", at(o.prefetch_bucket_size, 0), "50000000", stage_3},
       {"stage3_param_persistence_threshold", threshold, "100000", preset},
       {"stage3_max_live_parameters", at(o.max_live_parameters, 0), "1000000000", stage_3},
       {"stage3_max_reuse_distance", at(o.max_reuse_distance, 0), "1000000000", stage_3},
       {"sub_group_size", at(c.swap.sub_group_size, 0), "1000000000", nvme},
       {"zero_hpz_partition_size", group(c.ranks_per_node), "1",
        selects(c, "zero3_hpz", has_groups)},
       {"zero_quantized_weights", at(c.zero_quantized_weights), "false", selects(c, "zero3_qwz")},
       {"zero_quantized_gradients", at(c.zero_quantized_gradients), "false",
        selects(c, "zero3_qgz")},
       {"cpu_offload", cpu_offload, "", sharded}});
  add(all, "zero_optimization.offload_optimizer",
      {{"device", one_of(c.offload_optimizer, devices), "\"none\"", sharded},
       {"nvme_path", at(c.nvme_path), "null", nvme},
       {"pipeline_read", at(c.swap.pipeline_read), "false", nvme},
       {"pipeline_write", at(c.swap.pipeline_write), "false", nvme}});
  add(all, "zero_optimization.offload_param",
      {{"device", one_of(c.offload_param, devices), "\"none\"", stage_3},
       {"nvme_path", at(c.param_nvme_path), "null", param_nvme}});
}

void add_reports(Keys& all, Config& c) {
  CommsLogger& log = c.comms_logger;
  const Effect listed = note_unless(!log.prof_all, "prof_all is true; write \"prof_all\": false");
  add(all, "comms_logger",
      {{"enabled", at(log.enabled), "false"},
       {"verbose", at(log.verbose), "false"},
       {"prof_all", at(log.prof_all), "true"},
       {"prof_ops", at(log.prof_ops), "[]", listed},
       {"debug", at(log.debug), "false"}});
  for (auto [block, m] :
       {std::pair{"csv_monitor", &c.csv_monitor}, {"tensorboard", &c.tensorboard}})
    add(all, block,
        {{"enabled", at(m->enabled), "false"},
         {"output_path", at(m->output_path), "null"},
         {"job_name", at(m->job_name), "\"DeepSpeedJobName\""}});
}

void add_ours(Keys& all, Config& c) {
  const Effect replicated =
      note_unless(c.replicated_micro_batches,
                  "ranks read different micro-batches, so none holds a copy to leave out; "
                  "zerolab.replicated_micro_batches gives all the same");
  add(all, "activation_checkpointing",
      {{"partition_activations", at(c.partition_activations), "false", replicated},
       {"cpu_checkpointing", at(c.cpu_checkpointing), "false"},
       {"number_checkpoints", at(c.checkpoints, 1), "null"}});
  const Effect in_order =
      error_unless(c.ordered || !c.reproducible,
                   "needs sums in rank order, and \"ordered\" is false; leave one of the two out");
  const Effect named = error_unless(c.data != "", "the name is empty");
  const std::string misfit = activations_misfit(c, 1);
  const Effect fitting = error_unless(misfit.empty(), misfit);
  Texts presets;
  for (const Preset& p : zl::presets()) presets.push_back(p.name);
  const ConfigMember model = one_of(
      gpt_names(), [&c](size_t i) { c.model = gpt_names()[i]; },
      [&c] { return json(c.model.value_or("small")); });
  const ConfigMember recompute = one_of(
      {"none", "selective", "full", "false", "true"},
      [&c](size_t i) { c.recompute = i == 4 ? Recompute::full : Recompute(i % 3); },
      [&c] { return json(name(c.recompute)); });
  add(all, "zerolab",
      {{"defaults", one_of(c.defaults, {"ours", "deepspeed"})},
       {"as", one_of(c.as, presets)},
       {"reproducible", at(c.reproducible), "", in_order},
       {"ordered", at(c.ordered)},
       {"replicas", group(c.replicas), "", selects(c, "hsdp")},
       {"separate_master", at(c.optimizer.separate_master)},
       {"no_weight_decay", at(c.optimizer.no_weight_decay)},
       {"recompute", recompute},
       {"replicated_micro_batches", at(c.replicated_micro_batches), "", fitting},
       {"model", model},
       {"data", at(c.data), "", named},
       {"seed", at(c.seed)},
       {"steps", at(c.steps, 1)}});
}

// Keys that never have an effect, with one reason each, then the blocks. A name that ends in a dot
// is the block of those behind it; the first are at the top level.
const std::pair<Effect, const char*> kUnused[] = {
    {{noted, kNone},
     "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
     "use_data_before_expert_parallelism seq_parallel_communication_data_type expert_parallel "
     "pipeline compile hybrid_engine weight_quantization timers disable_allgather aio log_level "
     "vocabulary_size memory_breakdown dump_state wandb comet autotuning flops_profiler checkpoint "
     "datastates_ckpt allgather_size fp32_allreduce allreduce_always_fp32 "
     "optimizer. legacy_fusion optimizer.params. fused foreach bf16. immediate_grad_update "
     "data_types. param_dtype buffer_dtype keep_in_fp32_modules fp16. auto_cast "
     "zero_optimization. use_multi_rank_bucket_allreduce memory_efficient_linear "
     "override_module_apply pipeline_loading_checkpoint log_trace_cache_warnings "
     "enable_sanity_checks save_muon_momentum_buffer_in_memory elastic_checkpoint "
     "stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential round_robin_gradients "
     "legacy_stage1 leaf_module zero_quantized_nontrainable_weights cpu_offload_use_pin_memory "
     "stage3_model_persistence_threshold stage3_module_granularity_threshold "
     "zero_optimization.offload_optimizer. super_offload cpuadam_cores_perc buffer_count fast_init "
     "zero_optimization.offload_param. buffer_count buffer_size max_in_cpu "
     "activation_checkpointing. contiguous_memory_optimization synchronize_checkpoint_boundary "
     "profile scheduler.params. last_batch_iteration "
     "torch_autocast. dtype lower_precision_safe_modules "
     "data_efficiency. seed data_sampling data_routing"},
    {{noted, "zerolab always works as if this were true", "true"},
     "zero_allow_untested_optimizer managed_gradient_accumulation "
     "zero_optimization. allgather_partitions reduce_scatter contiguous_gradients "
     "compute_grad_norm ignore_unused_parameters load_from_fp32_weights parameter_alignment"},
    {{noted, "host memory is pinned where there is a GPU, and pageable elsewhere", "true"},
     "zero_optimization.offload_optimizer. pin_memory zero_optimization.offload_param. pin_memory"},
    {{noted, "--out always writes full weights, in fp32"},
     "zero_optimization. stage3_gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save"},
    {{noted, "all of the optimizer state is offloaded", "1"},
     "zero_optimization.offload_optimizer. ratio"},
    {{noted, kDivided}, "prescale_gradients"},
    {{noted, kDivided, "1"}, "gradient_predivide_factor"},
    {{refused, "write \"gradient_clipping\" at the top level", "absent"},
     "optimizer.params. max_grad_norm"},
    {{refused, "the moments are fp32", "true"}, "optimizer.params. fp32_optimizer_states"},
    {{refused, kNone}, "optimizer.params. amsgrad maximize"},
    {{refused, "the master copy and the moments are fp32; write false"},
     "fp16. fp16_master_weights_and_grads "
     "bf16. bf16_master_weights_and_grads bf16_optimizer_states"},
    {{refused, "zerolab has no autocast; enable bf16 or fp16 instead"}, "torch_autocast. enabled"},
    {{refused, "gradients are averaged; write \"mean\", and multiply the learning rate or clip",
      "mean"},
     "gradient_allreduce_op"},
    {{refused, "ZenFlow changes results; leave it out", "absent"}, "zero_optimization. zenflow"},
    {{refused, "deprecated: write offload_param"}, "zero_optimization. cpu_offload_param"},
    {{refused, kNoTensor, "0"}, "tensor_parallel. autotp_size"},
    {{refused, kNoTensor, "1"}, "tensor_parallel.tp. tp_size"},
    {{noted, kNoTensor},
     "tensor_parallel. tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend "
     "injection_policy_tuple partition_config preset_model keep_module_on_host kernel_inject "
     "replace_with_kernel_inject tensor_parallel.tp. tp_grain_size mpu tp_group"},
    {{refused, "there is no sequence parallelism", "1"}, "sequence_parallel_size"},
    {{refused, "sequences are read in order, or shuffled with --shuffle; write \"enabled\": false"},
     "data_efficiency. enabled"},
    {{dead, kRemoved},
     "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
     "eigenvalue quantize_training compression_training sparse_attention nebula "
     "zero_optimization. mics_hierarchical_params_gather zeropp_loco_param grad_hooks"},
    {{dead, kRemoved, "-1"}, "zero_optimization. mics_shard_size"},
    {{dead, "it is a torch.dtype, which no file can hold"}, "tensor_parallel. dtype"},
    {{dead, "DeepSpeed removed Apex AMP; enable bf16 or fp16"}, "amp"},
    {{block},
     "data_types optimizer scheduler fp16 bf16 zero_optimization comms_logger csv_monitor "
     "tensorboard activation_checkpointing torch_autocast tensor_parallel data_efficiency zerolab "
     "optimizer. params scheduler. params zero_optimization. offload_optimizer offload_param "
     "tensor_parallel. tp"},
};

}  // namespace

std::vector<ConfigKey> config_keys(Config& c) {
  Keys all;
  for (const auto add_part : {add_update, add_precision, add_zero, add_reports, add_ours})
    add_part(all, c);
  const auto object = [](Value v) { return v.kind == Json::object ? "" : "an object"; };
  for (const auto& [effect, names] : kUnused) {
    const ConfigMember member = effect.use == block ? ConfigMember{object} : ConfigMember{};
    std::string around, name;
    for (std::istringstream in(names); in >> name;)
      if (name.ends_with('.'))
        around = name.substr(0, name.size() - 1);
      else
        all.push_back({.key = name, .member = member, .effect = effect, .block = around});
  }
  return all;
}

}  // namespace zl
