// Keys of what zerolab has not, and of what DeepSpeed has no more.

#include "stages/config_keys.h"

namespace zl {
namespace {

using enum ConfigUse;

constexpr char kEmbedding[] = "sparse gradients of embeddings have been removed; they are reduced dense, as here";

constexpr ConfigKey kKeys[] = {
    {"", "zero_allow_untested_optimizer", a_boolean(), "false", "true", noted, "every optimizer may be used with every stage"},
    {"", "zero_force_ds_cpu_optimizer", a_boolean(), "true", "", noted, "the same update runs on device and host"},
    {"", "managed_gradient_accumulation", a_boolean(), "true", "true", noted, "the engine counts the micro-batches of a step"},
    {"", "disable_allgather", a_boolean(), "false", "false", noted, "parameters are gathered by an all-gather"},
    {"", "dataloader_drop_last", a_boolean(), "false", "", noted, "windows start again where they end, so no batch is cut"},
    {"", "vocabulary_size", or_null(a_whole(1)), "null", "", noted, "the vocabulary is the model's"},
    {"", "disable_python_gc", a_boolean(), "false", "", noted, "there is no Python"},
    {"", "seq_parallel_communication_data_type", a_choice("fp32 fp16 bf16"), "\"fp32\"", "", noted,
     "there is no sequence parallelism"},
    {"", "sequence_parallel_size", a_whole(1), "1", "1", refused,
     "there is no sequence parallelism; every rank reads its own windows"},
    {"", "use_data_before_expert_parallelism", a_boolean(), "false", "", noted, "there are no experts"},
    {"", "expert_parallel", an_object(), "", "", noted, "there are no experts"},
    {"", "data_parallel_group", anything(), "", "", noted, "all ranks are one group"},
    {"", "tensor_parallel", an_object(), "", "", honoured, "see below"},
    {"tensor_parallel", "autotp_size", a_whole(0), "0", "0", refused,
     "there is no tensor parallelism; every rank reads its own windows"},
    {"tensor_parallel", "tp_size", a_whole(0), "1", "1", refused,
     "there is no tensor parallelism; every rank reads its own windows"},
    {"", "data_efficiency", an_object(), "", "", honoured, "see below"},
    {"data_efficiency", "enabled", a_boolean(), "false", "false", refused,
     "windows are read in their order, or shuffled (--shuffle); write false"},
    {"data_efficiency", "seed", a_whole(0), "1234", "", noted, "there is no data efficiency"},
    {"data_efficiency", "data_sampling", an_object(), "", "", noted, "there is no data efficiency"},
    {"data_efficiency", "data_routing", an_object(), "", "", noted, "there is no data efficiency"},
    {"", "pipeline", an_object(), "", "", noted, "there is no pipeline"},
    {"", "compile", an_object(), "", "", noted, "kernels are compiled with the program"},
    {"", "hybrid_engine", an_object(), "", "", noted, "there is no inference engine"},
    {"", "autotuning", an_object(), "", "", noted, "'zerolab plan' says what fits"},
    {"", "weight_quantization", an_object(), "", "", noted, "weights are not quantised"},
    {"", "datastates_ckpt", an_object(), "", "", noted, "--out writes whole weights at the end"},

    {"", "fp32_allreduce", a_boolean(), "", "false", noted,
     "DeepSpeed has dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allreduce_always_fp32", a_boolean(), "", "false", noted,
     "DeepSpeed has dropped this name; write \"communication_data_type\": \"fp32\""},
    {"", "allgather_size", a_whole(0), "", "", noted, "an older name; write \"allgather_bucket_size\" in zero_optimization"},

    {"", "amp", an_object(), "", "", dead, "Apex AMP has been removed; enable bf16 or fp16"},
    {"", "sparse_gradients", a_boolean(), "false", "false", dead, kEmbedding},
    {"", "elasticity", an_object(), "", "", dead, "elastic training has been removed; set the batch sizes"},
    {"", "curriculum_learning", an_object(), "", "", dead, "the top-level block has been removed in favour of data_efficiency"},
    {"", "progressive_layer_drop", an_object(), "", "", dead, "Progressive Layer Dropping has been removed"},
    {"", "eigenvalue", an_object(), "", "", dead, "Mixture-of-Quantization has been removed"},
    {"", "quantize_training", an_object(), "", "", dead, "Mixture-of-Quantization has been removed"},
    {"", "compression_training", an_object(), "", "", dead, "the compression library has been removed"},
    {"", "sparse_attention", an_object(), "", "", dead, "Sparse Attention has been removed"},
    {"", "nebula", an_object(), "", "", dead, "Nebula checkpoints have been removed"},
    {"", "graph_harvesting", a_boolean(), "false", "false", dead, "graph harvesting has been removed"},
};

}  // namespace

std::span<const ConfigKey> other_config_keys() { return kKeys; }

}  // namespace zl
