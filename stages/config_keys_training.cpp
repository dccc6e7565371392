// Keys that decide the arithmetic: batch, clipping, optimizer, schedule, precision.

#include "stages/config_keys.h"

namespace zl {
namespace {

using enum ConfigUse;

constexpr double kMostBatch = 1 << 20;  // so that no product of batch sizes can overflow

constexpr ConfigKey kKeys[] = {
    {"", "train_batch_size", a_whole(1, kMostBatch), "", "", honoured, "windows of a step, over all ranks and micro-batches",
     "Train batch size: {} has to be greater than 0"},
    {"", "train_micro_batch_size_per_gpu", a_whole(1, kMostBatch), "", "4", honoured, "windows of a rank's micro-batch",
     "Micro batch size per gpu: {} has to be greater than 0"},
    {"", "gradient_accumulation_steps", a_whole(1, kMostBatch), "", "1", honoured, "micro-batches of a step",
     "Gradient accumulation steps: {} has to be greater than 0"},
    {"", "gradient_clipping", a_number(0), "1.0", "0", honoured,
     "largest L2 norm of the gradient; 0: off; with a file the default is DeepSpeed's"},
    {"", "optimizer", an_object(), "", "", honoured, "type and params"},
    {"optimizer", "type", a_text(), "", "\"AdamW\"", honoured, "Adam, AdamW or SGD, in upper or lower case"},
    {"optimizer", "params", an_object(), "", "", honoured, "see below"},
    {"optimizer", "legacy_fusion", a_boolean(), "false", "false", noted, "updates go over one flat range per unit"},
    {"optimizer.params", "lr", a_number(0), "0.001", "0.001", honoured, "learning rate"},
    {"optimizer.params", "betas", {ConfigType::Kind::betas}, "[0.9, 0.999]", "[0.9, 0.999]", honoured, "of AdamW's two moments"},
    {"optimizer.params", "eps", a_number(0), "1e-08", "1e-08", honoured, "added to AdamW's root"},
    {"optimizer.params", "weight_decay", a_number(0), "0", "0", honoured, "decay of the weights"},
    {"optimizer.params", "bias_correction", a_boolean(), "true", "true", honoured, "of AdamW's moments"},
    {"optimizer.params", "adam_w_mode", a_boolean(), "true", "true", honoured, "of Adam: false adds the decay to the gradient"},
    {"optimizer.params", "momentum", a_number(0), "0", "0", honoured, "of SGD"},
    {"optimizer.params", "dampening", a_number(), "0", "0", honoured, "of SGD"},
    {"optimizer.params", "nesterov", a_boolean(), "false", "false", honoured, "of SGD"},
    {"optimizer.params", "max_grad_norm", a_number(), "", "", refused,
     "write \"gradient_clipping\" at the top level (DeepSpeed: 'max_grad_norm' is not supported as an optimizer parameter, "
     "please "
     "switch to using the deepspeed parameter 'gradient_clipping')"},
    {"optimizer.params", "amsgrad", a_boolean(), "false", "false", refused, "zerolab's AdamW has no AMSGrad; write false"},
    {"optimizer.params", "maximize", a_boolean(), "false", "false", refused, "zerolab minimises the loss; write false"},
    {"optimizer.params", "torch_adam", a_boolean(), "false", "", noted, "there is one implementation of AdamW"},
    {"optimizer.params", "fused", a_boolean(), "", "", noted, "there is one implementation of each optimizer"},
    {"optimizer.params", "foreach", a_boolean(), "", "", noted, "there is one implementation of each optimizer"},

    {"", "scheduler", an_object(), "", "", honoured, "type and params; absent: the learning rate is constant"},
    {"scheduler", "type", a_text(), "", "", honoured, "WarmupLR, WarmupDecayLR or WarmupCosineLR"},
    {"scheduler", "params", an_object(), "", "", honoured, "see below"},
    {"scheduler.params", "warmup_min_lr", a_number(), "0.0", "0", honoured,
     "of WarmupLR and WarmupDecayLR: where warm-up begins"},
    {"scheduler.params", "warmup_max_lr", a_number(), "", "", honoured,
     "where it ends; default: the optimizer's rate, 0.001 for WarmupDecayLR"},
    {"scheduler.params", "warmup_num_steps", a_whole(1), "1000", "1000", honoured, "steps of warm-up; 1 counts as 2",
     "warmup_num_steps must be a positive integer, got {}"},
    {"scheduler.params", "warmup_type", a_text(), "\"log\"", "\"log\"", honoured, "log or linear"},
    {"scheduler.params", "total_num_steps", a_whole(1), "", "", honoured,
     "of WarmupDecayLR and WarmupCosineLR: where the rate reaches its end; \"auto\": the run's steps"},
    {"scheduler.params", "warmup_min_ratio", a_number(), "0.0", "0", honoured,
     "of WarmupCosineLR: where warm-up begins, as a share of the optimizer's rate"},
    {"scheduler.params", "cos_min_ratio", a_number(), "0.0001", "0.0001", honoured, "of WarmupCosineLR: where the cosine ends"},
    {"scheduler.params", "last_batch_iteration", a_whole(-1), "-1", "-1", noted, "a run starts at its first step"},

    {"", "fp16", an_object(), "", "", honoured, "training in fp16 with a loss scale"},
    {"fp16", "enabled", a_boolean(), "false", "false", honoured, "parameters, gradients and activations are stored in fp16"},
    {"fp16", "loss_scale", strict(a_number(0)), "0", "0", honoured, "a fixed loss scale, 2^-126 to 2^126; 0: a dynamic one",
     "fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling)"},
    {"fp16", "initial_scale_power", any_whole(), "16", "16", honoured,
     "the dynamic scale starts at 2 to this power, -126 to 126"},
    {"fp16", "loss_scale_window", strict(a_whole(1)), "1000", "1000", honoured, "steps without overflow that double the scale",
     "fp16.loss_scale_window must be > 0 when dynamic loss scaling is enabled (loss_scale=0)"},
    {"fp16", "hysteresis", any_whole(), "2", "2", honoured, "overflows that halve the scale; below 1: it is never halved"},
    {"fp16", "consecutive_hysteresis", a_boolean(), "false", "false", honoured,
     "a step without overflow starts that count again"},
    {"fp16", "min_loss_scale", strict(a_whole(1)), "1", "1", honoured, "the scale never falls below this",
     "fp16.min_loss_scale must be > 0 when dynamic loss scaling is enabled (loss_scale=0)"},
    {"fp16", "auto_cast", a_boolean(), "false", "", noted, "a model's inputs are token ids, which are never cast"},
    {"fp16", "fp16_master_weights_and_grads", a_boolean(), "false", "false", refused, "the master copy is fp32; write false"},
    {"", "bf16", an_object(), "", "", honoured, "training in bf16"},
    {"bf16", "enabled", a_boolean(), "false", "false", honoured, "parameters, gradients and activations are stored in bf16"},
    {"bf16", "check_grad_overflow", a_boolean(), "true", "true", honoured, "a step whose gradient is not finite is skipped"},
    {"bf16", "immediate_grad_update", a_boolean(), "false", "", noted, "gradients are added up where backward leaves them"},
    {"bf16", "bf16_master_weights_and_grads", a_boolean(), "false", "false", refused, "the master copy is fp32; write false"},
    {"bf16", "bf16_optimizer_states", a_boolean(), "false", "false", refused, "moments are fp32; write false"},
    {"", "bfloat16", an_object(), "", "", honoured, "DeepSpeed's older name of bf16, with the same keys"},
    {"", "communication_data_type", a_choice("fp32 fp16 bf16"), "", "", honoured,
     "type of gradients on their way; default: as they are stored",
     "Invalid communication_data_type. Supported data types: ['fp16', 'bf16', 'fp32']. Got: {}"},
    {"", "data_types", an_object(), "", "", honoured, "see below"},
    {"data_types", "grad_accum_dtype",
     a_choice("fp32 float32 float torch.float32 fp16 float16 half torch.float16 bf16 bfloat16 torch.bfloat16"), "", "", honoured,
     "type in which micro-batches are added: fp32 or the precision; default: the precision"},
    {"data_types", "param_dtype", a_text(), "", "", noted, "parameters have the type of fp16 or bf16, else fp32"},
    {"data_types", "buffer_dtype", a_text(), "", "", noted, "zerolab's models have no buffers"},
    {"data_types", "keep_in_fp32_modules", anything(), "\"auto\"", "", noted, "zerolab's models have no buffers"},
    {"", "torch_autocast", an_object(), "", "", honoured, "see below"},
    {"torch_autocast", "enabled", a_boolean(), "false", "false", refused,
     "zerolab stores in one type and computes in fp32; enable bf16 or fp16"},
    {"torch_autocast", "dtype", a_text(), "", "", noted, "there is no autocast"},
    {"torch_autocast", "lower_precision_safe_modules", some_texts(), "", "", noted, "there is no autocast"},
    {"", "prescale_gradients", a_boolean(), "false", "false", noted,
     "gradients are added, then divided by the number of ranks; only their rounding differs"},
    {"", "gradient_predivide_factor", a_number(), "1.0", "1.0", noted,
     "gradients are added, then divided by the number of ranks; only their rounding differs"},
    {"", "gradient_allreduce_op", a_choice("mean sum"), "\"mean\"", "\"mean\"", refused,
     "gradients are averaged over the ranks; write \"mean\" and multiply the learning rate, or clip",
     "Invalid gradient_allreduce_op. Supported operations: ['mean', 'sum']. Got: '{}'"},
};

}  // namespace

std::span<const ConfigKey> batch_config_keys() { return kKeys; }

}  // namespace zl
