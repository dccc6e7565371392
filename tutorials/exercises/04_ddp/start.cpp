// Exercise 04: DDP with buckets and accumulation.
#include <stdexcept>

#include "tutorials/exercises/04_ddp/gradient_reducer.h"

namespace zl {
namespace {

class Reducer final : public GradientReducer {
 public:
  Reducer(std::vector<UnitGradient>& units, Communicator& comm, int64_t bucket_size)
      : units_(units), comm_(comm), bucket_size_(bucket_size) {}

  // In the last micro-batch of a step the unit joins the bucket. If the bucket has bucket_size_
  // elements or more, starts the all-reduce (mean) of each of its units, all of them between
  // comm_.begin_group() and comm_.end_group(), and keeps the Works. In an earlier micro-batch
  // nothing is reduced, but the unit must be reduced later in this step.
  void gradient_ready(size_t unit, bool last_micro_batch) override {
    throw std::logic_error("not written yet: gradient_ready() of " + units_[unit].name +
                           (last_micro_batch ? ", last micro-batch" : ", an earlier micro-batch"));
  }

  // After the last micro-batch of a step: units that were ready in earlier micro-batches only join
  // the bucket as above, from the last unit to the first. Then what is left in the bucket is
  // reduced, although it is not full.
  void backward_done(bool last_micro_batch) override {
    throw std::logic_error(std::string("not written yet: backward_done() of ") +
                           (last_micro_batch ? "the last" : "an earlier") + " micro-batch");
  }

  // Waits for all Works of this step. Afterwards the gradient of each unit is the mean over ranks,
  // summed over the micro-batches.
  void wait() override {
    throw std::logic_error("not written yet: wait() at " + std::to_string(comm_.size()) +
                           " ranks, buckets of " + std::to_string(bucket_size_));
  }

 private:
  std::vector<UnitGradient>& units_;
  Communicator& comm_;
  int64_t bucket_size_;  // [n]
};

}  // namespace

std::unique_ptr<GradientReducer> make_gradient_reducer(std::vector<UnitGradient>& units,
                                                       Communicator& comm, int64_t bucket_size) {
  return std::make_unique<Reducer>(units, comm, bucket_size);
}

}  // namespace zl
