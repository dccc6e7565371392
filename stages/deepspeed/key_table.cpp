// The rows of the schema.

#include "stages/deepspeed/effects.h"

namespace zl {
namespace {

using namespace effects;
using O = OptimizerConfig;
using S = ScheduleConfig;
using L = LossScaleConfig;
using V = Overlap;
using C = CommsLogger;
using M = Monitor;

constexpr auto kOptimizer = &Config::optimizer;
constexpr auto kScheduler = &Config::schedule;
constexpr auto kScale = &Config::loss_scale;
constexpr auto kOverlap = &Config::overlap;
constexpr auto kLog = &Config::comms_logger;
constexpr auto kCsv = &Config::csv_monitor;
constexpr auto kBoard = &Config::tensorboard;

constexpr auto* kAdam = &of_optimizer<OptimizerKind::adamw>;
constexpr auto* kSgd = &of_optimizer<OptimizerKind::sgd>;
constexpr auto* kNvme = &of_nvme<&Config::offload_optimizer>;
constexpr auto* kNvmeParam = &of_nvme<&Config::offload_param>;
constexpr auto kWarmup = ScheduleKind::warmup, kDecay = ScheduleKind::warmup_decay,
               kCosine = ScheduleKind::warmup_cosine;
constexpr auto* kAnySchedule = &of_schedule<kWarmup, kDecay, kCosine>;
constexpr auto* kRates = &of_schedule<kWarmup, kDecay>;
constexpr auto* kEnds = &of_schedule<kDecay, kCosine>;
constexpr auto* kRatios = &of_schedule<kCosine>;

constexpr char kParams[] = "optimizer.params", kSchedule[] = "scheduler.params";
constexpr char kZero[] = "zero_optimization", kOffload[] = "zero_optimization.offload_optimizer";
constexpr char kOffloadParam[] = "zero_optimization.offload_param", kOurs[] = "zerolab";
constexpr char kActivations[] = "activation_checkpointing", kTensor[] = "tensor_parallel";

constexpr char kLogger[] = "comms_logger", kCsvMonitor[] = "csv_monitor";
constexpr char kTensorboard[] = "tensorboard";

constexpr char kMoments[] = "the moments are fp32; write true";
constexpr char kMaster[] = "the master copy and the moments are fp32; write false";
constexpr char kNvmePath[] = "folder of nvme's file, which has no name and ends with the run";
constexpr char kPinned[] = "host memory is pinned where there is a GPU, and pageable elsewhere";
constexpr char kNoBuffers[] = "a shard is read from the file into its place, without a buffer";
constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";
constexpr char kRemoved[] = "DeepSpeed removed this feature";
constexpr char kFolder[] = "folder; \"\": the working folder", kJob[] = "folder inside output_path";
constexpr char kJobName[] = "\"DeepSpeedJobName\"";
constexpr char kDivided[] =
    "gradients are added, then divided by the number of ranks; only rounding differs";

// A row may have several keys, separated by spaces; "=b" is a second name of the key before it.
const ConfigKey kRows[] = {
    {"", "train_batch_size", batches, "", by_rule, "sequences per step of all ranks"},
    {"", "train_micro_batch_size_per_gpu", batch, "", at<&Config::micro_batch>,
     "sequences per rank and micro-batch"},
    {"", "gradient_accumulation_steps", batch, "", at<&Config::accumulation>,
     "micro-batches per step"},
    {"", "gradient_clipping", nonnegative, "1.0", at<&Config::gradient_clipping>,
     "largest L2 norm of the gradient; 0: off. With a file the default is DeepSpeed's"},
    {"",
     "optimizer scheduler fp16 bf16 =bfloat16 data_types torch_autocast zero_optimization "
     "comms_logger csv_monitor tensorboard activation_checkpointing zerolab tensor_parallel "
     "data_efficiency",
     object, "", by_rule, "see below"},
    {"optimizer", "params", object, "", by_rule, "see below"},
    {"optimizer", "type", choice("Adam AdamW SGD"), "", kType, "in any case"},
    {"optimizer", "legacy_fusion", boolean, "false", none("false"), kNone},
    {kParams, "lr", nonnegative, "0.001", at<kOptimizer, &O::lr>, "learning rate"},
    {kParams, "betas", betas, "[0.9, 0.999]", kBetas, "of AdamW", kAdam},
    {kParams, "eps", nonnegative, "1e-08", at<kOptimizer, &O::eps>, "added to the root", kAdam},
    {kParams, "weight_decay", nonnegative, "0", at<kOptimizer, &O::weight_decay>, "weight decay"},
    {kParams, "bias_correction", boolean, "true", at<kOptimizer, &O::bias_correction>,
     "of AdamW's moments", kAdam},
    {kParams, "adam_w_mode", boolean, "true", at<kOptimizer, &O::decoupled>,
     "of Adam: false adds the decay to the gradient", kAdam},
    {kParams, "momentum", nonnegative, "0", at<kOptimizer, &O::momentum>, "of SGD", kSgd},
    {kParams, "dampening", number, "0", at<kOptimizer, &O::dampening>, "of SGD", kSgd},
    {kParams, "nesterov", boolean, "false", at<kOptimizer, &O::nesterov>, "of SGD", kSgd},
    {kParams, "max_grad_norm", number, "", no(),
     "write \"gradient_clipping\" at the top level, as DeepSpeed demands"},
    {kParams, "fp32_optimizer_states", boolean, "true", no("true"), kMoments},
    {kParams, "amsgrad maximize", boolean, "false", no("false"), "write false"},
    {kParams, "torch_adam", boolean, "false", by_rule,
     "true: the default of weight_decay is that of torch.optim, 0.01 for AdamW", kAdam},
    {kParams, "fused foreach", any, "", none(), "each optimizer has one version"},
    {"scheduler", "type", choice("WarmupLR WarmupDecayLR WarmupCosineLR"), "",
     at<kScheduler, &S::kind>, "without a scheduler the learning rate is constant"},
    {"scheduler", "params", object, "", by_rule, "see below"},
    {kSchedule, "warmup_min_lr", number, "0.0", at<kScheduler, &S::warmup_min_lr>,
     "rate at the start of warm-up", kRates},
    {kSchedule, "warmup_max_lr", number, "", at<kScheduler, &S::warmup_max_lr>,
     "rate at its end; default: the optimizer's rate, 0.001 for WarmupDecayLR", kRates},
    {kSchedule, "warmup_num_steps", count, "1000", at<kScheduler, &S::warmup_num_steps>,
     "steps; 1 counts as 2", kAnySchedule},
    {kSchedule, "warmup_type", text, "\"log\"", at<kScheduler, &S::warmup_type>, "log or linear",
     kAnySchedule},
    {kSchedule, "total_num_steps", count, "", kTotalSteps,
     "last step of the schedule; \"auto\": the run's steps", kEnds},
    {kSchedule, "warmup_min_ratio", number, "0.0", at<kScheduler, &S::warmup_min_ratio>,
     "start of warm-up as a fraction of the optimizer's rate", kRatios},
    {kSchedule, "cos_min_ratio", number, "0.0001", at<kScheduler, &S::cos_min_ratio>,
     "end of the cosine as a fraction of the optimizer's rate", kRatios},
    {kSchedule, "last_batch_iteration", integer, "-1", none("-1"), "a run starts at step 1"},

    {"fp16", "enabled", boolean, "false", is<&Config::precision, Dtype::f16>,
     "all tensors of the model are fp16"},
    {"fp16", "loss_scale", nonnegative, "0", at<kScale, &L::static_scale>,
     "2^-126 to 2^126; 0: a dynamic scale"},
    {"fp16", "initial_scale_power", power, "16", at<kScale, &L::initial_scale_power>,
     "the dynamic scale starts at 2 to this power", &kDynamic},
    {"fp16", "loss_scale_window", count, "1000", at<kScale, &L::window>,
     "steps without overflow until the scale doubles", &kDynamic},
    {"fp16", "hysteresis", integer, "2", at<kScale, &L::hysteresis>,
     "overflows until the scale is halved; below 1: it is never halved", &kDynamic},
    {"fp16", "consecutive_hysteresis", boolean, "false", at<kScale, &L::consecutive_hysteresis>,
     "a step without overflow restarts that count", &kDynamic},
    {"fp16", "min_loss_scale", count, "1", at<kScale, &L::min_scale>, "smallest scale", &kDynamic},
    {"fp16", "fp16_master_weights_and_grads", boolean, "false", no("false"), kMaster},
    {"fp16", "auto_cast", any, "", none(), "inputs are token ids, which are never cast"},
    {"bf16", "enabled", boolean, "false", is<&Config::precision, Dtype::bf16>,
     "all tensors of the model are bf16"},
    {"bf16", "check_grad_overflow", boolean, "true", at<&Config::check_grad_overflow>,
     "a step whose gradient is not finite is skipped"},
    {"bf16", "bf16_master_weights_and_grads bf16_optimizer_states", boolean, "false", no("false"),
     kMaster},
    {"bf16", "immediate_grad_update", any, "", none(), "backward accumulates in place"},
    {"", "communication_data_type", choice("fp32 fp16 bf16"), "", kSentType,
     "type in which gradients are communicated; default: the type in which they accumulate"},
    {"data_types", "grad_accum_dtype", choice(kTypes), "", kSumType,
     "type in which micro-batches accumulate: fp32, or the precision (default)"},
    {"data_types", "param_dtype buffer_dtype keep_in_fp32_modules", any, "", none(),
     "parameters have the type that fp16 or bf16 selects, else fp32"},
    {"torch_autocast", "enabled", boolean, "false", no("false"),
     "zerolab stores in one type and computes in fp32; enable bf16 or fp16"},
    {"torch_autocast", "dtype lower_precision_safe_modules", any, "", none(), kNone},
    {"", "prescale_gradients", boolean, "false", none("false"), kDivided},
    {"", "gradient_predivide_factor", number, "1.0", none("1.0"), kDivided},
    {"", "gradient_allreduce_op", choice("mean sum"), "\"mean\"", no("\"mean\""),
     "gradients are averaged; write \"mean\", and multiply the learning rate or clip"},

    {kZero, "stage", stages, "0", kStage,
     "0: ddp; 1: optimizer state is sharded; 2: gradients too; 3: parameters too"},
    {kZero, "reduce_bucket_size", count, "500000000", at<&Config::reduce_bucket_size>,
     "elements per group of reductions; 1: one unit at a time"},
    {kZero, "allgather_bucket_size", size, "500000000", at<&Config::allgather_bucket_size>,
     "elements per group of all-gathers; 0 or 1: one unit at a time"},
    {kZero, "offload_optimizer", object, "null", by_rule, "see below"},
    {kZero, "overlap_comm", boolean, "null", at<kOverlap, &V::overlap_comm>,
     "one reduction is in flight while backward goes on; results are the same"},
    {kZero, "offload_param", object, "null", by_rule, "see below"},
    {kZero,
     "allgather_partitions reduce_scatter contiguous_gradients compute_grad_norm "
     "ignore_unused_parameters load_from_fp32_weights",
     boolean, "true", none("true"), "zerolab always works as if this were true"},
    {kZero, "stage3_prefetch_bucket_size =prefetch_bucket_size", size, "50000000",
     at<kOverlap, &V::prefetch_bucket_size>,
     "stage 3: elements unsharded ahead of their use; 0: a unit is unsharded right before it",
     &kStage3},
    {kZero, "stage3_param_persistence_threshold =param_persistence_threshold", size, "100000",
     kPersistence,
     "of \"as\": \"deepspeed-3\": parameters of at most so many elements stay in full",
     &kThreshold},
    {kZero, "stage3_model_persistence_threshold =model_persistence_threshold", size,
     "9223372036854775807", none("0"), "small parameters that stay in full have no common limit"},
    {kZero, "stage3_max_live_parameters =max_live_parameters", size, "1000000000",
     at<kOverlap, &V::max_live_parameters>,
     "stage 3: nothing is unsharded ahead or kept if full parameters then exceed so many elements",
     &kStage3},
    {kZero, "stage3_max_reuse_distance =max_reuse_distance", size, "1000000000",
     at<kOverlap, &V::max_reuse_distance>,
     "stage 3: a unit stays unsharded for backward if fewer elements are used in between; 0: none",
     &kStage3},
    {kZero, "sub_group_size", size, "1000000000", at<&Config::swap, &Swap::sub_group_size>,
     "with offload_optimizer to nvme: elements of the optimizer state that are read, updated and "
     "written at a time, rounded up to 1,024 (0 too)",
     kNvme},
    {kZero,
     "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save",
     boolean, "false", none(), "--out always writes full weights, in fp32"},
    {kZero, "stage3_module_granularity_threshold module_granularity_threshold", integer, "0",
     none("0"), "a unit is a block of the model"},
    {kZero,
     "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params elastic_checkpoint "
     "stage3_allgather_sequential allgather_sequential round_robin_gradients",
     boolean, "false", none("false"), kNone},
    {kZero, "parameter_alignment", boolean, "false", none("true"),
     "every parameter starts at a multiple of 16 elements"},
    {kZero,
     "use_multi_rank_bucket_allreduce memory_efficient_linear override_module_apply "
     "pipeline_loading_checkpoint log_trace_cache_warnings enable_sanity_checks "
     "save_muon_momentum_buffer_in_memory",
     boolean, "", none(), kNone},
    {kZero, "zero_hpz_partition_size", size, "1", groups<&Config::ranks_per_node>,
     "above 1, stage 3 is zero3_hpz: backward gathers inside nodes of so many ranks"},
    {kZero, "zero_quantized_weights", boolean, "false", kQuantizedWeights,
     "stage 3 is zero3_qwz: parameters are gathered in 8 bits"},
    {kZero, "zero_quantized_gradients", boolean, "false", kQuantizedGradients,
     "stage 3 is zero3_qgz: gradients are reduced in 4 bits, inside nodes and then between them"},
    {kZero, "zero_quantized_nontrainable_weights", boolean, "false", none("false"),
     "weights that are not trained are gathered as they are stored"},
    {kZero, "leaf_module", object, "", none(), "a unit is a block of the model"},
    {kZero, "zenflow", object, "null", no("null"),
     "ZenFlow updates from part of the gradients, which changes results; leave it out"},
    {kZero, "cpu_offload", boolean, "null", by_rule, "deprecated: write offload_optimizer"},
    {kZero, "cpu_offload_param", boolean, "null", by_rule, "deprecated: write offload_param"},
    {kZero, "cpu_offload_use_pin_memory", boolean, "null", none(), kPinned},
    {kZero, "mics_shard_size", integer, "-1", gone, kRemoved},
    {kZero, "mics_hierarchical_params_gather zeropp_loco_param", any, "", gone, kRemoved},
    {kZero, "legacy_stage1", boolean, "false", none("false"), "there is one stage 1"},
    {kZero, "grad_hooks", any, "", gone, "documented, but never implemented"},
    {kOffload, "device", device, "\"none\"", at<&Config::offload_optimizer>,
     "cpu: optimizer state, in stages 2 and 3 also the gradient shard, is in host memory; nvme: "
     "the same, but the optimizer state is in a file"},
    {kOffload, "pin_memory", boolean, "true", none(), kPinned},
    {kOffload, "ratio", fraction, "1.0", none("1.0"), "all of the optimizer state is offloaded"},
    {kOffload, "nvme_path", text, "null", folder_of<&Config::offload_optimizer>, kNvmePath, kNvme},
    {kOffload, "buffer_count", size, "4", none(),
     "one to three sub-groups are in host memory, as pipeline_read and pipeline_write need"},
    {kOffload, "pipeline_read", boolean, "false", at<&Config::swap, &Swap::pipeline_read>,
     "the next sub-group of optimizer state is read while one is updated", kNvme},
    {kOffload, "pipeline_write", boolean, "false", at<&Config::swap, &Swap::pipeline_write>,
     "the previous sub-group of optimizer state is written while one is updated", kNvme},
    {kOffload, "fast_init", boolean, "false", none(),
     "a new file reads as zeros, so that only master weights are written at the start"},
    {kOffload, "super_offload", boolean, "false", none("false"), kNone},
    {kOffload, "cpuadam_cores_perc", fraction, "0.8", none(),
     "--threads of a command sets the threads of a rank"},
    {kOffloadParam, "device", device, "\"none\"", at<&Config::offload_param>,
     "cpu: in stage 3 parameter shards are in host memory; nvme: they are in a file"},
    {kOffloadParam, "pin_memory", boolean, "true", none(), kPinned},
    {kOffloadParam, "nvme_path", text, "null", folder_of<&Config::offload_param>, kNvmePath,
     kNvmeParam},
    {kOffloadParam, "buffer_count", size, "5", none(), kNoBuffers},
    {kOffloadParam, "buffer_size", size, "100000000", none(), kNoBuffers},
    {kOffloadParam, "max_in_cpu", size, "1000000000", none(), kNoBuffers},
    {"", "aio", object, "null", none(), "each transfer is a thread, in pieces of 1 MiB"},

    {"", "steps_per_print", count, "", at<&Config::steps_per_print>, "steps between printed lines"},
    {"", "wall_clock_breakdown", boolean, "false", at<&Config::wall_clock_breakdown>,
     "prints the time of forward, backward and step"},
    {kLogger, "enabled", boolean, "false", at<kLog, &C::enabled>, "times each collective"},
    {kLogger, "verbose", boolean, "false", at<kLog, &C::verbose>, "one line per call"},
    {kLogger, "prof_all", boolean, "true", at<kLog, &C::prof_all>, "false: only prof_ops"},
    {kLogger, "prof_ops", texts, "[]", at<kLog, &C::prof_ops>, "such as \"all_reduce\""},
    {kLogger, "debug", boolean, "false", at<kLog, &C::debug>, "lines name the unit"},
    {kCsvMonitor, "enabled", boolean, "false", at<kCsv, &M::enabled>,
     "writes DeepSpeed's CSV files"},
    {kCsvMonitor, "output_path", text, "\"\"", at<kCsv, &M::output_path>, kFolder},
    {kCsvMonitor, "job_name", text, kJobName, at<kCsv, &M::job_name>, kJob},
    {kTensorboard, "enabled", boolean, "false", at<kBoard, &M::enabled>,
     "writes a file that TensorBoard reads, with DeepSpeed's tags"},
    {kTensorboard, "output_path", text, "\"\"", at<kBoard, &M::output_path>, kFolder},
    {kTensorboard, "job_name", text, kJobName, at<kBoard, &M::job_name>, kJob},
    {"", "wandb comet", object, "", none(),
     "--out writes each step to metrics.jsonl; csv_monitor and tensorboard write DeepSpeed's "
     "files"},
    {"", "autotuning flops_profiler", object, "", none(),
     "'zerolab plan' says what fits, and predicts memory, traffic and time"},
    {"", "dump_state", boolean, "false", none("false"), "'config explain' prints every setting"},
    {"", "memory_breakdown", boolean, "false", none("false"), "'compare' prints memory by use"},
    {"", "log_level", text, "null", none(), "-q leaves out notes and progress"},
    {kActivations, "partition_activations", boolean, "false", at<&Config::partition_activations>,
     "each rank keeps 1/N of a checkpointed input, which an all-gather brings back: with "
     "replicated_micro_batches of \"zerolab\" only"},
    {kActivations, "cpu_checkpointing", boolean, "false", at<&Config::cpu_checkpointing>,
     "checkpointed inputs, or a rank's parts of them, wait in host memory"},
    {kActivations, "number_checkpoints", count, "null", kCheckpoints,
     "so many inputs are kept, at most one for each block; the blocks of one are computed again "
     "together. Default: each block's input"},
    {kActivations, "contiguous_memory_optimization", boolean, "false", none("false"),
     "an input that is kept takes a block of the memory pool, and the next step takes it again"},
    {kActivations, "synchronize_checkpoint_boundary", boolean, "false", none("false"),
     "copies and all-gathers are ordered with the computation, which needs no synchronisation"},
    {kActivations, "profile", boolean, "false", none("false"),
     "wall_clock_breakdown and train --trace show the time of backward"},
    {"", "checkpoint datastates_ckpt", object, "", none(),
     "train --save-every writes checkpoints, which any stage and number of ranks can load"},

    {kOurs, "defaults", choice("ours deepspeed"), "", kDefaults, "of absent keys"},
    {kOurs, "as", a_preset, "", kAs,
     "a system as it is shipped, which compare and plan predict beside the stage that it changes"},
    {kOurs, "reproducible", boolean, "", at<&Config::reproducible>,
     "the same bits for every number of ranks and of micro-batches per step with the same product: "
     "gradients are added one after another, in fp32"},
    {kOurs, "ordered", boolean, "", at<&Config::ordered>,
     "sums over ranks in rank order; false: NCCL or MPI chooses the order, needs no scratch "
     "memory, and results differ by rounding"},
    {kOurs, "replicas", size, "", groups<&Config::replicas>,
     "above 1, stage 3 is hsdp: so many groups of ranks hold the whole state each"},
    {kOurs, "separate_master", boolean, "", at<kOptimizer, &O::separate_master>,
     "an fp32 copy of fp32 weights: 20 bytes per parameter instead of 16"},
    {kOurs, "no_weight_decay", texts, "", at<kOptimizer, &O::no_weight_decay>,
     "patterns (*, ?) of parameter names"},
    {kOurs, "recompute", choice("none selective full true false"), "", at<&Config::recompute>,
     "activations that backward computes again, with the same bits: \"selective\" the outputs of "
     "layer norms and GELU; \"full\" (or true) everything in a block except its input; \"none\" "
     "(or false) nothing"},
    {kOurs, "replicated_micro_batches", boolean, "", at<&Config::replicated_micro_batches>,
     "all ranks compute on the same sequences, for partition_activations; a batch counts once"},
    {kOurs, "model", a_model, "", kModel, "as --model"},
    {kOurs, "data", text, "", at<&Config::data>, "as --data; default: zerolab's own text"},
    {kOurs, "seed", seed, "", at<&Config::seed>, "as --seed"},
    {kOurs, "steps", count, "", at<&Config::steps>, "as --steps"},

    {kTensor, "autotp_size", integer, "0", no("0"), kNoTensor},
    {"tensor_parallel.tp", "tp_size", integer, "1", no("1"), kNoTensor},
    {"tensor_parallel.tp", "tp_grain_size mpu tp_group", any, "", none(), kNoTensor},
    {kTensor, "tp =tensor_parallel", object, "", by_rule, "see below"},
    {kTensor,
     "tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend injection_policy_tuple "
     "partition_config preset_model keep_module_on_host kernel_inject replace_with_kernel_inject",
     any, "", none(), kNoTensor},
    {kTensor, "dtype", any, "", gone, "it is a torch.dtype, which no file can hold"},
    {"", "sequence_parallel_size", count, "1", no("1"), "there is no sequence parallelism"},
    {"data_efficiency", "enabled", boolean, "false", no("false"),
     "sequences are read in order, or shuffled (--shuffle); write false"},
    {"data_efficiency", "seed data_sampling data_routing", any, "", none(), kNone},
    {"", "zero_allow_untested_optimizer", boolean, "false", none("true"),
     "every optimizer works with every stage"},
    {"", "managed_gradient_accumulation", boolean, "true", none("true"),
     "the engine counts the micro-batches of a step"},
    {"", "disable_allgather", boolean, "false", none("false"), kNone},
    {"", "vocabulary_size", count, "null", none(), "the vocabulary is the model's"},
    {"",
     "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
     "use_data_before_expert_parallelism seq_parallel_communication_data_type",
     any, "", none(), kNone},
    {"", "expert_parallel pipeline compile hybrid_engine weight_quantization timers", object, "",
     none(), kNone},
    {"", "fp32_allreduce allreduce_always_fp32", boolean, "", none("false"),
     "DeepSpeed dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allgather_size", size, "", none(),
     "an older name; write \"allgather_bucket_size\" in zero_optimization"},
    {"", "amp", any, "", gone, "DeepSpeed removed Apex AMP; enable bf16 or fp16"},
    {"",
     "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
     "eigenvalue quantize_training compression_training sparse_attention nebula",
     any, "", gone, kRemoved},
};

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys;
    for (const ConfigKey& row : kRows)
      for (std::string_view name : words(row.key)) {
        const bool second = name.starts_with("=");
        if (second) name.remove_prefix(1);
        const std::string_view first = second ? keys.back().first_name : name;
        keys.push_back(row);
        keys.back().key = name, keys.back().first_name = first;
      }
    return keys;
  }();
  return all;
}

}  // namespace zl
