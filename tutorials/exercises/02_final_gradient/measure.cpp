#include "tutorials/exercises/grader/measure.h"

#include <cmath>

#include "tensor/kernels.h"
#include "tutorials/exercises/02_final_gradient/script_case.h"

namespace zl::exercises {
namespace {

using namespace final_gradient_checks;
using Kind = Event::Kind;
using Numbers = std::vector<double>;

// Plays a script to the student's observer, and notes what it calls and computes.
class Player {
 public:
  explicit Player(const Script& script) : script_(script) {
    int64_t largest = 0;
    for (const int64_t n : script.sizes) {
      gradients_.of.push_back(Tensor::empty(memory_, MemoryUse::gradient, {n}));
      largest = std::max(largest, n);
    }
    contribution_ = Tensor::empty(memory_, MemoryUse::activation, {largest});
    gradients_.ready = [this](int parameter) { ready(parameter); };
  }

  Record play() {
    const std::unique_ptr<GradientObserver> observer = observe(gradients_);
    require(observer != nullptr, "observe() returned no observer");
    for (const Event& event : script_.events) {
      ++at_;
      send(event, *observer);
      for (size_t p = 0; p < script_.sizes.size(); ++p)
        if (gradients_.of[p].same_storage(contribution_))
          record_.numbers.try_emplace("shares memory", Numbers{double(at_), double(p)});
      if (event.kind == Kind::end_backward) end_of_backward();
    }
    return record_;
  }

 private:
  // Three numbers and the gradient: the event during which it was called, the parameter, its size.
  void ready(int parameter) {
    require(parameter >= 0 && parameter < int(script_.sizes.size()), "ready(", parameter,
            "): the parameters are 0 to ", script_.sizes.size() - 1);
    Numbers& calls = record_.numbers["ready"];
    calls.insert(calls.end(), {double(at_), double(parameter)});
    append(calls, parameter);
  }

  void append(Numbers& numbers, int parameter) const {
    const std::vector<float> values = kernel::download_floats(gradients_.of[size_t(parameter)]);
    numbers.push_back(double(values.size()));
    numbers.insert(numbers.end(), values.begin(), values.end());
  }

  void send(const Event& event, GradientObserver& observer) {
    switch (event.kind) {
      case Kind::begin_step: return observer.begin_step();
      case Kind::use: return observer.use(event.parameter, event.use);
      case Kind::begin_backward: return observer.begin_backward(event.last);
      case Kind::contribution: {
        const Tensor gradient = contribution_.slice(0, {int64_t(event.values.size())});
        kernel::upload_floats(event.values, gradient);
        observer.contribution(event.parameter, gradient);
        return kernel::fill(NAN, contribution_);  // as if another op used the memory
      }
      case Kind::end_backward: return observer.end_backward();
    }
  }

  void end_of_backward() {
    Numbers& numbers = record_.numbers[str("after event ", at_)];
    for (size_t p = 0; p < script_.sizes.size(); ++p) append(numbers, int(p));
  }

  const Script& script_;
  EventStream events_;
  Memory memory_{{}, cpu_backend(), events_, {.poison = true}};
  Gradients gradients_;
  Tensor contribution_;
  int at_ = -1;  // the event that is played
  Record record_;
};

}  // namespace

Record measure(const std::string& check, const CheckOptions& options) {
  const Script script = make_script(check, options);
  return Player(script).play();
}

}  // namespace zl::exercises
