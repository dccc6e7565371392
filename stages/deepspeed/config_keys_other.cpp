// Keys of what zerolab has not, and of what DeepSpeed has no more.

#include "stages/deepspeed/config_keys.h"

namespace zl {
namespace {

using enum ConfigUse;

constexpr char kEmbedding[] =
    "sparse gradients of embeddings have been removed; they are reduced dense, as here";

constexpr char kTensor[] = "tensor_parallel", kTp[] = "tensor_parallel.tp",
               kHybrid[] = "hybrid_engine", kCompile[] = "compile";
constexpr char kNoTensor[] = "there is no tensor parallelism; every rank reads its own windows";
constexpr char kCompiled[] = "kernels are compiled with the program";
constexpr char kNoInference[] = "there is no inference engine";
constexpr char kTimed[] = "a step's time is always taken";

constexpr ConfigKey kKeys[] = {
    {"", "zero_allow_untested_optimizer", a_boolean(), "false", "true", noted,
     "every optimizer may be used with every stage"},
    {"", "zero_force_ds_cpu_optimizer", a_boolean(), "true", "", noted,
     "the same update runs on device and host"},
    {"", "managed_gradient_accumulation", a_boolean(), "true", "true", noted,
     "the engine counts the micro-batches of a step"},
    {"", "disable_allgather", a_boolean(), "false", "false", noted,
     "parameters are gathered by an all-gather"},
    {"", "dataloader_drop_last", a_boolean(), "false", "", noted,
     "windows start again where they end, so no batch is cut"},
    {"", "vocabulary_size", or_null(a_whole(1)), "null", "", noted,
     "the vocabulary is the model's"},
    {"", "disable_python_gc", a_boolean(), "false", "", noted, "there is no Python"},
    {"", "seq_parallel_communication_data_type", a_choice("fp32 fp16 bf16"), "\"fp32\"", "", noted,
     "there is no sequence parallelism"},
    {"", "sequence_parallel_size", a_whole(1), "1", "1", refused,
     "there is no sequence parallelism; every rank reads its own windows"},
    {"", "use_data_before_expert_parallelism", a_boolean(), "false", "", noted,
     "there are no experts"},
    {"", "expert_parallel", an_object(), "", "", noted, "there are no experts"},
    {"", "data_parallel_group", anything(), "", "", noted, "all ranks are one group"},
    {"", "tensor_parallel", an_object(), "", "", honoured, "see below"},
    {kTensor, "autotp_size", any_whole(), "0", "0", refused, kNoTensor},
    {kTensor, "tp", an_object(), "", "", honoured,
     "see below; \"tensor_parallel\" is its other name"},
    {kTensor, "tensor_parallel", an_object(), "", "", honoured,
     "DeepSpeed's other name of \"tp\", with the same keys"},
    {kTensor, "dtype", anything(), "", "", dead, "it is a torch.dtype, which no file can hold"},
    {kTensor, "tp_overlap_comm", a_boolean(), "false", "", noted, kNoTensor},
    {kTensor, "vocab_parallel_lm_head", or_null(a_boolean()), "null", "", noted, kNoTensor},
    {kTensor, "vocab_parallel_ce_backend", a_choice("torch liger"), "\"torch\"", "", noted,
     kNoTensor},
    {kTensor, "injection_policy_tuple", anything(), "null", "", noted, kNoTensor},
    {kTensor, "partition_config", or_null(an_object()), "null", "", noted, kNoTensor},
    {kTensor, "preset_model", or_null(a_text()), "null", "", noted, kNoTensor},
    {kTensor, "keep_module_on_host", a_boolean(), "false", "", noted, kNoTensor},
    {kTensor, "kernel_inject", a_boolean(), "false", "", noted, kNoTensor},
    {kTensor, "replace_with_kernel_inject", a_boolean(), "false", "", noted, kNoTensor},
    {kTp, "tp_size", any_whole(), "1", "1", refused, kNoTensor},
    {kTp, "tp_grain_size", any_whole(), "1", "", noted, kNoTensor},
    {kTp, "mpu", anything(), "null", "", noted, kNoTensor},
    {kTp, "tp_group", anything(), "null", "", noted, kNoTensor},
    {"", "data_efficiency", an_object(), "", "", honoured, "see below"},
    {"data_efficiency", "enabled", a_boolean(), "false", "false", refused,
     "windows are read in their order, or shuffled (--shuffle); write false"},
    {"data_efficiency", "seed", a_whole(0), "1234", "", noted, "there is no data efficiency"},
    {"data_efficiency", "data_sampling", an_object(), "", "", noted, "there is no data efficiency"},
    {"data_efficiency", "data_routing", an_object(), "", "", noted, "there is no data efficiency"},
    {"", "pipeline", an_object(), "", "", noted, "there is no pipeline"},
    {"", "compile", an_object(), "", "", noted, kCompiled},
    {kCompile, "deepcompile", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "autoep_non_moe", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "free_activation", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "free_activation_threshold", any_whole(), "10485760", "", noted, kCompiled},
    {kCompile, "offload_activation", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "offload_activation_pin_memory", a_boolean(), "true", "", noted, kCompiled},
    {kCompile, "offload_opt_states", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "double_buffer", a_boolean(), "true", "", noted, kCompiled},
    {kCompile, "symmetric_memory", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "debug_log", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "offload_parameters", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "sync_before_reduce", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "sync_after_reduce", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "sync_before_allgather", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "sync_after_allgather", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "keep_int_input_tensors", a_boolean(), "true", "", noted, kCompiled},
    {kCompile, "keep_all_input_tensors", a_boolean(), "false", "", noted, kCompiled},
    {kCompile, "passes", or_null(some_texts()), "null", "", noted, kCompiled},
    {"", "hybrid_engine", an_object(), "", "", noted, kNoInference},
    {kHybrid, "enabled", a_boolean(), "false", "", noted, kNoInference},
    {kHybrid, "max_out_tokens", a_whole(1), "512", "", noted, kNoInference,
     "Input should be greater than 0"},
    {kHybrid, "inference_tp_size", any_whole(), "1", "", noted, kNoInference},
    {kHybrid, "release_inference_cache", a_boolean(), "false", "", noted, kNoInference},
    {kHybrid, "pin_parameters", a_boolean(), "true", "", noted, kNoInference},
    {kHybrid, "tp_gather_partition_size", any_whole(), "8", "", noted, kNoInference},
    {kHybrid, "enable_cuda_graph", a_boolean(), "false", "", noted, kNoInference},
    {"timers", "throughput", an_object(), "", "", noted, kTimed},
    {"timers.throughput", "enabled", a_boolean(), "true", "", noted, kTimed},
    {"timers.throughput", "synchronized", a_boolean(), "true", "", noted, kTimed},
    {"", "autotuning", an_object(), "", "", noted, "'zerolab plan' says what fits"},
    {"", "weight_quantization", an_object(), "", "", noted, "weights are not quantised"},
    {"", "datastates_ckpt", an_object(), "", "", noted, "--out writes whole weights at the end"},

    {"", "fp32_allreduce", a_boolean(), "", "false", noted,
     "DeepSpeed has dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allreduce_always_fp32", a_boolean(), "", "false", noted,
     "DeepSpeed has dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allgather_size", a_whole(0), "", "", noted,
     "an older name; write \"allgather_bucket_size\" in zero_optimization"},

    {"", "amp", an_object(), "", "", dead, "Apex AMP has been removed; enable bf16 or fp16"},
    {"", "sparse_gradients", a_boolean(), "false", "false", dead, kEmbedding},
    {"", "elasticity", an_object(), "", "", dead,
     "elastic training has been removed; set the batch sizes"},
    {"", "curriculum_learning", an_object(), "", "", dead,
     "the top-level block has been removed in favour of data_efficiency"},
    {"", "progressive_layer_drop", an_object(), "", "", dead,
     "Progressive Layer Dropping has been removed"},
    {"", "eigenvalue", an_object(), "", "", dead, "Mixture-of-Quantization has been removed"},
    {"", "quantize_training", an_object(), "", "", dead,
     "Mixture-of-Quantization has been removed"},
    {"", "compression_training", an_object(), "", "", dead,
     "the compression library has been removed"},
    {"", "sparse_attention", an_object(), "", "", dead, "Sparse Attention has been removed"},
    {"", "nebula", an_object(), "", "", dead, "Nebula checkpoints have been removed"},
    {"", "graph_harvesting", a_boolean(), "false", "false", dead,
     "graph harvesting has been removed"},
};

}  // namespace

std::span<const ConfigKey> other_config_keys() { return kKeys; }

}  // namespace zl
