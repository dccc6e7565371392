#include "tutorials/zerolab/bench/configuration_space.h"

#include <algorithm>
#include <tuple>

#include "tensor/random.h"

namespace zl::cli {
namespace {

using Arguments = std::vector<std::string>;

Arguments set(const std::string& assignment) { return {"--set", assignment}; }
Arguments set(const std::string& a, const std::string& b) { return {"--set", a, "--set", b}; }
Arguments schedule(const std::string& type) {
  Arguments all = set("scheduler.type=" + type, "scheduler.params.warmup_num_steps=2");
  if (type != "WarmupLR") all.insert(all.end(), {"--set", "scheduler.params.total_num_steps=4"});
  return all;
}
Arguments model(const char* layers, const char* heads, const char* width, const char* window) {
  return {"--n-layer", layers, "--n-head", heads, "--n-embd", width, "--block-size", window};
}

// Each row is one option, each entry the arguments of one value; {} leaves the default.
const std::vector<std::vector<Arguments>>& options() {
  static const std::vector<std::vector<Arguments>> all = {
      {{"--ranks", "1"}, {"--ranks", "2"}, {"--ranks", "3"}, {"--ranks", "4"}, {"--ranks", "5"}},
      {model("1", "1", "7", "5"), model("2", "2", "12", "9"), model("3", "3", "15", "4"),
       model("1", "4", "20", "13")},
      {{"--vocab-size", "256"}, {"--vocab-size", "259"}},
      {{}, set("bf16.enabled=true"), set("fp16.enabled=true")},
      {{},
       set("fp16.loss_scale=128"),
       set("fp16.initial_scale_power=40", "fp16.hysteresis=1"),
       set("fp16.loss_scale_window=1", "fp16.initial_scale_power=4")},
      {{}, set("data_types.grad_accum_dtype=fp32")},
      {{},
       set("communication_data_type=fp32"),
       set("communication_data_type=fp16"),
       set("communication_data_type=bf16")},
      {{}, {"--separate-master"}},
      {set("gradient_accumulation_steps=1"), set("gradient_accumulation_steps=2"),
       set("gradient_accumulation_steps=3")},
      {set("train_micro_batch_size_per_gpu=1"), set("train_micro_batch_size_per_gpu=3")},
      {{},
       set("zero_optimization.reduce_bucket_size=700"),
       set("zero_optimization.reduce_bucket_size=5e8")},
      {{},
       set("zero_optimization.allgather_bucket_size=700"),
       set("zero_optimization.allgather_bucket_size=5e8")},
      {{}, set("zero_optimization.offload_optimizer.device=cpu")},
      {{}, set("zerolab.recompute=true")},
      {{},
       set("optimizer.type=Adam", "optimizer.params.adam_w_mode=false"),
       set("optimizer.type=SGD"),
       set("optimizer.type=SGD", "optimizer.params.momentum=0.9")},
      {{},
       set("optimizer.params.weight_decay=0.1"),
       set("optimizer.params.weight_decay=0.1", "zerolab.no_weight_decay=*bias")},
      {{}, set("gradient_clipping=0.001"), set("gradient_clipping=1.0")},
      {{}, schedule("WarmupLR"), schedule("WarmupDecayLR"), schedule("WarmupCosineLR")},
      {{}, {"--shuffle"}},
  };
  return all;
}

// A value of one option.
struct Value {
  size_t option, index;
};

// Which pairs of values have met.
class Pairs {
 public:
  Pairs() {
    size_t next = 0;
    for (const size_t n : configuration_space()) {
      first_.push_back(next);
      next += n;
    }
    met_.assign(next, std::vector<bool>(next, false));
  }
  bool met(Value a, Value b) const { return met_[at(a)][at(b)]; }
  void meet(const Configuration& c) {
    for (size_t i = 0; i < c.size(); ++i)
      for (size_t j = 0; j < c.size(); ++j) met_[at({i, c[i]})][at({j, c[j]})] = true;
  }
  // How many of the values of `chosen` that are decided have not met `value`.
  size_t fresh(const Configuration& chosen, const std::vector<bool>& decided, Value value) const {
    size_t n = 0;
    for (size_t i = 0; i < chosen.size(); ++i) n += decided[i] && !met({i, chosen[i]}, value);
    return n;
  }

 private:
  size_t at(Value v) const { return first_[v.option] + v.index; }
  std::vector<size_t> first_;
  std::vector<std::vector<bool>> met_;
};

// Fills the options that are not decided, each by the value that meets most of what is decided for
// the first time.
Configuration completed(Configuration chosen, std::vector<bool> decided, const Pairs& pairs) {
  const auto space = configuration_space();
  for (size_t option = 0; option < space.size(); ++option) {
    if (decided[option]) continue;
    size_t best = 0, most = 0;
    for (size_t index = 0; index < space[option]; ++index) {
      const size_t fresh = pairs.fresh(chosen, decided, {option, index});
      if (fresh > most) std::tie(best, most) = std::pair{index, fresh};
    }
    chosen[option] = best;
    decided[option] = true;
  }
  return chosen;
}

}  // namespace

std::vector<size_t> configuration_space() {
  std::vector<size_t> sizes;
  for (const auto& values : options()) sizes.push_back(values.size());
  return sizes;
}

Configuration random_configuration(uint64_t seed, uint64_t index) {
  const PhiloxStream random{seed, index};
  Configuration configuration;
  for (const size_t n : configuration_space())
    configuration.push_back(size_t(random.uniform(configuration.size()) * double(n)));
  return configuration;
}

std::vector<Configuration> pairwise_configurations() {
  const auto space = configuration_space();
  std::vector<Configuration> all;
  Pairs pairs;
  for (size_t i = 0; i < space.size(); ++i)
    for (size_t j = i + 1; j < space.size(); ++j)
      for (size_t a = 0; a < space[i]; ++a)
        for (size_t b = 0; b < space[j]; ++b) {
          if (pairs.met({i, a}, {j, b})) continue;
          Configuration chosen(space.size(), 0);
          std::vector<bool> decided(space.size(), false);
          std::tie(chosen[i], chosen[j]) = std::pair{a, b};
          decided[i] = decided[j] = true;
          all.push_back(completed(chosen, decided, pairs));
          pairs.meet(all.back());
        }
  return all;
}

std::vector<std::string> compare_arguments(const Configuration& configuration) {
  Arguments all = {"compare", "--steps", "3"};
  for (size_t option = 0; option < configuration.size(); ++option) {
    const Arguments& one = options()[option][configuration[option]];
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace zl::cli
