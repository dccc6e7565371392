// The rows of the schema.

#include <algorithm>

#include "stages/deepspeed/keys.h"

namespace zl {
namespace {

using enum ConfigUse;
using Kind = ConfigType::Kind;

constexpr double kNoLimit = ConfigType::kNoLimit;
constexpr ConfigType boolean{Kind::boolean}, text{Kind::text}, path{Kind::path}, texts{Kind::texts},
    object{Kind::object}, any{Kind::any}, integer{Kind::whole}, number{Kind::number};
constexpr ConfigType size{Kind::whole, 0, kNoLimit}, count{Kind::whole, 1, kNoLimit};
constexpr ConfigType nonnegative{Kind::number, 0, kNoLimit}, fraction{Kind::number, 0, 1};
constexpr ConfigType batch{Kind::whole, 1, 1 << 20};  // no product of batch sizes overflows
constexpr ConfigType choice(std::string_view choices) {
  return {.kind = Kind::choice, .choices = choices};
}

constexpr char kParams[] = "optimizer.params", kSchedule[] = "scheduler.params";
constexpr char kZero[] = "zero_optimization", kOffload[] = "zero_optimization.offload_optimizer";
constexpr char kOffloadParam[] = "zero_optimization.offload_param";
constexpr char kLogger[] = "comms_logger", kCsv[] = "csv_monitor", kOurs[] = "zerolab";
constexpr char kActivations[] = "activation_checkpointing";
constexpr char kBoard[] = "tensorboard", kTensor[] = "tensor_parallel";

constexpr char kMaster[] = "the master copy and the moments are fp32; write false";
constexpr char kNvmePath[] =
    "the folder of nvme's file, which has no name: nothing is left when the run ends";
constexpr char kNoBuffers[] = "a shard is read from the file into its place, without a buffer";
constexpr char kPieces[] = "8 threads of a rank read and write pieces of 1 MiB";
constexpr char kPipelineRead[] =
    "with nvme: the next sub-group of optimizer state is read while one is updated";
constexpr char kPipelineWrite[] =
    "with nvme: the previous sub-group of optimizer state is written while one is updated";
constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kNoPersistence[] =
    "every parameter is sharded, whatever its size. It counts only in what compare and plan "
    "predict of \"as\": \"deepspeed-3\": those of at most so many elements stay in full there";
constexpr char kNoModelPersistence[] = "small parameters that stay in full have no common limit";
constexpr char kPrefetch[] =
    "stage 3: elements unsharded ahead of their use; 0: a unit is unsharded right before it";
constexpr char kMaxLive[] =
    "stage 3: nothing is unsharded ahead or kept if full parameters then exceed this many elements";
constexpr char kReuse[] =
    "stage 3: a unit stays unsharded for backward if fewer elements are used in between; 0: none";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";
constexpr char kRemoved[] = "DeepSpeed removed this feature";

// A row may have several names, separated by spaces. A block without a row of its name is an object
// whose keys are honoured.
constexpr ConfigKey kRows[] = {
    {"", "train_batch_size", batch, "", "", honoured, "sequences per step of all ranks"},
    {"", "train_micro_batch_size_per_gpu", batch, "", "4", honoured, "per rank and micro-batch"},
    {"", "gradient_accumulation_steps", batch, "", "1", honoured, "micro-batches per step"},
    {"", "gradient_clipping", nonnegative, "1.0", "0", honoured,
     "largest L2 norm of the gradient; 0: off. With a file the default is DeepSpeed's"},
    {"optimizer", "type", text, "", "\"AdamW\"", honoured, "Adam, AdamW or SGD, in any case"},
    {"optimizer", "legacy_fusion", boolean, "false", "false", noted, kNone},
    {kParams, "lr", nonnegative, "0.001", "0.001", honoured, "learning rate"},
    {kParams, "betas", {Kind::betas}, "[0.9, 0.999]", "[0.9, 0.999]", honoured, "of AdamW"},
    {kParams, "eps", nonnegative, "1e-08", "1e-08", honoured, "of AdamW, added to the root"},
    {kParams, "weight_decay", nonnegative, "0", "0", honoured, "weight decay"},
    {kParams, "bias_correction", boolean, "true", "true", honoured, "of AdamW's moments"},
    {kParams, "adam_w_mode", boolean, "true", "true", honoured,
     "of Adam: false adds the decay to the gradient"},
    {kParams, "momentum", nonnegative, "0", "0", honoured, "of SGD"},
    {kParams, "dampening", number, "0", "0", honoured, "of SGD"},
    {kParams, "nesterov", boolean, "false", "false", honoured, "of SGD"},
    {kParams, "max_grad_norm", number, "", "", refused,
     "write \"gradient_clipping\" at the top level, as DeepSpeed demands"},
    {kParams, "amsgrad maximize", boolean, "false", "false", refused, "write false"},
    {kParams, "torch_adam", any, "false", "false", honoured,
     "true: the default of weight_decay is that of torch.optim, 0.01 for AdamW"},
    {kParams, "fused foreach", any, "", "", noted, "each optimizer has one version"},
    {"scheduler", "type", text, "", "", honoured,
     "WarmupLR, WarmupDecayLR or WarmupCosineLR; no scheduler: the learning rate is constant"},
    {kSchedule, "warmup_min_lr", number, "0.0", "0", honoured,
     "of WarmupLR and WarmupDecayLR: rate at the start of warm-up"},
    {kSchedule, "warmup_max_lr", number, "", "", honoured,
     "rate at its end; default: the optimizer's rate, 0.001 for WarmupDecayLR"},
    {kSchedule, "warmup_num_steps", count, "1000", "1000", honoured, "steps; 1 counts as 2"},
    {kSchedule, "warmup_type", text, "\"log\"", "\"log\"", honoured, "log or linear"},
    {kSchedule, "total_num_steps", count, "", "", honoured,
     "of WarmupDecayLR and WarmupCosineLR: last step of the schedule; \"auto\": the run's steps"},
    {kSchedule, "warmup_min_ratio", number, "0.0", "0", honoured,
     "of WarmupCosineLR: start of warm-up as a fraction of the optimizer's rate"},
    {kSchedule, "cos_min_ratio", number, "0.0001", "0.0001", honoured,
     "of WarmupCosineLR: end of the cosine as a fraction of the optimizer's rate"},
    {kSchedule, "last_batch_iteration", integer, "-1", "-1", noted, "a run starts at step 1"},

    {"fp16", "enabled", boolean, "false", "false", honoured, "all tensors of the model are fp16"},
    {"fp16", "loss_scale", nonnegative, "0", "0", honoured, "2^-126 to 2^126; 0: a dynamic scale"},
    {"fp16", "initial_scale_power", integer, "16", "16", honoured,
     "the dynamic scale starts at 2 to this power, -126 to 126"},
    {"fp16", "loss_scale_window", integer, "1000", "1000", honoured,
     "steps without overflow until the scale doubles, at least 1"},
    {"fp16", "hysteresis", integer, "2", "2", honoured,
     "overflows until the scale is halved; below 1: it is never halved"},
    {"fp16", "consecutive_hysteresis", boolean, "false", "false", honoured,
     "a step without overflow restarts that count"},
    {"fp16", "min_loss_scale", integer, "1", "1", honoured, "smallest scale, at least 1"},
    {"fp16", "fp16_master_weights_and_grads", boolean, "false", "false", refused, kMaster},
    {"fp16", "auto_cast", any, "", "", noted, "inputs are token ids, which are never cast"},
    {"bf16", "enabled", boolean, "false", "false", honoured, "all tensors of the model are bf16"},
    {"bf16", "check_grad_overflow", boolean, "true", "true", honoured,
     "a step whose gradient is not finite is skipped"},
    {"bf16", "bf16_master_weights_and_grads bf16_optimizer_states", boolean, "false", "false",
     refused, kMaster},
    {"bf16", "immediate_grad_update", any, "", "", noted, "backward accumulates in place"},
    {"", "bfloat16", object, "", "", honoured, "DeepSpeed's older name of bf16, same keys"},
    {"", "communication_data_type", choice("fp32 fp16 bf16"), "", "", honoured,
     "type in which gradients are communicated; default: the type in which they accumulate"},
    {"data_types", "grad_accum_dtype",
     choice("fp32 float32 float torch.float32 fp16 float16 half torch.float16 bf16 bfloat16 "
            "torch.bfloat16"),
     "", "", honoured, "type in which micro-batches accumulate: fp32, or the precision (default)"},
    {"data_types", "param_dtype buffer_dtype keep_in_fp32_modules", any, "", "", noted,
     "parameters have the type that fp16 or bf16 selects, else fp32"},
    {"torch_autocast", "enabled", boolean, "false", "false", refused,
     "zerolab stores in one type and computes in fp32; enable bf16 or fp16"},
    {"torch_autocast", "dtype lower_precision_safe_modules", any, "", "", noted, kNone},
    {"", "prescale_gradients", boolean, "false", "false", noted,
     "gradients are divided at the end"},
    {"", "gradient_predivide_factor", number, "1.0", "1.0", noted,
     "gradients are divided at the end"},
    {"", "gradient_allreduce_op", choice("mean sum"), "\"mean\"", "\"mean\"", refused,
     "gradients are averaged; write \"mean\", and multiply the learning rate or clip"},

    {kZero,
     "stage",
     {Kind::whole, 0, 3},
     "0",
     "0",
     honoured,
     "0: ddp; 1: optimizer state is sharded; 2: gradients too; 3: parameters too"},
    {kZero, "reduce_bucket_size", count, "500000000", "1", honoured,
     "elements per group of reductions; 1: one unit at a time"},
    {kZero, "allgather_bucket_size", size, "500000000", "1", honoured,
     "elements per group of all-gathers; 0 or 1: one unit at a time"},
    {kZero, "offload_optimizer", object, "null", "null", honoured, "see below"},
    {kZero, "overlap_comm", boolean, "null", "false", honoured,
     "one reduction is in flight while backward goes on; results are the same"},
    {kZero, "offload_param", object, "null", "null", honoured, "see below"},
    {kZero,
     "allgather_partitions reduce_scatter contiguous_gradients compute_grad_norm "
     "ignore_unused_parameters load_from_fp32_weights",
     boolean, "true", "true", noted, "zerolab always works as if this were true"},
    {kZero, "stage3_prefetch_bucket_size prefetch_bucket_size", size, "50000000", "0", honoured,
     kPrefetch},
    {kZero, "stage3_param_persistence_threshold param_persistence_threshold", size, "100000", "0",
     later, kNoPersistence},
    {kZero, "stage3_model_persistence_threshold model_persistence_threshold", size,
     "9223372036854775807", "0", later, kNoModelPersistence},
    {kZero, "stage3_max_live_parameters max_live_parameters", size, "1000000000",
     "9223372036854775807", honoured, kMaxLive},
    {kZero, "stage3_max_reuse_distance max_reuse_distance", size, "1000000000", "0", honoured,
     kReuse},
    {kZero, "sub_group_size", count, "1000000000", "1048576", honoured,
     "with offload_optimizer to nvme: elements of the optimizer state that are read, updated and "
     "written at a time, rounded up to 1,024; otherwise an update takes one unit's shard"},
    {kZero,
     "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save",
     boolean, "false", "", noted, "--out always writes full weights, in fp32"},
    {kZero, "stage3_module_granularity_threshold module_granularity_threshold", integer, "0", "0",
     noted, "a unit is a block of the model"},
    {kZero,
     "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params elastic_checkpoint "
     "stage3_allgather_sequential allgather_sequential round_robin_gradients",
     boolean, "false", "false", noted, kNone},
    {kZero, "parameter_alignment", boolean, "false", "true", noted,
     "every parameter starts at a multiple of 16 elements"},
    {kZero,
     "use_multi_rank_bucket_allreduce memory_efficient_linear override_module_apply "
     "pipeline_loading_checkpoint log_trace_cache_warnings enable_sanity_checks "
     "save_muon_momentum_buffer_in_memory",
     boolean, "", "", noted, kNone},
    {kZero, "zero_hpz_partition_size", size, "1", "1", honoured,
     "above 1, stage 3 is zero3_hpz: backward gathers inside nodes of so many ranks"},
    {kZero, "zero_quantized_weights", boolean, "false", "false", honoured,
     "stage 3 is zero3_qwz: parameters are gathered in 8 bits"},
    {kZero, "zero_quantized_gradients", boolean, "false", "false", honoured,
     "stage 3 is zero3_qgz: gradients are reduced in 4 bits, inside nodes and then between them"},
    {kZero, "zero_quantized_nontrainable_weights", boolean, "false", "false", later,
     "weights that are not trained are gathered as they are stored"},
    {kZero, "leaf_module", object, "", "", noted, "a unit is a block of the model"},
    {kZero, "zenflow", object, "null", "null", refused,
     "ZenFlow updates from part of the gradients, which changes results; leave it out"},
    {kZero, "cpu_offload", boolean, "null", "false", honoured, "deprecated: offload_optimizer"},
    {kZero, "cpu_offload_param", boolean, "null", "false", honoured,
     "deprecated: write offload_param"},
    {kZero, "cpu_offload_use_pin_memory", boolean, "null", "", noted,
     "deprecated: write pin_memory in offload_optimizer"},
    {kZero, "mics_shard_size", integer, "-1", "-1", dead, kRemoved},
    {kZero, "legacy_stage1 mics_hierarchical_params_gather zeropp_loco_param", any, "", "", dead,
     kRemoved},
    {kZero, "grad_hooks", any, "", "", dead, "documented, but never implemented"},
    {kOffload, "device", choice("none cpu nvme"), "\"none\"", "\"none\"", honoured,
     "cpu: optimizer state, in stages 2 and 3 also the gradient shard, is in host memory; nvme: "
     "the "
     "same, but the optimizer state is in a file"},
    {kOffload, "pin_memory", boolean, "true", "", noted,
     "host memory is pinned where there is a GPU, and pageable elsewhere"},
    {kOffload, "ratio", fraction, "1.0", "1.0", later, "all of the optimizer state is offloaded"},
    {kOffload, "nvme_path", text, "null", "null", honoured, kNvmePath},
    {kOffload, "buffer_count", size, "4", "", noted,
     "zerolab computes it: three sub-groups are in host memory, two if one of pipeline_read and "
     "pipeline_write is false, one if both are"},
    {kOffload, "pipeline_read", boolean, "false", "true", honoured, kPipelineRead},
    {kOffload, "pipeline_write", boolean, "false", "true", honoured, kPipelineWrite},
    {kOffload, "fast_init", boolean, "false", "", noted,
     "a new file reads as zeros, so that only master weights are written at the start"},
    {kOffload, "super_offload", boolean, "false", "false", noted, kNone},
    {kOffload, "cpuadam_cores_perc", fraction, "0.8", "", noted,
     "--threads of a command sets the threads of a rank"},
    {kOffloadParam, "device", choice("none cpu nvme"), "\"none\"", "\"none\"", honoured,
     "cpu: in stage 3 parameter shards are in host memory; nvme: they are in a file"},
    {kOffloadParam, "pin_memory", boolean, "true", "", noted,
     "host memory is pinned where there is a GPU, and pageable elsewhere"},
    {kOffloadParam, "nvme_path", text, "null", "null", honoured, kNvmePath},
    {kOffloadParam, "buffer_count", size, "5", "", noted, kNoBuffers},
    {kOffloadParam, "buffer_size", size, "100000000", "", noted, kNoBuffers},
    {kOffloadParam, "max_in_cpu", size, "1000000000", "", noted, kNoBuffers},
    {"", "aio", object, "null", "", noted, kPieces},

    {"", "steps_per_print", count, "", "", honoured, "steps between printed lines"},
    {"", "wall_clock_breakdown", boolean, "false", "false", honoured,
     "prints the time of forward, backward and step"},
    {kLogger, "enabled", boolean, "false", "false", honoured, "counts and times each collective"},
    {kLogger, "verbose", boolean, "false", "false", honoured, "prints one line per call"},
    {kLogger, "prof_all", boolean, "true", "true", honoured, "false: only those in prof_ops"},
    {kLogger, "prof_ops", texts, "[]", "[]", honoured, "names such as \"all_reduce\""},
    {kLogger, "debug", boolean, "false", "false", honoured, "lines also name the unit"},
    {kCsv, "enabled", boolean, "false", "false", honoured, "writes DeepSpeed's CSV files"},
    {kCsv, "output_path", path, "\"\"", "\"\"", honoured, "folder; \"\": the working folder"},
    {kCsv, "job_name", path, "\"DeepSpeedJobName\"", "\"DeepSpeedJobName\"", honoured,
     "folder inside output_path"},
    {kBoard, "enabled", boolean, "false", "false", honoured,
     "writes a file that TensorBoard reads, with DeepSpeed's tags"},
    {kBoard, "output_path", path, "\"\"", "\"\"", honoured, "folder; \"\": the working folder"},
    {kBoard, "job_name", path, "\"DeepSpeedJobName\"", "\"DeepSpeedJobName\"", honoured,
     "folder inside output_path"},
    {"", "wandb comet", object, "", "", noted,
     "--out writes each step to metrics.jsonl; csv_monitor and tensorboard write DeepSpeed's "
     "files"},
    {"", "autotuning flops_profiler", object, "", "", noted,
     "'zerolab plan' says what fits, and predicts memory, traffic and time"},
    {"", "dump_state", boolean, "false", "false", noted, "'config explain' prints every setting"},
    {"", "memory_breakdown", boolean, "false", "false", noted, "'compare' prints memory by use"},
    {"", "log_level", text, "null", "", noted, "-q leaves out notes and progress"},
    {kActivations, "partition_activations", boolean, "false", "false", honoured,
     "each rank keeps 1/N of a checkpointed input, and an all-gather brings it back; needs "
     "replicated_micro_batches of \"zerolab\". This key and the next two switch activation "
     "checkpointing on, as \"recompute\": \"full\" does; in DeepSpeed they do nothing unless the "
     "model calls deepspeed.checkpointing (issue 5704)"},
    {kActivations, "cpu_checkpointing", boolean, "false", "false", honoured,
     "checkpointed inputs, or a rank's parts of them, wait in host memory"},
    {kActivations, "number_checkpoints", count, "null", "null", honoured,
     "so many inputs are kept, at most one for each block; the blocks of one are computed again "
     "together, as in Megatron's uniform method with layers / number_checkpoints layers. DeepSpeed "
     "only sizes its contiguous buffer by it. Default: each block's input"},
    {kActivations, "contiguous_memory_optimization", boolean, "false", "false", noted,
     "an input that is kept takes a block of the memory pool, and the next step takes it again"},
    {kActivations, "synchronize_checkpoint_boundary", boolean, "false", "false", noted,
     "copies and all-gathers are ordered with the computation, which needs no synchronisation"},
    {kActivations, "profile", boolean, "false", "false", noted,
     "wall_clock_breakdown and train --trace show the time of backward"},
    {"", "checkpoint datastates_ckpt", object, "", "", noted,
     "train --save-every writes checkpoints, which any stage and number of ranks can load"},

    {kOurs, "defaults", choice("ours deepspeed"), "", "\"ours\"", honoured, "of absent keys"},
    {kOurs, "as", text, "", "", honoured,
     "a system as it is shipped, which compare and plan predict beside the stage that it changes: "
     "deepspeed-1, deepspeed-2, deepspeed-3, fsdp2, fsdp2-no-reshard or torch-ddp"},
    {kOurs, "reproducible", boolean, "", "false", honoured,
     "the same bits for every number of ranks and of micro-batches per step with the same product: "
     "gradients are added one after another, in fp32"},
    {kOurs, "ordered", boolean, "", "true", honoured,
     "sums over ranks in rank order; false: NCCL or MPI chooses the order, needs no scratch "
     "memory, and results differ by rounding"},
    {kOurs, "replicas", size, "", "1", honoured,
     "above 1, stage 3 is hsdp: so many groups of ranks hold the whole state each"},
    {kOurs, "separate_master", boolean, "", "false", honoured,
     "an fp32 copy of fp32 weights: 20 bytes per parameter instead of 16"},
    {kOurs, "no_weight_decay", texts, "", "[]", honoured, "patterns (*, ?) of parameter names"},
    {kOurs,
     "recompute",
     {.kind = Kind::choice, .choices = "none selective full", .or_boolean = true},
     "",
     "\"selective\"",
     honoured,
     "activations that backward computes again, with the same bits: \"selective\" the outputs of "
     "layer norms and GELU, 6 of a block's 16 tensors of (B, T, C); \"full\" (or true) everything "
     "in a block except its input, for one more forward pass; \"none\" (or false) nothing"},
    {kOurs, "replicated_micro_batches", boolean, "", "false", honoured,
     "all ranks compute on the same sequences, as tensor-parallel ranks do, so a batch counts "
     "those "
     "of one rank; for partition_activations"},
    {kOurs, "model", text, "", "\"small\"", honoured, "as --model"},
    {kOurs, "data", path, "", "", honoured, "as --data; default: the text of this repository"},
    {kOurs, "seed", {Kind::seed, 0}, "", "1337", honoured, "as --seed"},
    {kOurs, "steps", count, "", "100", honoured, "as --steps"},

    {kTensor, "autotp_size", integer, "0", "0", refused, kNoTensor},
    {"tensor_parallel.tp", "tp_size", integer, "1", "1", refused, kNoTensor},
    {"tensor_parallel.tp", "tp_grain_size mpu tp_group", any, "", "", noted, kNoTensor},
    {kTensor, "tensor_parallel", object, "", "", honoured, "DeepSpeed's other name of \"tp\""},
    {kTensor,
     "tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend injection_policy_tuple "
     "partition_config preset_model keep_module_on_host kernel_inject replace_with_kernel_inject",
     any, "", "", noted, kNoTensor},
    {kTensor, "dtype", any, "", "", dead, "it is a torch.dtype, which no file can hold"},
    {"", "sequence_parallel_size", count, "1", "1", refused, "there is no sequence parallelism"},
    {"data_efficiency", "enabled", boolean, "false", "false", refused,
     "sequences are read in order, or shuffled (--shuffle); write false"},
    {"data_efficiency", "seed data_sampling data_routing", any, "", "", noted, kNone},
    {"", "zero_allow_untested_optimizer", boolean, "false", "true", noted,
     "every optimizer works with every stage"},
    {"", "managed_gradient_accumulation", boolean, "true", "true", noted,
     "the engine counts the micro-batches of a step"},
    {"", "disable_allgather", boolean, "false", "false", noted, kNone},
    {"", "vocabulary_size", count, "null", "", noted, "the vocabulary is the model's"},
    {"",
     "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
     "use_data_before_expert_parallelism seq_parallel_communication_data_type",
     any, "", "", noted, kNone},
    {"", "expert_parallel pipeline compile hybrid_engine weight_quantization timers", object, "",
     "", noted, kNone},
    {"", "fp32_allreduce allreduce_always_fp32", boolean, "", "false", noted,
     "DeepSpeed dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allgather_size", size, "", "", noted,
     "an older name; write \"allgather_bucket_size\" in zero_optimization"},
    {"", "amp", any, "", "", dead, "DeepSpeed removed Apex AMP; enable bf16 or fp16"},
    {"",
     "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
     "eigenvalue quantize_training compression_training sparse_attention nebula",
     any, "", "", dead, kRemoved},
};

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> keys;
  const auto has_row = [&](std::string_view path) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const ConfigKey& key) { return key.path() == path; });
  };
  for (const ConfigKey& row : kRows) {
    const size_t name = row.block.rfind('.') + 1;  // 0 without a dot
    if (!row.block.empty() && !has_row(row.block))
      keys.push_back({row.block.substr(0, name == 0 ? 0 : name - 1), row.block.substr(name), object,
                      "", "", honoured, "see below"});
    for (const std::string_view key : words(row.key)) {
      keys.push_back(row);
      keys.back().key = key;
    }
  }
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = all_keys();
  return keys;
}

}  // namespace zl
