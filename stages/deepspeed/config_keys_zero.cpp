// Keys of ZeRO: the block "zero_optimization", what it contains, and "aio", which people look for
// inside it.

#include "stages/deepspeed/config_keys.h"

namespace zl {
namespace {

using enum ConfigUse;

constexpr char kZero[] = "zero_optimization", kOptimizer[] = "zero_optimization.offload_optimizer",
               kParam[] = "zero_optimization.offload_param";
constexpr char kLeaf[] = "zero_optimization.leaf_module";
constexpr char kAtLeast0[] = "Input should be greater than or equal to 0",
               kAbove0[] = "Input should be greater than 0";
constexpr char kAtMost1[] = "Input should be less than or equal to 1";
constexpr char kAlways[] = "zerolab always works as if this were true";
constexpr char kNoPrefetch[] = "a unit is gathered when it is needed and released after its use";
constexpr char kNoPersistence[] = "every parameter is partitioned, whatever its size";
constexpr char kNoDisk[] = "nothing is kept on disk";
constexpr char kNoParameters[] = "parameters stay in the device's memory";
constexpr char kZeroPlus[] = "parameters and gradients travel as they are stored (no ZeRO++)";

constexpr ConfigKey kKeys[] = {
    {"", "zero_optimization", an_object(), "", "", honoured,
     "see below; true is DeepSpeed's old way to write stage 1"},
    {kZero, "stage", a_whole(0, 3), "0", "0", honoured,
     "0: ddp, 1: optimizer state, 2: and gradients, 3: and parameters are partitioned",
     "stage Input should be 0, 1, 2, 3 or 3"},
    {kZero, "reduce_bucket_size", a_whole(1), "500000000", "1", honoured,
     "elements that are reduced together; 1: each unit by itself", kAbove0},
    {kZero, "allgather_bucket_size", a_whole(0), "500000000", "1", honoured,
     "elements that are gathered together; 0 or 1: each unit by itself", kAtLeast0},
    {kZero, "offload_optimizer", or_null(an_object()), "null", "null", honoured, "see below"},
    {kZero, "overlap_comm", or_null(a_boolean()), "null", "false", later,
     "communication and computation take turns, with the same results"},
    {kZero, "offload_param", or_null(an_object()), "null", "null", later, kNoParameters},
    {kZero, "allgather_partitions", a_boolean(), "true", "true", noted, kAlways},
    {kZero, "reduce_scatter", a_boolean(), "true", "true", noted, kAlways},
    {kZero, "contiguous_gradients", a_boolean(), "true", "true", noted, kAlways},
    {kZero, "compute_grad_norm", a_boolean(), "true", "true", noted, kAlways},
    {kZero, "ignore_unused_parameters", a_boolean(), "true", "true", noted, kAlways},
    {kZero, "stage3_prefetch_bucket_size", a_whole(0), "50000000", "0", later, kNoPrefetch,
     kAtLeast0},
    {kZero, "prefetch_bucket_size", a_whole(0), "50000000", "0", later, kNoPrefetch, kAtLeast0},
    {kZero, "stage3_param_persistence_threshold", a_whole(0), "100000", "0", later, kNoPersistence,
     kAtLeast0},
    {kZero, "param_persistence_threshold", a_whole(0), "100000", "0", later, kNoPersistence,
     kAtLeast0},
    {kZero, "stage3_model_persistence_threshold", a_whole(0), "9223372036854775807", "0", later,
     kNoPersistence, kAtLeast0},
    {kZero, "model_persistence_threshold", a_whole(0), "9223372036854775807", "0", later,
     kNoPersistence, kAtLeast0},
    {kZero, "stage3_max_live_parameters", a_whole(0), "1000000000", "", later, kNoPrefetch,
     kAtLeast0},
    {kZero, "max_live_parameters", a_whole(0), "1000000000", "", later, kNoPrefetch, kAtLeast0},
    {kZero, "stage3_max_reuse_distance", a_whole(0), "1000000000", "0", later, kNoPrefetch,
     kAtLeast0},
    {kZero, "max_reuse_distance", a_whole(0), "1000000000", "0", later, kNoPrefetch, kAtLeast0},
    {kZero, "sub_group_size", a_whole(0), "1000000000", "", noted,
     "an update takes one unit's shard at a time", kAtLeast0},
    {kZero, "stage3_gather_16bit_weights_on_model_save", a_boolean(), "false", "", noted,
     "--out always writes whole weights, in fp32"},
    {kZero, "gather_16bit_weights_on_model_save", a_boolean(), "false", "", noted,
     "--out always writes whole weights, in fp32"},
    {kZero, "stage3_gather_fp16_weights_on_model_save", a_boolean(), "false", "", noted,
     "--out always writes whole weights, in fp32 (DeepSpeed: Config parameter "
     "stage3_gather_fp16_weights_on_model_save is "
     "deprecated use "
     "gather_16bit_weights_on_model_save instead)"},
    {kZero, "stage3_module_granularity_threshold", any_whole(), "0", "0", noted,
     "a unit is a block of the model"},
    {kZero, "module_granularity_threshold", any_whole(), "0", "0", noted,
     "a unit is a block of the model"},
    {kZero, "stage3_use_all_reduce_for_fetch_params", a_boolean(), "false", "false", noted,
     "parameters are gathered by an all-gather"},
    {kZero, "use_all_reduce_for_fetch_params", a_boolean(), "false", "false", noted,
     "parameters are gathered by an all-gather"},
    {kZero, "stage3_allgather_sequential", a_boolean(), "false", "false", noted,
     "a unit is gathered whole"},
    {kZero, "allgather_sequential", a_boolean(), "false", "false", noted,
     "a unit is gathered whole"},
    {kZero, "round_robin_gradients", a_boolean(), "false", "false", noted,
     "each rank's gradient shard is one range of each unit"},
    {kZero, "use_multi_rank_bucket_allreduce", a_boolean(), "true", "", noted,
     "gradients are reduced by one reduce-scatter"},
    {kZero, "parameter_alignment", a_boolean(), "false", "true", noted,
     "every parameter starts at a multiple of 16 elements"},
    {kZero, "load_from_fp32_weights", a_boolean(), "true", "true", noted,
     "weights are read in the file's own precision"},
    {kZero, "memory_efficient_linear", a_boolean(), "true", "", noted,
     "a linear layer keeps its input and nothing else"},
    {kZero, "override_module_apply", a_boolean(), "true", "", noted,
     "there is no module to override"},
    {kZero, "pipeline_loading_checkpoint", a_boolean(), "false", "", noted,
     "weights are read tensor by tensor"},
    {kZero, "log_trace_cache_warnings", a_boolean(), "false", "", noted, "there is no trace cache"},
    {kZero, "enable_sanity_checks", a_boolean(), "false", "", noted,
     "checks that cost little are always made"},
    {kZero, "elastic_checkpoint", a_boolean(), "false", "false", noted,
     "weights are written whole"},
    {kZero, "save_muon_momentum_buffer_in_memory", a_boolean(), "false", "", noted,
     "there is no Muon"},
    {kZero, "zero_hpz_partition_size", a_whole(0), "1", "1", later, kZeroPlus, kAtLeast0},
    {kZero, "zero_quantized_weights", a_boolean(), "false", "false", later, kZeroPlus},
    {kZero, "zero_quantized_nontrainable_weights", a_boolean(), "false", "false", later, kZeroPlus},
    {kZero, "zero_quantized_gradients", a_boolean(), "false", "false", later, kZeroPlus},
    {kZero, "leaf_module", an_object(), "", "", noted, "a unit is a block of the model"},
    {kZero, "zenflow", or_null(an_object()), "null", "null", noted,
     "an update waits for all gradients"},
    {kZero, "cpu_offload", or_null(a_boolean()), "null", "false", honoured,
     "deprecated: write offload_optimizer"},
    {kZero, "cpu_offload_param", or_null(a_boolean()), "null", "", later,
     "parameters stay in the device's memory; deprecated: write offload_param"},
    {kZero, "cpu_offload_use_pin_memory", or_null(a_boolean()), "null", "", noted,
     "memory is pinned where there is a GPU; deprecated: write pin_memory in offload_optimizer"},
    {kZero, "legacy_stage1", a_boolean(), "false", "false", dead,
     "the old ZeRO stage 1 is gone since 0.5.9"},
    {kZero, "grad_hooks", a_boolean(), "", "", dead,
     "documented, but never a key of its class (DeepSpeed: Extra inputs are not permitted)"},
    {kZero, "mics_shard_size", a_whole(-1), "-1", "-1", dead,
     "MiCS ZeRO-3 sharding has been removed"},
    {kZero, "mics_hierarchical_params_gather", a_boolean(), "false", "false", dead,
     "MiCS ZeRO-3 sharding has been removed"},
    {kZero, "zeropp_loco_param", an_object(), "", "", dead, "LoCo-Zero++ has been removed"},

    {kOptimizer, "device", a_choice("none cpu nvme"), "\"none\"", "\"none\"", honoured,
     "cpu: optimizer state, in stages 2 and 3 also the gradient shard, stay in host memory; nvme: "
     "no effect yet"},
    {kOptimizer, "pin_memory", a_boolean(), "true", "", noted,
     "host memory is pinned where there is a GPU, and plain elsewhere"},
    {kOptimizer, "ratio", a_number(0, 1), "1.0", "1.0", later,
     "all of the optimizer's state is offloaded", kAtMost1},
    {kOptimizer, "nvme_path", or_null(a_text()), "null", "null", later, kNoDisk},
    {kOptimizer, "buffer_count", a_whole(0), "4", "", later, kNoDisk, kAtLeast0},
    {kOptimizer, "pipeline_read", a_boolean(), "false", "false", later, kNoDisk},
    {kOptimizer, "pipeline_write", a_boolean(), "false", "false", later, kNoDisk},
    {kOptimizer, "fast_init", a_boolean(), "false", "false", later, kNoDisk},
    {kOptimizer, "super_offload", a_boolean(), "false", "false", noted,
     "there is one way to offload"},
    {kOptimizer, "cpuadam_cores_perc", a_number(0, 1), "0.8", "", noted,
     "each rank updates on its own thread", kAtMost1},
    {kParam, "device", a_choice("none cpu nvme"), "\"none\"", "\"none\"", later, kNoParameters},
    {kParam, "nvme_path", or_null(a_text()), "null", "null", later, kNoDisk},
    {kParam, "pin_memory", a_boolean(), "true", "", later, kNoParameters},
    {kParam, "buffer_count", a_whole(0), "5", "", later, kNoDisk, kAtLeast0},
    {kParam, "buffer_size", a_whole(0), "100000000", "", later, kNoDisk, kAtLeast0},
    {kParam, "max_in_cpu", a_whole(0), "1000000000", "", later, kNoDisk, kAtLeast0},
    {kLeaf, "classes", some_texts(), "", "", noted, "a unit is a block of the model"},
    {kLeaf, "names", some_texts(), "", "", noted, "a unit is a block of the model"},
    {kLeaf, "name_suffixes", some_texts(), "", "", noted, "a unit is a block of the model"},

    {"", "aio", or_null(an_object()), "", "", later, kNoDisk},
    {"aio", "block_size", a_whole(1), "1048576", "", later, kNoDisk},
    {"aio", "queue_depth", a_whole(1), "8", "", later, kNoDisk},
    {"aio", "intra_op_parallelism", a_whole(1), "1", "", later, kNoDisk},
    {"aio", "thread_count", a_whole(1), "", "", later, "an older name of intra_op_parallelism"},
    {"aio", "single_submit", a_boolean(), "false", "", later, kNoDisk},
    {"aio", "overlap_events", a_boolean(), "true", "", later, kNoDisk},
    {"aio", "use_gds", a_boolean(), "false", "", later, kNoDisk},
};

}  // namespace

std::span<const ConfigKey> zero_config_keys() { return kKeys; }

}  // namespace zl
