// Keys that never have an effect, and why.

#include <sstream>

#include "stages/deepspeed/keys.h"

namespace zl {
namespace {

constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";
constexpr bool noted = false, refused = true;

const struct {
  bool refused;
  const char *reason, *names;  // as in keys_of()
} kNever[] = {
    {noted, kNone,
     "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
     "use_data_before_expert_parallelism seq_parallel_communication_data_type expert_parallel "
     "pipeline compile hybrid_engine weight_quantization timers disable_allgather aio log_level "
     "vocabulary_size memory_breakdown dump_state wandb comet autotuning flops_profiler "
     "checkpoint datastates_ckpt allgather_size fp32_allreduce allreduce_always_fp32 optimizer. "
     "legacy_fusion optimizer.params. fused foreach bf16. immediate_grad_update fp16. auto_cast "
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
    {noted, "ranks read different micro-batches, so none holds a copy to leave out",
     "activation_checkpointing. partition_activations"},
    {noted, kNoTensor,
     "tensor_parallel. tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend "
     "injection_policy_tuple partition_config preset_model keep_module_on_host kernel_inject "
     "replace_with_kernel_inject tensor_parallel.tp. tp_grain_size mpu tp_group"},
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

}  // namespace

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

std::vector<ConfigKey> keys_without_effect() {
  std::vector<ConfigKey> all;
  for (const auto& [refused, reason, names] : kNever)
    for (ConfigKey& key : keys_of(names)) {
      key.unused = {reason, refused};
      all.push_back(std::move(key));
    }
  return all;
}

}  // namespace zl
