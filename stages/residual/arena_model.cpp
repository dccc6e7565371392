#include "stages/residual/arena_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tensor/error.h"

namespace zl {

const char* name(Fit fit) { return fit == Fit::first ? "first fit" : "best fit"; }

void ArenaModel::see(const BlockEvent& event) {
  if (event.bytes == 0) return;
  const auto at = live_.find(event.block);
  if (event.allocates) {
    require(at == live_.end(), "block ", event.block, " of ", event.bytes,
            " bytes is allocated a second time; a number must be released before it is used again");
    live_[event.block] = {take(event.bytes), event.bytes};
    live_total_ += event.bytes;
    use_.peak_live = std::max(use_.peak_live, live_total_);
    use_.high_water = std::max(use_.high_water, end_);
    return;
  }
  require(at != live_.end() && at->second.bytes == event.bytes, "block ", event.block, " of ",
          event.bytes, " bytes is released, but it is not live with this size");
  give_back(at->second);
  live_total_ -= event.bytes;
  live_.erase(at);
}

int64_t ArenaModel::take(int64_t bytes) {
  auto chosen = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < bytes) continue;
    if (chosen == holes_.end() || hole->second < chosen->second) chosen = hole;
    if (fit_ == Fit::first) break;
  }
  if (chosen == holes_.end()) return std::exchange(end_, end_ + bytes);
  const auto [address, size] = *chosen;
  holes_.erase(chosen);
  if (size > bytes) holes_[address + bytes] = size - bytes;
  return address;
}

void ArenaModel::give_back(const Block& block) {
  auto hole = holes_.emplace(block.address, block.bytes).first;
  if (const auto next = std::next(hole);
      next != holes_.end() && next->first == hole->first + hole->second) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole != holes_.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      holes_.erase(hole);
      hole = before;
    }
  }
  if (hole->first + hole->second != end_) return;
  end_ = hole->first;
  holes_.erase(hole);
}

}  // namespace zl
