#include "stages/schedule/gradient_reductions.h"

#include <utility>

namespace zl {

void GradientReductions::add(UnitState& u) {
  bucket_.add(u);
  if (bucket_.elements >= stage_.options().reduce_bucket_size) issue();
}

void GradientReductions::finish() {
  if (!bucket_.units.empty()) issue();
  wait();
}

void GradientReductions::issue() {
  wait();
  const Bucket bucket = std::exchange(bucket_, {});
  stage_.comm().begin_group();
  for (UnitState* u : bucket.units) {
    stage_.announce(*u, "reduce");
    in_flight_.push_back({u, stage_.reduce_gradient(*u)});
  }
  stage_.comm().end_group();
  if (!stage_.options().overlap.overlap_comm) wait();
}

void GradientReductions::wait() {
  for (InFlight& reduction : in_flight_) {
    stage_.memory().events().set_unit(reduction.unit->name());
    reduction.work.wait();
    stage_.finish_reduction(*reduction.unit);
  }
  in_flight_.clear();
}

}  // namespace zl
