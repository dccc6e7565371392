// What each check of exercise 02 plays: events of some steps, which follow from the seed.
#pragma once

#include <string>
#include <vector>

#include "tutorials/exercises/02_final_gradient/final_gradient.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises::final_gradient_checks {

// A call of ready(): its event, and how many contributions have come in this micro-batch.
struct ReadyCall {
  int step = 0, parameter = 0, event = 0, come = 0;
};

enum class Kind { begin_step, use, begin_backward, contribution, end_backward };
struct Event {
  Kind kind{};
  int step = 0, micro_batch = 0;
  bool last = false;          // of the step's micro-batches
  int parameter = 0;          // of a use or contribution
  Use use = Use::recorded;    // of a use
  std::vector<float> values;  // of a contribution: small integers
};

struct Script {
  std::vector<int64_t> sizes;  // [n] by parameter
  int micro_batches = 1;
  std::vector<Event> events;
};

// One use in the forward pass of a micro-batch.
struct Layer {
  int parameter = 0;
  bool checkpointed = false;
  bool has_gradient = true;  // false: its value does not reach the loss
};

// In the micro-batch of `now`. The first parameter of the order is tied: the first and the last
// layer use it. Two others are used twice, one of them with one of its uses checkpointed.
inline std::vector<Layer> layers(const CheckOptions& options, const std::vector<int>& order,
                                 const Event& now) {
  const auto is = [&](const char* name) { return options.is(name); };
  const bool once = is("each parameter used once") || is("unused parameters"),
             unused = is("unused parameters") || is("three steps");
  std::vector<Layer> list;
  for (size_t i = 0; i < order.size(); ++i) {
    if (unused && i + 1 == order.size()) continue;                    // in no micro-batch
    if (unused && i == 2 && now.last && now.step % 2 == 0) continue;  // not in the last one
    if (is("used in the first micro-batch only") && i == 3 && now.micro_batch > 0) continue;
    list.push_back({order[i], is("checkpointed passes") && i % 3 != 2});
  }
  if (!once) list.insert(list.end(), {{order[1]}, {order[5]}});
  if (is("a branch without a gradient")) list.push_back({order[now.last ? 5 : 4], false, false});
  if (!once) list.push_back({order[0]});
  return list;
}

inline Script make_script(const CheckOptions& options) {
  Draw draw(options);
  const auto is = [&](const char* name) { return options.is(name); };
  const bool one = is("each parameter used once") || is("unused parameters") || is("tied weights");
  Script script;
  script.micro_batches = one ? 1 : is("three micro-batches") ? 3 : 2;
  std::vector<int> order;  // of the layers
  for (int64_t p = draw.between(7, 8); p > 0; --p) {
    script.sizes.push_back(draw.between(3, 6));
    order.insert(order.begin() + draw.between(0, int64_t(order.size())), int(order.size()));
  }
  Event now;
  const auto add = [&](Kind kind, int parameter = 0, Use use = Use::recorded) {
    now.kind = kind, now.parameter = parameter, now.use = use, now.values.clear();
    for (int64_t i = 0; kind == Kind::contribution && i < script.sizes[size_t(parameter)]; ++i)
      now.values.push_back(float(draw.between(1, 99)));
    script.events.push_back(now);
  };
  const auto micro_batch = [&] {
    const std::vector<Layer> list = layers(options, order, now);
    for (const int parameter : order)
      if (is("evaluation in between")) add(Kind::use, parameter, Use::evaluation);
    for (const Layer& layer : list)
      add(Kind::use, layer.parameter, layer.checkpointed ? Use::checkpointed : Use::recorded);
    add(Kind::begin_backward);
    // In reverse; neighbours that are checkpointed run again together.
    for (size_t end = list.size(); end > 0;) {
      size_t begin = end - 1;
      while (list[begin].checkpointed && begin > 0 && list[begin - 1].checkpointed) --begin;
      for (size_t i = begin; i < end; ++i)
        if (list[i].checkpointed) add(Kind::use, list[i].parameter, Use::again);
      for (; end > begin; --end)
        if (list[end - 1].has_gradient) add(Kind::contribution, list[end - 1].parameter);
    }
    add(Kind::end_backward);
  };
  for (now.step = 0; now.step < (is("three steps") ? 3 : 1); ++now.step) {
    now.micro_batch = 0, now.last = false;
    add(Kind::begin_step);
    for (; now.micro_batch < script.micro_batches; ++now.micro_batch) {
      now.last = now.micro_batch + 1 == script.micro_batches;
      micro_batch();
    }
  }
  return script;
}

}  // namespace zl::exercises::final_gradient_checks
