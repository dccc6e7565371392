#include "tutorials/zerolab/random/configurations.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>

#include "tensor/random.h"

namespace zl::cli {
namespace {

const std::vector<std::vector<std::string>> kOptions = {
    // What runs. 'train' is trained twice, once with a stop and a resume.
    {"compare",
     "compare --stages zero1,zero3",
     "compare --stages zero3_hpz,zero3_qgz,hsdp",  // groups of half the ranks
     "compare --stages zero3_hpz,zero3_qgz --ranks-per-node 1",
     "compare --stages zero2,zero3_hpz,zero3_qgz,hsdp --ranks-per-node 2",
     "compare --stages zero3_hpz,zero3_qgz zero_optimization.zero_hpz_partition_size=3",
     "compare --stages hsdp --replicas 2",
     "compare --stages zero3,hsdp zerolab.replicas=3",
     "compare --stages zero3,zero3_qwz",
     "compare --as paper,deepspeed-1,deepspeed-2",
     "compare --as paper,deepspeed-3",
     "compare --as paper,fsdp2,fsdp2-no-reshard,torch-ddp",
     "train --stage ddp",
     "train --stage zero1 --checkpoint-writes still",
     "train --stage zero2 --checkpoint-writes snapshot",
     "train --stage zero3",
     "train --stage zero3_hpz --ranks-per-node 2",
     "train --stage hsdp --replicas 2",
     "train --stage zero3_qwz",
     "train --stage deepspeed-2",
     "train --stage deepspeed-3",
     "train --stage fsdp2"},
    {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 4", "--ranks 5", "--ranks 6", "--ranks 1,2,3"},
    {"--n-layer 1 --n-head 1 --n-embd 7 --block-size 5",
     "--n-layer 2 --n-head 2 --n-embd 12 --block-size 9",
     "--n-layer 3 --n-head 3 --n-embd 15 --block-size 4",
     "--n-layer 1 --n-head 4 --n-embd 20 --block-size 13"},
    {"--vocab-size 256", "--vocab-size 259"},

    // Types and the loss scale.
    {"", "bf16.enabled=true", "fp16.enabled=true",
     "bf16.enabled=true bf16.check_grad_overflow=false"},
    {"", "fp16.loss_scale=128", "fp16.initial_scale_power=40 fp16.hysteresis=1",
     "fp16.initial_scale_power=40", "fp16.initial_scale_power=40 fp16.hysteresis=4",
     "fp16.initial_scale_power=20 fp16.consecutive_hysteresis=true",
     "fp16.loss_scale_window=1 fp16.initial_scale_power=4"},
    {"", "data_types.grad_accum_dtype=fp32"},
    {"", "communication_data_type=fp32", "communication_data_type=fp16",
     "communication_data_type=bf16"},
    {"", "--separate-master"},
    {"", "zerolab.reproducible=true", "zerolab.ordered=false"},

    // Micro-batches and data.
    {"gradient_accumulation_steps=1", "gradient_accumulation_steps=2",
     "gradient_accumulation_steps=3"},
    {"train_micro_batch_size_per_gpu=1", "train_micro_batch_size_per_gpu=3"},
    {"", "--shuffle"},
    {"", "--eval-every 2"},
    {"", "--seed 7"},

    // Buckets, overlap, prefetch.
    {"", "zerolab.defaults=deepspeed"},
    {"", "zero_optimization.reduce_bucket_size=700", "zero_optimization.reduce_bucket_size=20000"},
    {"", "zero_optimization.allgather_bucket_size=700",
     "zero_optimization.allgather_bucket_size=5e8"},
    {"", "zero_optimization.overlap_comm=true", "zero_optimization.overlap_comm=false"},
    {"", "zero_optimization.stage3_prefetch_bucket_size=700",
     "zero_optimization.stage3_prefetch_bucket_size=5e8"},
    {"", "zero_optimization.stage3_max_live_parameters=4000",
     "zero_optimization.stage3_max_live_parameters=12000"},
    {"", "zero_optimization.stage3_max_reuse_distance=1",
     "zero_optimization.stage3_max_reuse_distance=5000",
     "zero_optimization.stage3_max_reuse_distance=1e9"},
    {"", "zero_optimization.stage3_param_persistence_threshold=0",
     "zero_optimization.stage3_param_persistence_threshold=50"},
    {"", "--link-latency 20us", "--link-bandwidth 100MB/s"},

    // Where state is.
    {"", "--offload cpu", "--offload nvme --nvme-path /tmp",
     "--offload nvme --nvme-path /tmp zero_optimization.offload_optimizer.pipeline_read=false",
     "--offload nvme --nvme-path /tmp zero_optimization.offload_optimizer.pipeline_write=false",
     "--offload nvme --nvme-path /tmp zero_optimization.offload_optimizer.pipeline_read=false "
     "zero_optimization.offload_optimizer.pipeline_write=false"},
    {"", "zero_optimization.sub_group_size=1", "zero_optimization.sub_group_size=3000"},
    {"", "zero_optimization.offload_param.device=cpu",
     "zero_optimization.offload_param.device=nvme zero_optimization.offload_param.nvme_path=/tmp"},
    {"", "--device-memory 400KiB", "--host-memory 48KiB"},
    {"", "zerolab.recompute=none", "zerolab.recompute=full",
     "activation_checkpointing.number_checkpoints=1",
     "activation_checkpointing.cpu_checkpointing=true",
     "activation_checkpointing.partition_activations=true zerolab.replicated_micro_batches=true",
     "activation_checkpointing.partition_activations=true zerolab.replicated_micro_batches=true "
     "activation_checkpointing.cpu_checkpointing=true"},

    // The update.
    {"", "optimizer.type=Adam optimizer.params.adam_w_mode=false",
     "optimizer.type=AdamW optimizer.params.betas=[0.8,0.95] optimizer.params.eps=1e-3 "
     "optimizer.params.bias_correction=false",
     "optimizer.type=SGD", "optimizer.type=SGD optimizer.params.momentum=0.9",
     "optimizer.type=SGD optimizer.params.momentum=0.9 optimizer.params.nesterov=true"},
    {"", "optimizer.params.weight_decay=0.1",
     "optimizer.params.weight_decay=0.1 zerolab.no_weight_decay=*bias"},
    {"", "gradient_clipping=0.001", "gradient_clipping=1.0"},
    {"", "scheduler.type=WarmupLR scheduler.params.warmup_num_steps=2",
     "scheduler.type=WarmupDecayLR scheduler.params.warmup_num_steps=2 "
     "scheduler.params.total_num_steps=4",
     "scheduler.type=WarmupCosineLR scheduler.params.warmup_num_steps=2 "
     "scheduler.params.total_num_steps=4"},

    {"", "--threads 2", "--threads 3"},
    {"", "--json"},
};

// The argument as a word of a shell command.
std::string shell_word(const std::string& argument) {
  const bool plain = !argument.empty() && std::ranges::all_of(argument, [](unsigned char c) {
    return std::isalnum(c) || std::strchr("-_=.,/:+%", c);
  });
  if (plain) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

// Trains to step 4; then to step 2, and from its checkpoint to step 4. All that a step reports but
// its time must be equal, and the weights at the end.
std::string resumed(const std::string& train) {
  return "d=$(mktemp -d) && trap 'rm -r $d' EXIT && run() { zerolab " + train +
         " --sample 0 --steps $1 --out $d/$2 $3 $4 $5; } && run 4 whole --save-every 4 && "
         "run 2 parts --save-every 2 && run 4 parts --save-every 2 --resume && "
         "for i in whole parts; do sed -i 's/\"seconds\":[^,}]*//' $d/$i/metrics.jsonl; done && "
         "diff $d/whole/metrics.jsonl $d/parts/metrics.jsonl >&2 && "
         "cmp $d/whole/model.safetensors $d/parts/model.safetensors >&2";
}

}  // namespace

std::span<const std::vector<std::string>> random_options() { return kOptions; }

Configuration random_configuration(uint64_t seed, uint64_t index, uint64_t attempt) {
  const PhiloxStream random{seed, index};
  Configuration configuration;
  for (const auto& values : kOptions)
    configuration.push_back(size_t(
        random.uniform(attempt * kOptions.size() + configuration.size()) * double(values.size())));
  return configuration;
}

std::string command_of(const Configuration& configuration, const std::vector<std::string>& extra) {
  std::string arguments;
  for (size_t option = 0; option < configuration.size(); ++option) {
    std::istringstream words(kOptions[option][configuration[option]]);
    for (std::string word; words >> word;)
      arguments += (word.find('=') < word.size() ? " --set " : " ") + shell_word(word);
  }
  for (const std::string& word : extra) arguments += " " + shell_word(word);
  if (arguments.starts_with(" train")) return resumed(arguments.substr(1));
  return "zerolab" + arguments + " --steps 3";
}

}  // namespace zl::cli
