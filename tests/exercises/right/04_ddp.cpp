// Exercise 04: DDP with buckets and accumulation.
#include <utility>

#include "tutorials/exercises/04_ddp/gradient_reducer.h"

namespace zl {
namespace {

class Reducer final : public GradientReducer {
 public:
  Reducer(std::vector<UnitGradient>& units, Communicator& comm, int64_t bucket_size)
      : units_(units), comm_(comm), bucket_size_(bucket_size), accumulated_(units.size()) {}

  void gradient_ready(size_t unit, bool last_micro_batch) override {
    accumulated_[unit] = !last_micro_batch;
    if (last_micro_batch) add(unit);
  }

  void backward_done(bool last_micro_batch) override {
    if (!last_micro_batch) return;
    for (size_t unit = units_.size(); unit-- > 0;) {
      if (accumulated_[unit]) add(unit);
      accumulated_[unit] = false;
    }
    if (!bucket_.empty()) reduce_bucket();
  }

  void wait() override {
    for (Work& work : works_) work.wait();
    works_.clear();
  }

 private:
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

  std::vector<UnitGradient>& units_;
  Communicator& comm_;
  int64_t bucket_size_;            // [n]
  std::vector<bool> accumulated_;  // the unit was ready in earlier micro-batches only
  std::vector<size_t> bucket_;
  int64_t elements_ = 0;  // [n] of the bucket
  std::vector<Work> works_;
};

}  // namespace

std::unique_ptr<GradientReducer> make_gradient_reducer(std::vector<UnitGradient>& units,
                                                       Communicator& comm, int64_t bucket_size) {
  return std::make_unique<Reducer>(units, comm, bucket_size);
}

}  // namespace zl
