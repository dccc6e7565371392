// Exercise 02: what you write.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace zl::exercises {

// The gradients of one rank. Parameters are numbered from 0.
struct Gradients {
  // By parameter: f32, allocated. At the beginning of a step they hold anything.
  std::vector<Tensor> of;
  // Starts the reduction of of[parameter] over all ranks.
  std::function<void(int parameter)> ready;
};

// How a pass uses a parameter. The backward pass contributes to the gradient once per use that it
// can see.
enum class Use {
  recorded,      // on the tape
  evaluation,    // without a tape: there is no backward pass
  checkpointed,  // without a tape now; backward will run this pass again
  again,         // the second run of a checkpointed use, during backward
};

// Receives what happens to the parameters of one rank, in order of time. A step is begin_step(),
// then for each micro-batch its uses, begin_backward(), contributions, end_backward(). Uses of the
// kind `again` come between contributions. An evaluation may come between micro-batches.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  virtual void begin_step() = 0;
  virtual void use(int parameter, Use use) = 0;
  virtual void begin_backward(bool last) = 0;  // last: of the step's micro-batches
  // The memory of `gradient` is used again when this function has returned.
  virtual void contribution(int parameter, const Tensor& gradient) = 0;
  virtual void end_backward() = 0;
};

// An observer that sums the contributions of a step into gradients.of, and calls gradients.ready
// once per step for each parameter, in the last micro-batch, as soon as the gradient is final:
//  - with its last contribution, if all uses of this micro-batch have contributed;
//  - at the end of backward otherwise, in the order of the numbers: a parameter that the last
//    micro-batch does not use, that has a use without a contribution, or that no micro-batch uses.
//    Other ranks may have used it, and all ranks must make the same reductions.
// At that call the gradient is the sum over the step's micro-batches, 0 without a contribution. The
// observer does not change it afterwards. `gradients` outlives the observer.
std::unique_ptr<GradientObserver> observe(Gradients& gradients);

}  // namespace zl::exercises
