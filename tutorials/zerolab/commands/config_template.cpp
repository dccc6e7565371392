#include "tutorials/zerolab/commands/config_template.h"

#include "tensor/error.h"

namespace zl::cli {
namespace {

constexpr char kHead[] = R"(// Settings for zerolab and for DeepSpeed, which reads comments too.
//   zerolab config check FILE --ranks 4      what is wrong or has no effect
//   zerolab config explain FILE              every setting and where it comes from
//   zerolab train --config FILE --ranks 4
{
  // A step takes train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks windows.
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 1,

  // The gradient's largest L2 norm; 0 turns clipping off. With a file the default is 1.0, as in DeepSpeed.
  "gradient_clipping": 1.0,

  // Adam, AdamW or SGD. Absent keys have the values that stand here.
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}
  },

  // WarmupLR, WarmupDecayLR or WarmupCosineLR. Without this block the rate is constant.
  // "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001, "warmup_num_steps": 10}},
)";

constexpr char kFp32[] = R"(
  // Numbers are fp32. "bf16": {"enabled": true} stores them in bf16; "fp16" in fp16 with a loss scale.
)";
constexpr char kBf16[] = R"(
  // Parameters, gradients and activations are stored in bf16, the optimizer keeps an fp32 copy. A step whose gradient is
  // not finite is skipped.
  "bf16": {"enabled": true, "check_grad_overflow": true},
)";
constexpr char kFp16[] = R"(
  // Parameters, gradients and activations are stored in fp16, the optimizer keeps an fp32 copy. loss_scale 0 is a dynamic
  // scale: it starts at 2^initial_scale_power, doubles after loss_scale_window good steps and halves after hysteresis bad
  // ones.
  "fp16": {
    "enabled": true,
    "loss_scale": 0,
    "initial_scale_power": 16,
    "loss_scale_window": 1000,
    "hysteresis": 2,
    "min_loss_scale": 1
  },
)";

constexpr char kTail[] = R"(
  // Our own block, which DeepSpeed ignores. Flags of the command line win over all of these.
  "zerolab": {
    "model": "small",      // tiny, small, gpt2, gpt2-medium, …
    "steps": 100,
    "seed": 1337,
    "recompute": false     // true: blocks are computed again in backward, which saves memory and costs time
  }
}
)";

const char* meaning(StageKind stage) {
  switch (stage) {
    case StageKind::ddp: return "every rank holds everything (plain data parallelism)";
    case StageKind::zero1: return "each rank holds its share of the optimizer state";
    case StageKind::zero2: return "each rank holds its share of optimizer state and gradients";
    case StageKind::zero3:
      return "each rank holds its share of optimizer state, gradients and parameters";
  }
  return "";
}

}  // namespace

std::string config_template(const TemplateOptions& options) {
  std::string text = kHead;
  text += options.precision == Dtype::f16    ? kFp16
          : options.precision == Dtype::bf16 ? kBf16
                                             : kFp32;
  text += str("\n  // Stage ", int(options.stage), ": ", meaning(options.stage),
              ".\n  \"zero_optimization\": {\n    \"stage\": ", int(options.stage));
  if (options.offload) {
    text += ",\n    // Optimizer state stays in host memory";
    text += options.stage == StageKind::zero1 ? "." : ", and so does the gradient shard.";
    text += "\n    \"offload_optimizer\": {\"device\": \"cpu\"}";
  }
  return text +
         "\n    // \"reduce_bucket_size\": 5e8, \"allgather_bucket_size\": 5e8   elements that "
         "travel together; absent: a unit "
         "at a time\n  },\n" +
         kTail;
}

}  // namespace zl::cli
