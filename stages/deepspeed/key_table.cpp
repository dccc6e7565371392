// The rows of the schema.

#include "stages/deepspeed/effects.h"

namespace zl {
namespace {

using namespace effects;
using enum ConfigUse;
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

constexpr char kParams[] = "optimizer.params", kSchedule[] = "scheduler.params";
constexpr char kZero[] = "zero_optimization", kOffload[] = "zero_optimization.offload_optimizer";
constexpr char kOffloadParam[] = "zero_optimization.offload_param", kOurs[] = "zerolab";
constexpr char kActivations[] = "activation_checkpointing", kLogger[] = "comms_logger";
constexpr char kFile[] = "folder of nvme's file, which has no name and ends with the run";
constexpr char kFolder[] = "folder; \"\": the working folder", kJob[] = "folder inside output_path";
constexpr char kJobName[] = "\"DeepSpeedJobName\"";
constexpr char kNone[] = "zerolab has no such mechanism";
constexpr char kRemoved[] = "DeepSpeed removed this feature";
constexpr char kDivided[] =
    "gradients are added, then divided by the number of ranks; only rounding differs";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own sequences";

// Honoured keys. A rule (stages/deepspeed/reading.h) reads those of by_rule.
const ConfigKey kHonoured[] = {
    {"",
     "train_batch_size",
     {within<1, 1ll << 52, &Config::train_batch_size>.store},
     "",
     "sequences per step of all ranks"},
    {"", "train_micro_batch_size_per_gpu", within<1, 1 << 20, &Config::micro_batch>, "",
     "sequences per rank and micro-batch"},
    {"", "gradient_accumulation_steps", within<1, 1 << 20, &Config::accumulation>, "",
     "micro-batches per step"},
    {"", "gradient_clipping", at_least<0, &Config::gradient_clipping>, "1",
     "largest L2 norm of the gradient; 0: off. With a file the default is 1"},
    {"", "communication_data_type", kSentType, "",
     "type in which gradients are communicated; default: the type in which they accumulate",
     &kFp32Sums},
    {"", "steps_per_print", at_least<1, &Config::steps_per_print>, "",
     "steps between printed lines"},
    {"", "wall_clock_breakdown", at<&Config::wall_clock_breakdown>, "false",
     "prints the time of forward, backward and step"},
    {"data_types", "grad_accum_dtype", kSumType, "",
     "type in which micro-batches accumulate: fp32, or the precision (default)", &kFp32Sums},

    {"optimizer", "type", kType, "", "in any case"},
    {kParams, "lr", at_least<0, kOptimizer, &O::lr>, "0.001", "learning rate"},
    {kParams, "betas", kBetas, "[0.9, 0.999]", "of AdamW", &kAdam},
    {kParams, "eps", at_least<0, kOptimizer, &O::eps>, "1e-08", "added to the root", &kAdam},
    {kParams, "weight_decay", at_least<0, kOptimizer, &O::weight_decay>, "0", "weight decay"},
    {kParams, "bias_correction", at<kOptimizer, &O::bias_correction>, "true", "of AdamW's moments",
     &kAdam},
    {kParams, "adam_w_mode", at<kOptimizer, &O::decoupled>, "true",
     "of Adam: false adds the decay to the gradient", &kAdam},
    {kParams, "torch_adam", by_rule<bool>(), "false",
     "true: the default of weight_decay is torch.optim's, 0.01 for AdamW", &kAdam},
    {kParams, "momentum", at_least<0, kOptimizer, &O::momentum>, "0", "of SGD", &kSgd},
    {kParams, "dampening", at<kOptimizer, &O::dampening>, "0", "of SGD", &kSgd},
    {kParams, "nesterov", at<kOptimizer, &O::nesterov>, "false", "of SGD", &kSgd},
    {"scheduler", "type", at<kScheduler, &S::kind>, "",
     "without a scheduler the learning rate is constant"},
    {kSchedule, "warmup_min_lr", at<kScheduler, &S::warmup_min_lr>, "0",
     "rate at the start of warm-up", &kRates},
    {kSchedule, "warmup_max_lr", at<kScheduler, &S::warmup_max_lr>, "",
     "rate at its end; default: the optimizer's rate, 0.001 for WarmupDecayLR", &kRates},
    {kSchedule, "warmup_num_steps", at_least<1, kScheduler, &S::warmup_num_steps>, "1000",
     "steps; 1 counts as 2", &kAnySchedule},
    {kSchedule, "warmup_type", at<kScheduler, &S::warmup_type>, "\"log\"", "log or linear",
     &kAnySchedule},
    {kSchedule, "total_num_steps", count_or_null<kScheduler, &S::total_num_steps>, "",
     "last step of the schedule; \"auto\": the run's steps", &kEnds},
    {kSchedule, "warmup_min_ratio", at<kScheduler, &S::warmup_min_ratio>, "0",
     "start of warm-up as a fraction of the optimizer's rate", &kRatios},
    {kSchedule, "cos_min_ratio", at<kScheduler, &S::cos_min_ratio>, "1e-04",
     "end of the cosine as a fraction of the optimizer's rate", &kRatios},

    {"fp16", "enabled", is<Dtype::f16>, "false", "all tensors of the model are fp16"},
    {"fp16", "loss_scale", kLossScale, "0", "0: a dynamic scale"},
    {"fp16", "initial_scale_power", within<-126, 126, kScale, &L::initial_scale_power>, "16",
     "the dynamic scale starts at 2 to this power", &kDynamic},
    {"fp16", "loss_scale_window", at_least<1, kScale, &L::window>, "1000",
     "steps without overflow until the scale doubles", &kDynamic},
    {"fp16", "hysteresis", at<kScale, &L::hysteresis>, "2",
     "overflows until the scale is halved; below 1: it is never halved", &kDynamic},
    {"fp16", "consecutive_hysteresis", at<kScale, &L::consecutive_hysteresis>, "false",
     "a step without overflow restarts that count", &kDynamic},
    {"fp16", "min_loss_scale", kMinScale, "1", "smallest scale", &kDynamic},
    {"bf16", "enabled", is<Dtype::bf16>, "false", "all tensors of the model are bf16"},
    {"bf16", "check_grad_overflow", at<&Config::check_grad_overflow>, "true",
     "a step whose gradient is not finite is skipped"},

    {kZero, "stage", kStage, "0",
     "0: ddp; 1: optimizer state is sharded; 2: gradients too; 3: parameters too"},
    {kZero, "reduce_bucket_size", at_least<1, &Config::reduce_bucket_size>, "500000000",
     "elements per group of reductions; 1: one unit at a time"},
    {kZero, "allgather_bucket_size", at_least<0, &Config::allgather_bucket_size>, "500000000",
     "elements per group of all-gathers; 0 or 1: one unit at a time"},
    {kZero, "overlap_comm", at<kOverlap, &V::overlap_comm>, "null",
     "one reduction is in flight while backward goes on; results are the same"},
    {kZero, "stage3_prefetch_bucket_size", at_least<0, kOverlap, &V::prefetch_bucket_size>,
     "50000000",
     "stage 3: elements unsharded ahead of their use; 0: a unit is unsharded right before it",
     &kStage3},
    {kZero, "stage3_param_persistence_threshold", kPersistence, "100000",
     "of \"as\": \"deepspeed-3\": parameters of at most so many elements stay in full",
     &kThreshold},
    {kZero, "stage3_max_live_parameters", at_least<0, kOverlap, &V::max_live_parameters>,
     "1000000000",
     "stage 3: nothing is unsharded ahead or kept if full parameters then exceed so many elements",
     &kStage3},
    {kZero, "stage3_max_reuse_distance", at_least<0, kOverlap, &V::max_reuse_distance>,
     "1000000000",
     "stage 3: a unit stays unsharded for backward if fewer elements are used in between; 0: none",
     &kStage3},
    {kZero, "sub_group_size", at_least<0, &Config::swap, &Swap::sub_group_size>, "1000000000",
     "with offload_optimizer to nvme: elements of the optimizer state that are read, updated and "
     "written at a time, rounded up to 1,024 (0 too)",
     &kNvme},
    {kZero, "zero_hpz_partition_size", groups<&Config::ranks_per_node>, "1",
     "above 1, stage 3 is zero3_hpz: backward gathers inside nodes of so many ranks"},
    {kZero, "zero_quantized_weights", at<&Config::zero_quantized_weights>, "false",
     "stage 3 is zero3_qwz: parameters are gathered in 8 bits"},
    {kZero, "zero_quantized_gradients", at<&Config::zero_quantized_gradients>, "false",
     "stage 3 is zero3_qgz: gradients are reduced in 4 bits, inside nodes and then between them"},
    {kZero, "cpu_offload", by_rule<bool>(), "", "deprecated: write offload_optimizer"},
    {kOffload, "device", at<&Config::offload_optimizer>, "\"none\"",
     "cpu: optimizer state, in stages 2 and 3 also the gradient shard, is in host memory; nvme: "
     "the same, but the optimizer state is in a file"},
    {kOffload, "nvme_path", at<&Config::nvme_path>, "null", kFile, &kNvme},
    {kOffload, "pipeline_read", at<&Config::swap, &Swap::pipeline_read>, "false",
     "the next sub-group of optimizer state is read while one is updated", &kNvme},
    {kOffload, "pipeline_write", at<&Config::swap, &Swap::pipeline_write>, "false",
     "the previous sub-group of optimizer state is written while one is updated", &kNvme},
    {kOffloadParam, "device", at<&Config::offload_param>, "\"none\"",
     "cpu: in stage 3 parameter shards are in host memory; nvme: they are in a file"},
    {kOffloadParam, "nvme_path", at<&Config::param_nvme_path>, "null", kFile, &kNvmeParam},

    {kLogger, "enabled", at<kLog, &C::enabled>, "false", "times each collective"},
    {kLogger, "verbose", at<kLog, &C::verbose>, "false", "one line per call"},
    {kLogger, "prof_all", at<kLog, &C::prof_all>, "true", "false: only prof_ops"},
    {kLogger, "prof_ops", at<kLog, &C::prof_ops>, "[]", "such as \"all_reduce\"", &kProfOps},
    {kLogger, "debug", at<kLog, &C::debug>, "false", "lines name the unit"},
    {"csv_monitor", "enabled", at<kCsv, &M::enabled>, "false", "writes DeepSpeed's CSV files"},
    {"csv_monitor", "output_path", at<kCsv, &M::output_path>, "null", kFolder},
    {"csv_monitor", "job_name", at<kCsv, &M::job_name>, kJobName, kJob},
    {"tensorboard", "enabled", at<kBoard, &M::enabled>, "false",
     "writes a file that TensorBoard reads, with DeepSpeed's tags"},
    {"tensorboard", "output_path", at<kBoard, &M::output_path>, "null", kFolder},
    {"tensorboard", "job_name", at<kBoard, &M::job_name>, kJobName, kJob},
    {kActivations, "partition_activations", at<&Config::partition_activations>, "false",
     "each rank keeps 1/N of a checkpointed input, which an all-gather brings back: with "
     "replicated_micro_batches of \"zerolab\" only",
     &kReplicated},
    {kActivations, "cpu_checkpointing", at<&Config::cpu_checkpointing>, "false",
     "checkpointed inputs, or a rank's parts of them, wait in host memory"},
    {kActivations, "number_checkpoints", count_or_null<&Config::checkpoints>, "null",
     "so many inputs are kept, at most one for each block; the blocks of one are computed again "
     "together. Default: each block's input"},

    {kOurs, "defaults",
     named<&Config::defaults,
           [] {
             return Texts{"ours", "deepspeed"};
           }>,
     "", "of absent keys"},
    {kOurs, "as", named<&Config::as, preset_names>, "",
     "a system as it is shipped, which compare and plan predict beside the stage that it changes"},
    {kOurs, "reproducible", at<&Config::reproducible>, "",
     "the same bits for every number of ranks and of micro-batches per step with the same product: "
     "gradients are added one after another, in fp32"},
    {kOurs, "ordered", at<&Config::ordered>, "",
     "sums over ranks in rank order; false: NCCL or MPI chooses the order, needs no scratch "
     "memory, and results differ by rounding"},
    {kOurs, "replicas", groups<&Config::replicas>, "",
     "above 1, stage 3 is hsdp: so many groups of ranks hold the whole state each"},
    {kOurs, "separate_master", at<kOptimizer, &O::separate_master>, "",
     "an fp32 copy of fp32 weights: 20 bytes per parameter instead of 16"},
    {kOurs, "no_weight_decay", at<kOptimizer, &O::no_weight_decay>, "",
     "patterns (*, ?) of parameter names"},
    {kOurs, "recompute", at<&Config::recompute>, "",
     "activations that backward computes again, with the same bits: \"selective\" the outputs of "
     "layer norms and GELU; \"full\" (or true) everything in a block except its input; \"none\" "
     "(or false) nothing"},
    {kOurs, "replicated_micro_batches", at<&Config::replicated_micro_batches>, "",
     "all ranks compute on the same sequences, for partition_activations; a batch counts once"},
    {kOurs, "model", kModel, "", "as --model"},
    {kOurs, "data", at<&Config::data>, "", "as --data; default: zerolab's own text"},
    {kOurs, "seed", at<&Config::seed>, "", "as --seed"},
    {kOurs, "steps", at_least<1, &Config::steps>, "", "as --steps"},
};

// Keys without effect that have one reason. A name that ends in a dot is the block of those behind
// it; the first are at the top level.
struct Unused {
  ConfigUse use;
  std::string_view always, keys, reason;
};
const Unused kUnused[] = {
    {noted, "",
     "zero_force_ds_cpu_optimizer dataloader_drop_last disable_python_gc data_parallel_group "
     "use_data_before_expert_parallelism seq_parallel_communication_data_type expert_parallel "
     "pipeline compile hybrid_engine weight_quantization timers disable_allgather aio log_level "
     "vocabulary_size memory_breakdown dump_state wandb comet autotuning flops_profiler checkpoint "
     "datastates_ckpt allgather_size fp32_allreduce allreduce_always_fp32 "
     "optimizer. legacy_fusion optimizer.params. fused foreach bf16. immediate_grad_update "
     "torch_autocast. dtype lower_precision_safe_modules "
     "data_types. param_dtype buffer_dtype keep_in_fp32_modules "
     "zero_optimization. use_multi_rank_bucket_allreduce memory_efficient_linear "
     "override_module_apply pipeline_loading_checkpoint log_trace_cache_warnings "
     "enable_sanity_checks save_muon_momentum_buffer_in_memory elastic_checkpoint "
     "stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential round_robin_gradients "
     "legacy_stage1 leaf_module zero_quantized_nontrainable_weights cpu_offload_use_pin_memory "
     "stage3_model_persistence_threshold stage3_module_granularity_threshold "
     "zero_optimization.offload_optimizer. super_offload cpuadam_cores_perc buffer_count fast_init "
     "zero_optimization.offload_param. buffer_count buffer_size max_in_cpu "
     "activation_checkpointing. contiguous_memory_optimization synchronize_checkpoint_boundary "
     "profile data_efficiency. seed data_sampling data_routing scheduler.params. "
     "last_batch_iteration fp16. auto_cast",
     kNone},
    {noted, "true",
     "zero_allow_untested_optimizer managed_gradient_accumulation "
     "zero_optimization. allgather_partitions reduce_scatter contiguous_gradients "
     "compute_grad_norm ignore_unused_parameters load_from_fp32_weights parameter_alignment",
     "zerolab always works as if this were true"},
    {noted, "true",
     "zero_optimization.offload_optimizer. pin_memory zero_optimization.offload_param. pin_memory",
     "host memory is pinned where there is a GPU, and pageable elsewhere"},
    {noted, "",
     "zero_optimization. stage3_gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save",
     "--out always writes full weights, in fp32"},
    {noted, "1", "zero_optimization.offload_optimizer. ratio",
     "all of the optimizer state is offloaded"},
    {noted, "", "prescale_gradients", kDivided},
    {noted, "1", "gradient_predivide_factor", kDivided},
    {refused, "absent", "optimizer.params. max_grad_norm",
     "write \"gradient_clipping\" at the top level, as DeepSpeed demands"},
    {refused, "true", "optimizer.params. fp32_optimizer_states", "the moments are fp32"},
    {refused, "", "optimizer.params. amsgrad maximize", kNone},
    {refused, "",
     "fp16. fp16_master_weights_and_grads bf16. bf16_master_weights_and_grads "
     "bf16_optimizer_states",
     "the master copy and the moments are fp32; write false"},
    {refused, "", "torch_autocast. enabled",
     "zerolab stores in one type and computes in fp32; enable bf16 or fp16"},
    {refused, "mean", "gradient_allreduce_op",
     "gradients are averaged; write \"mean\", and multiply the learning rate or clip"},
    {refused, "absent", "zero_optimization. zenflow",
     "ZenFlow updates from part of the gradients, which changes results; leave it out"},
    {refused, "", "zero_optimization. cpu_offload_param", "deprecated: write offload_param"},
    {refused, "0", "tensor_parallel. autotp_size", kNoTensor},
    {refused, "1", "tensor_parallel.tp. tp_size", kNoTensor},
    {noted, "",
     "tensor_parallel.tp. tp_grain_size mpu tp_group tensor_parallel. tp_overlap_comm "
     "vocab_parallel_lm_head vocab_parallel_ce_backend injection_policy_tuple partition_config "
     "preset_model keep_module_on_host kernel_inject replace_with_kernel_inject",
     kNoTensor},
    {refused, "1", "sequence_parallel_size", "there is no sequence parallelism"},
    {refused, "", "data_efficiency. enabled",
     "sequences are read in order, or shuffled (--shuffle); write false"},
    {dead, "",
     "sparse_gradients graph_harvesting elasticity curriculum_learning progressive_layer_drop "
     "eigenvalue quantize_training compression_training sparse_attention nebula "
     "zero_optimization. mics_hierarchical_params_gather zeropp_loco_param grad_hooks",
     kRemoved},
    {dead, "-1", "zero_optimization. mics_shard_size", kRemoved},
    {dead, "", "tensor_parallel. dtype", "it is a torch.dtype, which no file can hold"},
    {dead, "", "amp", "DeepSpeed removed Apex AMP; enable bf16 or fp16"},
};

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> keys(std::begin(kHonoured), std::end(kHonoured));
    for (const auto& [use, always, names, reason] : kUnused) {
      std::string_view block;
      for (size_t at = 0, end = 0; at < names.size(); at = end + 1) {
        end = std::min(names.find(' ', at), names.size());
        const std::string_view name = names.substr(at, end - at);
        if (name.ends_with('.'))
          block = name.substr(0, name.size() - 1);
        else
          keys.push_back({block, name, {}, "", reason, nullptr, use, always});
      }
    }
    return keys;
  }();
  return all;
}

}  // namespace zl
