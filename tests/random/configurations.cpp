#include "tests/random/configurations.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "tensor/random.h"

namespace zl::test {
namespace {

const std::string kNvme =
    "zero_optimization.offload_optimizer.device=nvme "
    "zero_optimization.offload_optimizer.nvme_path=/tmp";

const std::vector<std::vector<std::string>> kOptions = {
    // What runs. 'train' is trained twice, once with a stop and a resume.
    {"compare", "compare --stages zero1,zero3",
     "compare --stages zero3_hpz,zero3_qgz,hsdp",  // groups of half the ranks
     "compare --stages zero3_hpz,zero3_qgz --ranks-per-node 1",
     "compare --stages zero2,zero3_hpz,zero3_qgz,hsdp --ranks-per-node 2",
     "compare --stages zero3_hpz,zero3_qgz zero_optimization.zero_hpz_partition_size=3",
     "compare --stages hsdp --replicas 2", "compare --stages zero3,hsdp zerolab.replicas=3",
     "compare --stages zero3,zero3_qwz", "compare zerolab.as=deepspeed-2",
     "compare zerolab.as=fsdp2", "train --stage ddp",
     "train --stage zero1 --checkpoint-writes still",
     "train --stage zero2 --checkpoint-writes snapshot", "train --stage zero3",
     "train --stage zero3_hpz --ranks-per-node 2", "train --stage hsdp --replicas 2",
     "train --stage zero3_qwz"},
    {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 4", "--ranks 5", "--ranks 6"},
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
    {"", "zero_optimization.offload_optimizer.device=cpu", kNvme,
     kNvme + " zero_optimization.offload_optimizer.pipeline_read=false",
     kNvme + " zero_optimization.offload_optimizer.pipeline_write=false",
     kNvme + " zero_optimization.offload_optimizer.pipeline_read=false "
             "zero_optimization.offload_optimizer.pipeline_write=false"},
    {"", "zero_optimization.sub_group_size=1", "zero_optimization.sub_group_size=3000"},
    {"", "zero_optimization.offload_param.device=cpu",
     "zero_optimization.offload_param.device=nvme zero_optimization.offload_param.nvme_path=/tmp"},
    {"", "--device-memory 400KiB", "--host-memory 48KiB"},
    {"", "zerolab.recompute=none", "zerolab.recompute=full",
     "activation_checkpointing.number_checkpoints=1",
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

constexpr size_t kOpen = size_t(-1);  // no value yet
constexpr int kAttempts = 8;          // from one pair, before it is tried beside first values

// Fisher and Yates.
template <class T>
void shuffle(std::vector<T>& list, const PhiloxStream& random) {
  for (size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[size_t(random.uniform(i) * double(i))]);
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

Configuration first_configuration() { return Configuration(kOptions.size(), 0); }

Configuration random_configuration(uint64_t seed, uint64_t index, uint64_t attempt) {
  const PhiloxStream random{seed, index};
  Configuration configuration;
  for (const auto& values : kOptions)
    configuration.push_back(size_t(
        random.uniform(attempt * kOptions.size() + configuration.size()) * double(values.size())));
  return configuration;
}

std::string command_of(const Configuration& configuration, const std::string& extra) {
  std::string arguments;
  for (size_t option = 0; option < configuration.size(); ++option) {
    std::istringstream words(kOptions[option][configuration[option]]);
    for (std::string word; words >> word;) {
      if (word.find_first_of("[*") < word.size()) word = "'" + word + "'";
      arguments += (word.find('=') < word.size() ? " --set " : " ") + word;
    }
  }
  arguments += extra.empty() ? "" : " " + extra;
  if (arguments.starts_with(" train")) return resumed(arguments.substr(1));
  return "zerolab" + arguments + " --steps 3";
}

PairwiseSet::PairwiseSet(uint64_t seed) : seed_(seed) {
  for (size_t option = 0; option < kOptions.size(); ++option) {
    first_.push_back(values_.size());
    for (size_t value = 0; value < kOptions[option].size(); ++value)
      values_.emplace_back(option, value);
  }
  pairs_.resize(values_.size() * values_.size());
  for (size_t a = 0; a < values_.size(); ++a)
    for (size_t b = a + 1; b < values_.size(); ++b)
      if (values_[a].first != values_[b].first) order_.emplace_back(a, b);
  shuffle(order_, {seed_, drawn_++});
}

PairwiseSet::Pair& PairwiseSet::pair(size_t option, size_t value, size_t other,
                                     size_t other_value) {
  const size_t a = first_[option] + value, b = first_[other] + other_value;
  return pairs_[std::min(a, b) * values_.size() + std::max(a, b)];
}

void PairwiseSet::complete(Configuration& c) {
  std::vector<size_t> options(c.size());
  std::iota(options.begin(), options.end(), size_t(0));
  const PhiloxStream random{seed_, drawn_++};
  shuffle(options, random);
  for (const size_t option : options) {
    if (c[option] != kOpen) continue;
    const size_t count = kOptions[option].size();
    const size_t begin = size_t(random.uniform(c.size() + option + 1) * double(count));
    double most = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t value = (begin + i) % count;
      double sum = 0;
      for (size_t other = 0; other < c.size(); ++other) {
        if (c[other] == kOpen) continue;
        const Pair& p = pair(option, value, other, c[other]);
        sum += (p.done ? 0 : 1) - p.refusals;
      }
      if (i == 0 || sum > most) c[option] = value, most = sum;
    }
  }
}

PairwiseSet::Pair& PairwiseSet::start() {
  return pairs_[order_[begin_].first * values_.size() + order_[begin_].second];
}

std::optional<Configuration> PairwiseSet::next() {
  while (begin_ < order_.size() && start().done) ++begin_, attempts_ = 0;
  if (begin_ == order_.size()) return std::nullopt;
  Configuration c(kOptions.size(), attempts_ < kAttempts ? kOpen : 0);
  for (const size_t i : {order_[begin_].first, order_[begin_].second})
    c[values_[i].first] = values_[i].second;
  if (attempts_ < kAttempts) complete(c);
  return c;
}

void PairwiseSet::tell(const Configuration& c, bool runs) {
  for (size_t option = 0; option < c.size(); ++option)
    for (size_t other = option + 1; other < c.size(); ++other) {
      Pair& p = pair(option, c[option], other, c[other]);
      covered_ += runs && !p.done;
      if (runs)
        p = {true, 0};
      else if (!p.done)
        ++p.refusals;
    }
  if (runs) return;
  if (attempts_++ < kAttempts) return;
  start().done = true;
  ++impossible_;
}

}  // namespace zl::test
