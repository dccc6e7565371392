#include "tutorials/exercises/judge/measure.h"

#include <algorithm>
#include <cmath>

#include "tensor/kernels.h"
#include "tutorials/exercises/02_final_gradient/script_case.h"

namespace zl::exercises {

// Plays the script to the student's observer. "calls" has all calls of ready(). Of parameter 2 in
// step 0 "ready 0 2" is the gradient at its last call, "after 0 2" that after the step. "shared 0
// 2" is there if the gradient has the memory of a contribution.
Record measure(const CheckOptions& options) {
  using namespace final_gradient_checks;
  const Script script = make_script(options);
  const int parameters = int(script.sizes.size());
  EventStream stream;
  Memory memory{{}, cpu_backend(), stream, {.poison = true}};  // fresh memory holds NaN
  Gradients gradients;
  for (const int64_t n : script.sizes)
    gradients.of.push_back(Tensor::empty(memory, MemoryUse::gradient, {n}));
  const Tensor contribution =
      Tensor::empty(memory, MemoryUse::activation, {*std::ranges::max_element(script.sizes)});
  Record record;
  int at = -1, step = 0;
  std::vector<ReadyCall> calls;
  const auto put_gradient = [&](const char* what, int p) {
    record.put(str(what, " ", step, " ", p), kernel::download_floats(gradients.of[size_t(p)]));
  };
  gradients.ready = [&](int p) {
    require(at >= 0, "ready() is called before the first event");
    require(p >= 0 && p < parameters, "ready(", p, "): the parameters are 0 to ", parameters - 1);
    calls.push_back({step, p, at});
    put_gradient("ready", p);
  };
  const std::unique_ptr<GradientObserver> observer = observe(gradients);
  require(observer != nullptr, "observe() returned no observer");
  for (const Event& event : script.events) {
    ++at, step = event.step;
    if (event.kind == Kind::begin_step) observer->begin_step();
    if (event.kind == Kind::use) observer->use(event.parameter, event.use);
    if (event.kind == Kind::begin_backward) observer->begin_backward(event.last);
    if (event.kind == Kind::end_backward) observer->end_backward();
    if (event.kind == Kind::contribution) {
      const Tensor part = contribution.slice(0, {int64_t(event.values.size())});
      kernel::upload_floats(event.values, part);
      observer->contribution(event.parameter, part);
      kernel::fill(NAN, contribution);  // as if another op used the memory
    }
    for (int p = 0; p < parameters; ++p) {
      if (gradients.of[size_t(p)].same_storage(contribution))
        record.put(str("shared ", step, " ", p), 1);
      if (event.kind == Kind::end_backward && event.last) put_gradient("after", p);
    }
  }
  record.put_rows("calls", calls);
  return record;
}

}  // namespace zl::exercises
