#include "tutorials/exercises/judge/measure.h"

#include <cmath>

#include "tutorials/exercises/10_reshard/reshard_case.h"

namespace zl::exercises {
namespace {

using namespace reshard_checks;

// Notes all reads. Padding is -1; where there is nothing to read it gives NaN.
struct NotingPieces final : SavedPieces {
  explicit NotingPieces(const ShardedUnit& unit) : unit_(unit) {}
  const ShardedUnit& unit() const override { return unit_; }
  void read(int rank, State state, int64_t first, std::span<float> to) override {
    pieces.push_back(rank);
    elements.push_back(std::ssize(to));
    const Values full = flat_memory(unit_, unit_, state);
    const int64_t shard = std::ssize(full) / unit_.ranks;
    for (int64_t at = first; float& value : to) {
      const bool there = rank >= 0 && rank < unit_.ranks && at >= 0 && at < shard;
      value = there ? float(full[size_t(rank * shard + at)]) : NAN;
      if (value == 0) value = -1;
      ++at;
    }
  }
  const ShardedUnit unit_;
  std::vector<int64_t> pieces, elements;  // of each read
};

}  // namespace

// Of each part "shard 3", and of each read for it "pieces 3" and "elements 3".
Record measure(const CheckOptions& options) {
  Record record;
  for (size_t k = 0; const Part& part : reshard_parts(options)) {
    NotingPieces pieces(part.saved);
    record.put(str("shard ", k), load_shard(pieces, part.now, part.rank, part.state));
    record.put(str("pieces ", k), pieces.pieces);
    record.put(str("elements ", k++), pieces.elements);
  }
  return record;
}

}  // namespace zl::exercises
