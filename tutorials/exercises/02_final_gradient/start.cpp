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
    throw std::logic_error(str("not written yet: begin_step: forget the step before, of ",
                               parameters_.size(), " parameters"));
  }

  // Will backward contribute once for this use?
  void use(int p, Use use) override {
    throw std::logic_error(
        str("not written yet: use: count the contributions to expect of parameter ", p,
            use == Use::again ? ", run again" : ""));
  }

  void begin_backward(bool last) override {
    throw std::logic_error(
        str("not written yet: begin_backward: keep whether this is the last: ", last));
  }

  // The first contribution of a step sets the gradient, later ones add: kernel::copy(from, to),
  // kernel::accumulate(from, into).
  void contribution(int p, const Tensor& gradient) override {
    throw std::logic_error(str("not written yet: contribution: add ", in_words(gradient.shape()),
                               " to gradients_.of[", p, "]; is it final now?"));
  }

  // Which parameters are still to be reduced? What must not be left for the next micro-batch?
  void end_backward() override {
    throw std::logic_error("not written yet: end_backward: reduce what is left");
  }

 private:
  struct OfParameter {
    int expected = 0;  // contributions that are still to come in this micro-batch
    // What else must be kept for one parameter?
  };

  Gradients& gradients_;
  std::vector<OfParameter> parameters_;
};

}  // namespace

std::unique_ptr<GradientObserver> observe(Gradients& gradients) {
  return std::make_unique<FinalGradients>(gradients);
}

}  // namespace zl::exercises
