// Exercise 02: when is a gradient final? task.md has the question, final_gradient.h the contract.
#include <stdexcept>

#include "tensor/kernels.h"
#include "tutorials/exercises/02_final_gradient/final_gradient.h"

namespace zl::exercises {
namespace {

class FinalGradients final : public GradientObserver {
 public:
  explicit FinalGradients(Gradients& gradients)
      : gradients_(gradients), parameters_(gradients.of.size()) {}

  // The counts and sums of the step before are over.
  void begin_step() override {
    //> throw std::logic_error("not written yet: begin_step: forget the step before");
    parameters_.assign(parameters_.size(), {});
    //<
  }

  // Will backward contribute once for this use?
  void use(int p, Use use) override {
    //> throw std::logic_error("not written yet: use: count the contributions to expect");
    if (use == Use::recorded || use == Use::checkpointed) ++of(p).expected;
    //<
  }

  void begin_backward(bool last) override {
    //> throw std::logic_error("not written yet: begin_backward: keep whether it is the last");
    last_ = last;
    //<
  }

  // The first contribution of a step sets the gradient, later ones add: kernel::copy(from, to),
  // kernel::accumulate(from, into).
  void contribution(int p, const Tensor& gradient) override {
    //> throw std::logic_error("not written yet: contribution: add it; is the sum final now?");
    if (of(p).has_gradient)
      kernel::accumulate(gradient, gradients_.of[size_t(p)]);
    else
      kernel::copy(gradient, gradients_.of[size_t(p)]);
    of(p).has_gradient = true;
    if (--of(p).expected == 0 && last_) finish(p);
    //<
  }

  // Which parameters are still to be reduced? What must not be left for the next micro-batch?
  void end_backward() override {
    //> throw std::logic_error("not written yet: end_backward: reduce what is left");
    for (int p = 0; p < int(parameters_.size()); ++p) {
      of(p).expected = 0;
      if (last_ && !of(p).finished) finish(p);
    }
    //<
  }

 private:
  struct OfParameter {
    int expected = 0;  // contributions that are still to come in this micro-batch
    //> // What else must be kept for one parameter?
    bool has_gradient = false, finished = false;  // in this step
    //<
  };
  //>

  OfParameter& of(int p) { return parameters_[size_t(p)]; }

  void finish(int p) {
    if (!of(p).has_gradient) kernel::fill(0, gradients_.of[size_t(p)]);
    of(p).finished = true;
    gradients_.ready(p);
  }
  //<

  Gradients& gradients_;
  std::vector<OfParameter> parameters_;
  //>
  bool last_ = false;
  //<
};

}  // namespace

std::unique_ptr<GradientObserver> observe(Gradients& gradients) {
  return std::make_unique<FinalGradients>(gradients);
}

}  // namespace zl::exercises
