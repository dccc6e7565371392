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
    //> throw std::logic_error("not written yet: gradient_ready");
    accumulated_[unit] = !last_micro_batch;
    if (last_micro_batch) add(unit);
    //<
  }

  // After the last micro-batch of a step: units that were ready in earlier micro-batches only join
  // the bucket as above, from the last unit to the first. Then what is left in the bucket is
  // reduced, although it is not full.
  void backward_done(bool last_micro_batch) override {
    //> throw std::logic_error("not written yet: backward_done");
    if (!last_micro_batch) return;
    for (size_t unit = units_.size(); unit-- > 0;) {
      if (accumulated_[unit]) add(unit);
      accumulated_[unit] = false;
    }
    if (!bucket_.empty()) reduce_bucket();
    //<
  }

  // Waits for all Works of this step. Afterwards the gradient of each unit is the mean over ranks,
  // summed over the micro-batches.
  void wait() override {
    //> throw std::logic_error("not written yet: wait");
    for (Work& work : works_) work.wait();
    works_.clear();
    //<
  }

 private:
  //>
  void add(size_t unit) {
    bucket_.push_back(unit);
    elements_ += units_[unit].gradient.numel();
    if (elements_ >= bucket_size_) reduce_bucket();
  }

  void reduce_bucket() {
    comm_.begin_group();
    for (const size_t unit : bucket_)
      works_.push_back(comm_.all_reduce(units_[unit].gradient, Reduction::mean,
                                        {units_[unit].name, Purpose::gradient}));
    comm_.end_group();
    bucket_.clear();
    elements_ = 0;
  }

  //<
  std::vector<UnitGradient>& units_;
  Communicator& comm_;
  int64_t bucket_size_;  // [n]
  //>
  // By unit: it was ready in earlier micro-batches only.
  std::vector<bool> accumulated_ = std::vector<bool>(units_.size());
  std::vector<size_t> bucket_;
  int64_t elements_ = 0;  // [n] of the bucket
  std::vector<Work> works_;
  //<
};

}  // namespace

std::unique_ptr<GradientReducer> make_gradient_reducer(std::vector<UnitGradient>& units,
                                                       Communicator& comm, int64_t bucket_size) {
  return std::make_unique<Reducer>(units, comm, bucket_size);
}

}  // namespace zl
