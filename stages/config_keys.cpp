#include "stages/config_keys.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace zl {
namespace {

constexpr char kHonoured[] = "";
constexpr char kPlain[] = " here: the value has no effect";
constexpr char kAlways[] = ": zerolab always works as if this were true";
constexpr char kFp32[] = ": this run computes in fp32";
constexpr char kNoOffload[] = ": everything stays in the device's memory";
constexpr char kNoPrefetch[] = ": a unit is gathered when it is needed and released at once";
constexpr char kNotHere[] = " here: zerolab has no such feature";
constexpr char kRecompute[] = " here: write \"zerolab\": {\"recompute\": true} to recompute activations";

constexpr ConfigKey kKeys[] = {
    {"", "train_batch_size", kHonoured},
    {"", "train_micro_batch_size_per_gpu", kHonoured},
    {"", "gradient_accumulation_steps", kHonoured},
    {"", "gradient_clipping", kHonoured},
    {"", "optimizer", kHonoured},
    {"", "scheduler", kHonoured},
    {"", "zero_optimization", kHonoured},
    {"", "zerolab", kHonoured},
    {"", "steps_per_print", kHonoured},
    {"", "fp16", kFp32},
    {"", "bf16", kFp32},
    {"", "bfloat16", kFp32},
    {"", "amp", kFp32},
    {"", "torch_autocast", kFp32},
    {"", "data_types", kFp32},
    {"", "communication_data_type", kFp32},
    {"", "seq_parallel_communication_data_type", kNotHere},
    {"", "prescale_gradients", ": gradients are added, then divided by the number of ranks"},
    {"", "gradient_predivide_factor", ": gradients are added, then divided by the number of ranks"},
    {"", "gradient_allreduce_op", ": gradients are averaged over the ranks"},
    {"", "managed_gradient_accumulation", ": the engine counts the micro-batches of a step"},
    {"", "disable_allgather", kPlain},
    {"", "sparse_gradients", kPlain},
    {"", "dump_state", kPlain},
    {"", "memory_breakdown", kPlain},
    {"", "wall_clock_breakdown", kHonoured},
    {"", "dataloader_drop_last", kPlain},
    {"", "comms_logger", kHonoured},
    {"", "activation_checkpointing", kRecompute},
    {"", "tensorboard", kPlain},
    {"", "wandb", kPlain},
    {"", "comet", kPlain},
    {"", "csv_monitor", kHonoured},
    {"", "flops_profiler", kPlain},
    {"", "checkpoint", kPlain},
    {"", "aio", kNoOffload},
    {"", "zero_allow_untested_optimizer", ": every optimizer may be used with every stage"},
    {"", "zero_force_ds_cpu_optimizer", kPlain},
    {"", "vocabulary_size", ": the vocabulary is the model's"},
    {"", "check_overflow", kPlain},
    {"", "disable_python_gc", kNotHere},
    {"", "log_level", kPlain},
    {"", "autotuning", kNotHere},
    {"", "elasticity", kNotHere},
    {"", "data_efficiency", kNotHere},
    {"", "curriculum_learning", kNotHere},
    {"", "progressive_layer_drop", kNotHere},
    {"", "eigenvalue", kNotHere},
    {"", "quantize_training", kNotHere},
    {"", "weight_quantization", kNotHere},
    {"", "compression_training", kNotHere},
    {"", "sparse_attention", kNotHere},
    {"", "pipeline", kNotHere},
    {"", "tensor_parallel", kNotHere},
    {"", "hybrid_engine", kNotHere},
    {"", "compile", kNotHere},
    {"", "use_data_before_expert_parallelism", kNotHere},
    {"", "data_parallel_group", kNotHere},

    {"optimizer", "type", kHonoured},
    {"optimizer", "params", kHonoured},
    {"optimizer", "legacy_fusion", kPlain},
    {"optimizer.params", "lr", kHonoured},
    {"optimizer.params", "betas", kHonoured},
    {"optimizer.params", "eps", kHonoured},
    {"optimizer.params", "weight_decay", kHonoured},
    {"optimizer.params", "bias_correction", kHonoured},
    {"optimizer.params", "adam_w_mode", kHonoured},
    {"optimizer.params", "momentum", kHonoured},
    {"optimizer.params", "dampening", kHonoured},
    {"optimizer.params", "nesterov", kHonoured},
    {"optimizer.params", "max_grad_norm", kHonoured},
    {"optimizer.params", "torch_adam", " here: there is one implementation of AdamW"},
    {"optimizer.params", "amsgrad", kNotHere},
    {"optimizer.params", "fused", kPlain},
    {"optimizer.params", "foreach", kPlain},

    {"scheduler", "type", kHonoured},
    {"scheduler", "params", kHonoured},
    {"scheduler.params", "warmup_min_lr", kHonoured},
    {"scheduler.params", "warmup_max_lr", kHonoured},
    {"scheduler.params", "warmup_num_steps", kHonoured},
    {"scheduler.params", "warmup_type", kHonoured},
    {"scheduler.params", "total_num_steps", kHonoured},
    {"scheduler.params", "warmup_min_ratio", kHonoured},
    {"scheduler.params", "cos_min_ratio", kHonoured},
    {"scheduler.params", "last_batch_iteration", ": a run starts at its first step"},

    {"comms_logger", "enabled", kHonoured},
    {"comms_logger", "verbose", kHonoured},
    {"comms_logger", "prof_all", kHonoured},
    {"comms_logger", "prof_ops", kHonoured},
    {"comms_logger", "debug", kHonoured},
    {"csv_monitor", "enabled", kHonoured},
    {"csv_monitor", "output_path", kHonoured},
    {"csv_monitor", "job_name", kHonoured},

    {"zero_optimization", "stage", kHonoured},
    {"zero_optimization", "reduce_bucket_size", kHonoured},
    {"zero_optimization", "allgather_bucket_size", kHonoured},
    {"zero_optimization", "allgather_partitions", kAlways},
    {"zero_optimization", "reduce_scatter", kAlways},
    {"zero_optimization", "contiguous_gradients", kAlways},
    {"zero_optimization", "overlap_comm", ": communication and computation take turns, with the same results"},
    {"zero_optimization", "offload_optimizer", kNoOffload},
    {"zero_optimization", "offload_param", kNoOffload},
    {"zero_optimization", "cpu_offload", kNoOffload},
    {"zero_optimization", "cpu_offload_param", kNoOffload},
    {"zero_optimization", "cpu_offload_use_pin_memory", kNoOffload},
    {"zero_optimization", "stage3_prefetch_bucket_size", kNoPrefetch},
    {"zero_optimization", "prefetch_bucket_size", kNoPrefetch},
    {"zero_optimization", "stage3_param_persistence_threshold", kNoPrefetch},
    {"zero_optimization", "param_persistence_threshold", kNoPrefetch},
    {"zero_optimization", "stage3_model_persistence_threshold", kNoPrefetch},
    {"zero_optimization", "model_persistence_threshold", kNoPrefetch},
    {"zero_optimization", "stage3_max_live_parameters", kNoPrefetch},
    {"zero_optimization", "max_live_parameters", kNoPrefetch},
    {"zero_optimization", "stage3_max_reuse_distance", kNoPrefetch},
    {"zero_optimization", "max_reuse_distance", kNoPrefetch},
    {"zero_optimization", "stage3_module_granularity_threshold", kPlain},
    {"zero_optimization", "module_granularity_threshold", kPlain},
    {"zero_optimization", "stage3_use_all_reduce_for_fetch_params", kPlain},
    {"zero_optimization", "use_all_reduce_for_fetch_params", kPlain},
    {"zero_optimization", "stage3_allgather_sequential", kPlain},
    {"zero_optimization", "allgather_sequential", kPlain},
    {"zero_optimization", "stage3_gather_16bit_weights_on_model_save", kPlain},
    {"zero_optimization", "gather_16bit_weights_on_model_save", kPlain},
    {"zero_optimization", "stage3_gather_fp16_weights_on_model_save", kPlain},
    {"zero_optimization", "sub_group_size", kPlain},
    {"zero_optimization", "use_multi_rank_bucket_allreduce", kPlain},
    {"zero_optimization", "compute_grad_norm", kAlways},
    {"zero_optimization", "load_from_fp32_weights", kPlain},
    {"zero_optimization", "ignore_unused_parameters", kAlways},
    {"zero_optimization", "memory_efficient_linear", kPlain},
    {"zero_optimization", "override_module_apply", kPlain},
    {"zero_optimization", "round_robin_gradients", kPlain},
    {"zero_optimization", "parameter_alignment", ": every parameter starts at a multiple of 16 elements"},
    {"zero_optimization", "elastic_checkpoint", kPlain},
    {"zero_optimization", "legacy_stage1", kPlain},
    {"zero_optimization", "pipeline_loading_checkpoint", kPlain},
    {"zero_optimization", "log_trace_cache_warnings", kPlain},
    {"zero_optimization", "enable_sanity_checks", kPlain},
    {"zero_optimization", "save_muon_momentum_buffer_in_memory", kNotHere},
    {"zero_optimization", "zero_hpz_partition_size", kNotHere},
    {"zero_optimization", "zero_quantized_weights", kNotHere},
    {"zero_optimization", "zero_quantized_nontrainable_weights", kNotHere},
    {"zero_optimization", "zero_quantized_gradients", kNotHere},
    {"zero_optimization", "zeropp_loco_param", kNotHere},
    {"zero_optimization", "mics_shard_size", kNotHere},
    {"zero_optimization", "mics_hierarchical_params_gather", kNotHere},
    {"zero_optimization", "leaf_module", kNotHere},
    {"zero_optimization", "zenflow", kNotHere},

    {"zerolab", "defaults", kHonoured},
    {"zerolab", "reproducible", kHonoured},
    {"zerolab", "ordered", kHonoured},
    {"zerolab", "separate_master", kHonoured},
    {"zerolab", "no_weight_decay", kHonoured},
    {"zerolab", "recompute", kHonoured},
    {"zerolab", "model", kHonoured},
    {"zerolab", "data", kHonoured},
    {"zerolab", "seed", kHonoured},
    {"zerolab", "steps", kHonoured},
};

// Levenshtein 1966: insertions, deletions and replacements.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// Keeps the nearest of the names it is shown.
struct Nearest {
  std::string_view wanted;
  size_t distance = 3;  // one more than counts
  std::string name;

  void show(std::string_view candidate) {
    const size_t longer = std::max(wanted.size(), candidate.size());
    if (longer - std::min(wanted.size(), candidate.size()) >= distance) return;
    if (const size_t d = edits(wanted, candidate); d < distance && 2 * d < longer) {
      distance = d;
      name = candidate;
    }
  }
};

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

const ConfigKey* find_config_key(std::string_view block, std::string_view key) {
  for (const ConfigKey& k : kKeys) {
    if (block == k.block && key == k.key) return &k;
  }
  return nullptr;
}

std::string nearest_config_key(std::string_view block, std::string_view key) {
  Nearest nearest{key};
  for (const ConfigKey& k : kKeys) {
    if (block == k.block) nearest.show(k.key);
  }
  if (!nearest.name.empty()) return nearest.name;
  for (const ConfigKey& k : kKeys) {
    if (key == k.key && k.note[0] == '\0') return k.block[0] == '\0' ? k.key : std::string(k.block) + "." + k.key;
  }
  return "";
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  Nearest nearest{name};
  for (const std::string& n : names) nearest.show(n);
  return nearest.name;
}

}  // namespace zl
