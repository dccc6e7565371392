#include "stages/schedule/full_parameters.h"

#include "stages/steady_state.h"

namespace zl {
namespace {

// In the other stages full parameters always exist, but may be stale while an all-gather is in
// flight.
bool shards_parameters(const UnitState& u) { return u.parameter_shard.defined(); }

void start_unshard(Stage& stage, UnitState& u) {
  u.parameters = ParameterState::unsharding;
  u.unshard_work = stage.unshard(u);
}

size_t first_kept(const std::vector<UnitState>& units, const Overlap& overlap) {
  std::vector<int64_t> sizes;
  for (const UnitState& u : units) sizes.push_back(u.partition.full());
  return first_kept_block(sizes, overlap);
}

}  // namespace

void unshard(Stage& stage, UnitState& u) {
  if (u.parameters == ParameterState::sharded) start_unshard(stage, u);
  if (u.parameters == ParameterState::unsharding) {
    u.unshard_work.wait();
    require(u.full_parameter.defined(), "unshard: unit ", u.name(), " has no full_parameter");
    u.parameters = ParameterState::unsharded;
    u.bind_parameters(u.full_parameter);
  }
}

void reshard(Stage& stage, UnitState& u) {
  if (!shards_parameters(u) || u.parameters == ParameterState::sharded) return;
  u.unshard_work.wait();  // of a unit that was unsharded unnecessarily
  u.bind_parameters({});
  stage.reshard(u);
  u.parameters = ParameterState::sharded;
}

FullParameters::FullParameters(Stage& stage)
    : stage_(stage),
      units_(stage.units()),
      first_kept_(first_kept(units_, stage.options().overlap)) {}

// Backward needs root at once, because it begins with root's output head. A unit that runs inside
// itself is still needed too.
void FullParameters::after_forward(UnitState& u) {
  const bool kept = u.unit->index == 0 || size_t(u.unit->index) >= first_kept_;
  if (u.running == 0 && !(kept && u.forward_passes > 0)) reshard(stage_, u);
}

void FullParameters::after_backward(UnitState& u) {
  if (u.running == 0) reshard(stage_, u);
}

void FullParameters::end_forward() {
  for (UnitState& u : units_) after_forward(u);
}

void FullParameters::end_backward() {
  for (UnitState& u : units_) after_backward(u);
}

// Root is first in both directions: after the last of the other units, the next one is root.
void FullParameters::unshard_and_prefetch(UnitState& u, int direction) {
  unshard(stage_, u);
  if (!shards_parameters(u)) return;
  const Overlap& overlap = stage_.options().overlap;
  const int units = int(units_.size());
  const auto next = [=](const UnitState& v) { return (v.unit->index + direction + units) % units; };
  int64_t ahead = 0;
  for (int i = next(u); i != 0 && ahead < overlap.prefetch_bucket_size;
       i = next(units_[size_t(i)])) {
    UnitState& v = units_[size_t(i)];
    if (!shards_parameters(v)) continue;
    const int64_t n = v.partition.full();
    if (v.parameters == ParameterState::sharded) {
      if (n > overlap.max_live_parameters - live()) return;
      stage_.announce(v, "prefetch");
      start_unshard(stage_, v);
    }
    ahead += n;
  }
}

int64_t FullParameters::live() const {
  int64_t n = 0;
  for (const UnitState& u : units_)
    if (shards_parameters(u) && u.parameters != ParameterState::sharded) n += u.partition.full();
  return n;
}

}  // namespace zl
