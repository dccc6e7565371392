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

// The first parameter of the order is tied: the first and the last layer use it. Two others are
// used twice, one of them with one of its uses checkpointed.
inline std::vector<Layer> layers(const std::string& check, const std::vector<int>& order, int step,
                                 bool first, bool last) {
  const auto has = [&](const char* name) { return check == name || check == "all of these"; };
  const bool tied = check != "each parameter used once" && check != "unused parameters",
             unused = has("unused parameters") || check == "three steps";
  std::vector<Layer> list;
  for (size_t i = 0; i < order.size(); ++i) {
    if (unused && i + 1 == order.size()) continue;            // in no micro-batch
    if (unused && i == 2 && last && step % 2 == 0) continue;  // not in the last one
    if (has("used in the first micro-batch only") && i == 3 && !first) continue;
    list.push_back({order[i], has("checkpointed passes") && i % 3 != 2});
  }
  if (tied) list.insert(list.end(), {{order[1]}, {order[5]}});
  if (has("a branch without a gradient")) list.push_back({order[last ? 5 : 4], false, false});
  if (tied) list.push_back({order[0]});
  return list;
}

inline Script make_script(const std::string& check, const CheckOptions& options) {
  Draw draw(check, options);
  const bool all = check == "all of these", uses = check == "tied weights" ||
                                                   check == "unused parameters" ||
                                                   check == "each parameter used once";
  Script script;
  script.micro_batches = uses ? 1 : all || check == "three micro-batches" ? 3 : 2;
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
  const auto evaluation = [&] {
    if (all || check == "evaluation in between")
      for (const int parameter : order) add(Kind::use, parameter, Use::evaluation);
  };
  for (now.step = 0; now.step < (all || check == "three steps" ? 3 : 1); ++now.step) {
    now.micro_batch = 0, now.last = false;
    add(Kind::begin_step);
    for (; now.micro_batch < script.micro_batches; ++now.micro_batch) {
      now.last = now.micro_batch + 1 == script.micro_batches;
      const std::vector<Layer> list =
          layers(check, order, now.step, now.micro_batch == 0, now.last);
      evaluation();
      for (const Layer& layer : list)
        add(Kind::use, layer.parameter, layer.checkpointed ? Use::checkpointed : Use::recorded);
      evaluation();
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
    }
  }
  return script;
}

}  // namespace zl::exercises::final_gradient_checks
