#include "tutorials/exercises/02_final_gradient/script_case.h"

#include "tensor/random.h"

namespace zl::exercises::final_gradient_checks {
namespace {

using Kind = Event::Kind;

struct Features {
  int steps = 1, micro_batches = 1;
  bool tied = false, unused = false, early = false, evaluation = false, checkpointed = false,
       no_gradient = false;
};

Features features_of(const std::string& check) {
  const bool all = check == kAll, several = all || check == kSteps;
  return {.steps = several ? 3 : 1,
          .micro_batches = check == kOnce || check == kTied || check == kUnused ? 1
                           : check == kMicroBatches || all                      ? 3
                                                                                : 2,
          .tied = check != kOnce && check != kUnused,
          .unused = several || check == kUnused,
          .early = all || check == kEarly,
          .evaluation = all || check == kEvaluation,
          .checkpointed = all || check == kCheckpointed,
          .no_gradient = all || check == kNoGradient};
}

// One use in the forward pass of a micro-batch.
struct Layer {
  int parameter = 0;
  bool checkpointed = false;
  bool has_gradient = true;  // false: its value does not reach the loss
};

class Writer {
 public:
  Writer(const std::string& check, const CheckOptions& options)
      : features_(features_of(check)), stream_{options.seed, fnv1a(check)} {
    for (int64_t p = number(6, 8); p > 0; --p) script_.sizes.push_back(number(3, 6));
    script_.micro_batches = features_.micro_batches;
    for (int p = 0; p < parameters(); ++p) order_.push_back(p);
    for (size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1], order_[size_t(number(0, int64_t(i) - 1))]);
  }

  Script written() {
    for (step_ = 0; step_ < features_.steps; ++step_) {
      event(Kind::begin_step);
      for (micro_batch_ = 0; micro_batch_ < features_.micro_batches; ++micro_batch_)
        micro_batch(layers());
      if (features_.evaluation) evaluation();
    }
    return script_;
  }

 private:
  int64_t number(int64_t least, int64_t most) {
    return least + int64_t(stream_.uniform(next_++) * double(most - least + 1));
  }
  int parameters() const { return int(script_.sizes.size()); }
  Event& event(Kind kind, int parameter = 0) {
    script_.events.push_back(
        {.kind = kind, .parameter = parameter, .step = step_, .micro_batch = micro_batch_});
    return script_.events.back();
  }
  void use(int parameter, Use use) { event(Kind::use, parameter).use = use; }

  // The first parameter of the order is tied: the first and the last layer use it. The second is
  // also used twice, one of the uses checkpointed.
  std::vector<Layer> layers() {
    const bool last = micro_batch_ == features_.micro_batches - 1;
    std::vector<Layer> list;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (features_.unused && i + 1 == order_.size()) continue;            // in no micro-batch
      if (features_.unused && i == 2 && step_ % 2 == 0 && last) continue;  // not in the last
      if (features_.early && i == 3 && micro_batch_ > 0) continue;
      list.push_back(
          {.parameter = order_[i], .checkpointed = features_.checkpointed && i % 3 != 2});
    }
    if (features_.tied) list.push_back({.parameter = order_[1]});
    if (features_.no_gradient) {
      if (!last) list.push_back({.parameter = order_[4], .has_gradient = false});
      if (last) list.push_back({.parameter = order_[5], .has_gradient = false});
    }
    if (features_.tied) list.push_back({.parameter = order_[0]});
    return list;
  }

  void evaluation() {
    for (const int parameter : order_) use(parameter, Use::evaluation);
    if (features_.tied) use(order_[0], Use::evaluation);
  }

  void contribution(int parameter) {
    Event& e = event(Kind::contribution, parameter);
    for (int64_t i = 0; i < script_.sizes[size_t(parameter)]; ++i)
      e.values.push_back(float(number(1, 99)));
  }

  // Backward visits the layers in reverse. It runs neighbours that are checkpointed again together.
  void micro_batch(const std::vector<Layer>& layers) {
    if (features_.evaluation) evaluation();
    for (const Layer& layer : layers)
      use(layer.parameter, layer.checkpointed ? Use::checkpointed : Use::recorded);
    if (features_.evaluation) evaluation();
    event(Kind::begin_backward).last = micro_batch_ == features_.micro_batches - 1;
    for (size_t end = layers.size(); end > 0;) {
      size_t begin = end - 1;
      while (layers[end - 1].checkpointed && begin > 0 && layers[begin - 1].checkpointed) --begin;
      if (layers[begin].checkpointed)
        for (size_t i = begin; i < end; ++i) use(layers[i].parameter, Use::again);
      for (; end > begin; --end)
        if (layers[end - 1].has_gradient) contribution(layers[end - 1].parameter);
    }
    event(Kind::end_backward);
  }

  const Features features_;
  const PhiloxStream stream_;
  uint64_t next_ = 0;
  std::vector<int> order_;  // of the layers
  int step_ = 0, micro_batch_ = 0;
  Script script_;
};

}  // namespace

Script make_script(const std::string& check, const CheckOptions& options) {
  return Writer(check, options).written();
}

}  // namespace zl::exercises::final_gradient_checks
