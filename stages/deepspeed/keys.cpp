// The keys that never have an effect, and why. What is printed about keys: suggestions, and the
// values of one configuration.

#include "stages/deepspeed/keys.h"

#include <algorithm>
#include <sstream>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kAlways[] = "zerolab always works as if this were ";  // then the value
constexpr bool noted = false, refused = true;

// Words that end with a dot are the block of those behind them; "key=value" has ConfigKey::always.
const struct {
  bool refused;
  const char *reason, *names;
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
     "data_efficiency. seed data_sampling data_routing tensor_parallel. tp_overlap_comm "
     "vocab_parallel_lm_head vocab_parallel_ce_backend injection_policy_tuple partition_config "
     "preset_model keep_module_on_host kernel_inject replace_with_kernel_inject "
     "tensor_parallel.tp. tp_grain_size mpu tp_group"},
    {noted, kAlways,
     "zero_allow_untested_optimizer=true managed_gradient_accumulation=true zero_optimization. "
     "allgather_partitions=true reduce_scatter=true contiguous_gradients=true "
     "compute_grad_norm=true ignore_unused_parameters=true load_from_fp32_weights=true "
     "parameter_alignment=true activation_checkpointing. partition_activations=false "
     "zero_optimization.offload_optimizer. ratio=1"},
    {noted, "host memory is pinned where there is a GPU, and pageable elsewhere",
     "zero_optimization.offload_optimizer. pin_memory=true zero_optimization.offload_param. "
     "pin_memory=true"},
    {noted, "gradients are added, then divided by the number of ranks; only rounding differs",
     "prescale_gradients gradient_predivide_factor=1"},
    {noted, "--trace FILE has the time of each phase and collective",
     "wall_clock_breakdown comms_logger. enabled verbose prof_all=true prof_ops debug"},
    {noted, "progress says how a run goes", "steps_per_print"},
    {noted, "--out always writes full weights, in fp32",
     "zero_optimization. stage3_gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save"},
    {refused, "gradients are averaged; write \"mean\", and multiply the learning rate or clip",
     "gradient_allreduce_op=mean"},
    {refused, kAlways,
     "tensor_parallel. autotp_size=0 tensor_parallel.tp. tp_size=1 . "
     "sequence_parallel_size=1 data_efficiency. enabled=false optimizer.params. amsgrad=false "
     "maximize=false fp16. fp16_master_weights_and_grads=false bf16. "
     "bf16_master_weights_and_grads=false bf16_optimizer_states=false optimizer.params. "
     "fp32_optimizer_states=true zero_optimization. zenflow=absent"},
    {refused, "write \"gradient_clipping\" at the top level",
     "optimizer.params. max_grad_norm=absent"},
    {refused, "zerolab has no autocast; enable bf16 or fp16 instead", "torch_autocast. enabled"},
    {refused, "deprecated: write offload_param", "zero_optimization. cpu_offload_param"},
    {refused, "DeepSpeed 0.19.8 refuses this key, whose feature it removed; leave it out",
     "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
     "eigenvalue quantize_training compression_training sparse_attention nebula amp "
     "zero_optimization. mics_hierarchical_params_gather zeropp_loco_param grad_hooks "
     "mics_shard_size=-1 tensor_parallel. dtype=absent"}};

// The insertions, deletions, replacements and swaps of neighbours (Damerau 1964) that make one text
// of the other. If these are more than `most`, any number above that.
size_t edits(std::string_view a, std::string_view b, size_t most) {
  while (!a.empty() && !b.empty() && a[0] == b[0]) a.remove_prefix(1), b.remove_prefix(1);
  if (most == 0 || a.empty() || b.empty()) return std::max(a.size(), b.size());
  const auto rest = [&](size_t of_a, size_t of_b) {
    return 1 + edits(a.substr(of_a), b.substr(of_b), most - 1);
  };
  const bool swap = a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0];
  return std::min({rest(1, 0), rest(0, 1), rest(1, 1), swap ? rest(2, 2) : most + 1});
}

}  // namespace

void add_keys_without_effect(std::vector<ConfigKey>& all) {
  for (const auto& [is_refused, why, names] : kNever) {
    std::istringstream in(names);
    for (std::string block, word; in >> word;) {
      const size_t end = std::min(word.find('='), word.size());
      const std::string always = word.substr(std::min(end + 1, word.size()));
      const Unused unused{why == kAlways ? why + always : why, is_refused};
      if (word.back() == '.')
        block = word.substr(0, word.size() - 1);
      else
        all.push_back({word.substr(0, end), {}, "", unused, block, always});
    }
  }
}

const ConfigKey* find_key(const std::vector<ConfigKey>& keys, std::string_view block,
                          std::string_view key) {
  for (const ConfigKey& k : keys)
    if (k.block == block && k.key == key) return &k;
  return nullptr;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  size_t least = 4;
  std::string nearest;
  for (const std::string& other : names) {
    size_t n = edits(name, other, 2);
    if (n > 2 || 2 * n >= std::max(name.size(), other.size()))
      n = name.size() > 3 && other.starts_with(name) ? 3 : 4;
    if (n < least) least = n, nearest = other;
  }
  return nearest;
}

std::vector<ConfigValue> effective_values(const LoadedConfig& loaded) {
  Config config = loaded.config, defaults;
  const std::vector<ConfigKey> keys = config_keys(config), ours = config_keys(defaults);
  std::vector<ConfigValue> all;
  std::string off = "none";  // the block that "enabled", its first key, switches off
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (!key.member.show || key.unused.refused || key.block == off) continue;
    ConfigValue v{key.path(), key.value(), "default", ours[i].value(), key.deepspeed};
    v.differ = !v.deepspeed.empty() && v.deepspeed != v.ours;
    if (v.differ && config.defaults == "deepspeed")
      v.origin += ": zerolab.defaults is \"deepspeed\"";
    if (loaded.origins.contains(v.key)) v.origin = loaded.origins.at(v.key);
    if (loaded.automatic.contains(v.key))
      v.origin = str("auto in ", loaded.automatic.at(v.key), ": ", v.origin);
    if (key.key == "enabled" && v.value == "false") off = key.block;
    all.push_back(v);
  }
  return all;
}

}  // namespace zl
