// Why a key has no effect: in this run, or ever.

#include <sstream>

#include "stages/deepspeed/keys.h"
#include "stages/stage_file.h"

namespace zl {
namespace {

constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";
constexpr bool noted = false, refused = true;

using Unused = std::vector<UnusedKeys>;

Unused refused_of_updates(const Config& c) {
  using enum ScheduleKind;
  using enum OptimizerKind;
  const OptimizerConfig& o = c.optimizer;
  const ScheduleKind s = c.schedule.kind;
  const bool fp16 = c.precision == Dtype::f16, decays = s == warmup_decay;
  const double scale = c.loss_scale.static_scale;
  const Dtype sums = c.grad_accum_dtype.value_or(Dtype::f32);
  // DeepSpeed passes parameters on to the class of the type, which knows only its own.
  const std::string other = "is no parameter of this type (DeepSpeed refuses it); leave it out",
                    adds = "zerolab.reproducible adds in fp32; leave it out or write \"fp32\"";
  return {
      {refused, other, "optimizer.params. betas eps bias_correction adam_w_mode torch_adam",
       o.kind == adamw},
      {refused, other, "optimizer.params. momentum dampening nesterov", o.kind == sgd},
      {refused, other, "scheduler.params. warmup_num_steps warmup_type", s != constant},
      {refused, other, "scheduler.params. warmup_min_lr warmup_max_lr", s == warmup || decays},
      {refused, other, "scheduler.params. warmup_min_ratio cos_min_ratio", s == warmup_cosine},
      {refused, other, "scheduler.params. total_num_steps", s == warmup_cosine || decays},
      {refused,
       str("Nesterov momentum requires a momentum and zero dampening; momentum is ", o.momentum,
           " and dampening ", o.dampening),
       "optimizer.params. nesterov", !o.nesterov || (o.momentum != 0 && o.dampening == 0)},
      // bf16 keeps 8 significant bits of a sum and fp16 11, but reproducible sums need fp32's 24.
      {refused, adds, "communication_data_type",
       !c.reproducible || c.communication_data_type.value_or(Dtype::f32) == Dtype::f32},
      {refused, adds, "data_types. grad_accum_dtype", !c.reproducible || sums == Dtype::f32},
      {refused, "is neither fp32 nor the type of this run's gradients",
       "data_types. grad_accum_dtype", sums == Dtype::f32 || sums == c.precision},
      // The scale and its reciprocal must be normal fp32 numbers.
      {refused, str("expected 0 or a number from 2^-126 to 2^126, not ", scale), "fp16. loss_scale",
       scale == 0 || (scale >= 0x1p-126 && scale <= 0x1p126)},
      {refused, "must be at least 1 where losses are scaled", "fp16. min_loss_scale",
       !fp16 || c.loss_scale.min_scale >= 1}};
}

Unused refused_of_memory(const Config& c) {
  using enum OffloadDevice;
  const std::string misfit = activations_misfit(c, 1),
                    folder = "nvme needs nvme_path: the folder in which the file is made";
  return {
      {refused, folder, "zero_optimization.offload_optimizer. device",
       c.offload_optimizer != nvme || !c.nvme_path.empty()},
      {refused, folder, "zero_optimization.offload_param. device",
       c.offload_param != nvme || !c.nvme_path.empty()},
      {refused, "leave it out: zero3_qwz quantizes its parameter shard on the device",
       "zero_optimization.offload_param. device",
       c.offload_param == none || c.stage != StageKind("zero3_qwz")},
      {refused,
       str("is ", c.param_nvme_path, ", but offload_optimizer's is ", c.nvme_path,
           ": a rank makes one file; write the same"),
       "zero_optimization.offload_param. nvme_path",
       c.offload_param != nvme || c.param_nvme_path == c.nvme_path},
      {refused, "needs sums in rank order, and \"ordered\" is false; leave one of the two out",
       "zerolab. reproducible", c.ordered || !c.reproducible},
      {refused, "activation_checkpointing needs \"full\"; write that, or leave one of the two out",
       "zerolab. recompute", c.recompute == Recompute::full || !needs_full_recompute(c)},
      {refused, misfit, "zerolab. replicated_micro_batches", misfit.empty()},
      {refused, "the name is empty", "zerolab. data", c.data != ""}};
}

Unused noted_in(const Config& c) {
  const bool fp16 = c.precision == Dtype::f16;
  const std::string disk = "it is for the device nvme";
  // A key that makes stage 3 a variant.
  const auto selects = [&](const char* variant, const char* key, bool is_used = false) {
    return UnusedKeys{
        noted,
        str("it chooses ", variant,
            " only where one run has stage 3 and neither --stage nor \"as\" is given"),
        key, is_used || c.stage == StageKind(variant)};
  };
  return {
      // Many files have these keys while fp16 is off; that needs no note.
      {noted, "it is for fp16 with a dynamic loss scale",
       "fp16. initial_scale_power loss_scale_window hysteresis consecutive_hysteresis "
       "min_loss_scale",
       !fp16 || c.loss_scale.static_scale == 0},
      {noted, "it is for stage 3",
       "zero_optimization. stage3_prefetch_bucket_size stage3_max_live_parameters "
       "stage3_max_reuse_distance zero_optimization.offload_param. device",
       shards_parameter(c.stage)},
      {noted, "ddp offloads nothing", "zero_optimization.offload_optimizer. device",
       shards_optimizer(c.stage)},
      {noted, disk,
       "zero_optimization. sub_group_size zero_optimization.offload_optimizer. nvme_path "
       "pipeline_read pipeline_write",
       c.offload_optimizer == OffloadDevice::nvme},
      {noted, disk, "zero_optimization.offload_param. nvme_path",
       c.offload_param == OffloadDevice::nvme},
      selects("zero3_hpz", "zero_optimization. zero_hpz_partition_size",
              file_of(c.stage).groups != VariantGroups::none),
      selects("zero3_qwz", "zero_optimization. zero_quantized_weights"),
      selects("zero3_qgz", "zero_optimization. zero_quantized_gradients"),
      selects("hsdp", "zerolab. replicas"),
      {noted,
       "every parameter is sharded; only what compare and plan predict of \"deepspeed-3\" uses it",
       "zero_optimization. stage3_param_persistence_threshold", c.as == "deepspeed-3"},
      {noted,
       "ranks read different micro-batches, so none holds a copy to leave out; "
       "zerolab.replicated_micro_batches gives all the same",
       "activation_checkpointing. partition_activations", c.replicated_micro_batches}};
}

Unused never_noted() {
  return {
      {noted, kNone,
       "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
       "use_data_before_expert_parallelism seq_parallel_communication_data_type expert_parallel "
       "pipeline compile hybrid_engine weight_quantization timers disable_allgather aio log_level "
       "vocabulary_size memory_breakdown dump_state wandb comet autotuning flops_profiler "
       "checkpoint "
       "datastates_ckpt allgather_size fp32_allreduce allreduce_always_fp32 optimizer. "
       "legacy_fusion "
       "optimizer.params. fused foreach bf16. immediate_grad_update fp16. auto_cast "
       "data_types. param_dtype buffer_dtype keep_in_fp32_modules scheduler.params. "
       "last_batch_iteration zero_optimization. use_multi_rank_bucket_allreduce "
       "memory_efficient_linear override_module_apply pipeline_loading_checkpoint legacy_stage1 "
       "log_trace_cache_warnings enable_sanity_checks save_muon_momentum_buffer_in_memory "
       "elastic_checkpoint stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential "
       "round_robin_gradients leaf_module zero_quantized_nontrainable_weights "
       "cpu_offload_use_pin_memory stage3_model_persistence_threshold "
       "stage3_module_granularity_threshold zero_optimization.offload_optimizer. super_offload "
       "cpuadam_cores_perc buffer_count fast_init zero_optimization.offload_param. buffer_count "
       "buffer_size max_in_cpu activation_checkpointing. contiguous_memory_optimization "
       "synchronize_checkpoint_boundary profile torch_autocast. dtype lower_precision_safe_modules "
       "data_efficiency. seed data_sampling data_routing"},
      {noted, "zerolab always works as if this were true",
       "zero_allow_untested_optimizer=true managed_gradient_accumulation=true zero_optimization. "
       "allgather_partitions=true reduce_scatter=true contiguous_gradients=true "
       "compute_grad_norm=true ignore_unused_parameters=true load_from_fp32_weights=true "
       "parameter_alignment=true"},
      {noted, "host memory is pinned where there is a GPU, and pageable elsewhere",
       "zero_optimization.offload_optimizer. pin_memory=true zero_optimization.offload_param. "
       "pin_memory=true"},
      {noted, "--trace FILE has the time of each phase and collective",
       "wall_clock_breakdown comms_logger. enabled verbose prof_all=true prof_ops debug"},
      {noted, "progress says how a run goes", "steps_per_print"},
      {noted, "--out always writes full weights, in fp32",
       "zero_optimization. stage3_gather_16bit_weights_on_model_save "
       "stage3_gather_fp16_weights_on_model_save"},
      {noted, "all of the optimizer state is offloaded",
       "zero_optimization.offload_optimizer. ratio=1"},
      {noted, "gradients are added, then divided by the number of ranks; only rounding differs",
       "prescale_gradients gradient_predivide_factor=1"},
      {noted, kNoTensor,
       "tensor_parallel. tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend "
       "injection_policy_tuple partition_config preset_model keep_module_on_host kernel_inject "
       "replace_with_kernel_inject tensor_parallel.tp. tp_grain_size mpu tp_group"}};
}

Unused never_honoured() {
  return {
      {refused, kNoTensor, "tensor_parallel. autotp_size=0 tensor_parallel.tp. tp_size=1"},
      {refused, "there is no sequence parallelism", "sequence_parallel_size=1"},
      {refused, kNone, "optimizer.params. amsgrad maximize"},
      {refused, "write \"gradient_clipping\" at the top level",
       "optimizer.params. max_grad_norm=absent"},
      {refused, "the master copy and the moments are fp32; leave it out",
       "fp16. fp16_master_weights_and_grads bf16. bf16_master_weights_and_grads "
       "bf16_optimizer_states optimizer.params. fp32_optimizer_states=true"},
      {refused, "zerolab has no autocast; enable bf16 or fp16 instead", "torch_autocast. enabled"},
      {refused, "gradients are averaged; write \"mean\", and multiply the learning rate or clip",
       "gradient_allreduce_op=mean"},
      {refused, "ZenFlow changes results; leave it out", "zero_optimization. zenflow=absent"},
      {refused, "deprecated: write offload_param", "zero_optimization. cpu_offload_param"},
      {refused, "sequences are read in order, or shuffled with --shuffle; write \"enabled\": false",
       "data_efficiency. enabled"},
      {refused, "DeepSpeed 0.19.8 refuses this key, whose feature it removed; leave it out",
       "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
       "eigenvalue quantize_training compression_training sparse_attention nebula amp "
       "zero_optimization. mics_hierarchical_params_gather zeropp_loco_param grad_hooks "
       "mics_shard_size=-1 tensor_parallel. dtype=absent"}};
}

Unused joined(Unused all, const Unused& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::vector<UnusedKeys> unused_in(const Config& c) {
  return joined(joined(refused_of_updates(c), refused_of_memory(c)), noted_in(c));
}

const std::vector<UnusedKeys>& never_used() {
  static const Unused all = joined(never_noted(), never_honoured());
  return all;
}

std::vector<ConfigKey> keys_of(const std::string& names) {
  std::vector<ConfigKey> all;
  std::istringstream in(names);
  for (std::string block, word; in >> word;) {
    const size_t equals = word.find('=');
    if (word.back() == '.')
      block = word.substr(0, word.size() - 1);
    else
      all.push_back({.key = word.substr(0, equals),
                     .block = block,
                     .always = equals == word.npos ? "" : word.substr(equals + 1)});
  }
  return all;
}

}  // namespace zl
