#include "tutorials/exercises/judge/measure.h"

#include <limits>

#include "tutorials/exercises/10_reshard/reshard_case.h"

namespace zl::exercises {
namespace {

using namespace reshard_checks;

// Notes all reads. Where there is nothing to read it gives NaN.
class NotingPieces final : public SavedPieces {
 public:
  explicit NotingPieces(const ShardedUnit& unit) : unit_(unit) {
    for (const State state : {State::weights, State::moments}) {
      const FlatLayout layout(unit, state);
      std::vector<float>& full = full_.emplace_back();
      for (int64_t i = 0; i < layout.full; ++i) full.push_back(float(-1 - i));
      for (size_t p = 0; p < layout.begin.size(); ++p)
        for (int64_t i = 0; layout.begin[p] >= 0 && i < unit.parameters[p].numel; ++i)
          full[size_t(layout.begin[p] + i)] = saved_value(state, int(p), i);
    }
  }
  const ShardedUnit& unit() const override { return unit_; }
  void read(int rank, State state, int64_t first, std::span<float> to) override {
    const std::vector<float>& full = full_[size_t(state)];
    const int64_t shard = int64_t(full.size()) / unit_.ranks;
    reads.push_back({rank, int64_t(to.size())});
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t at = first + int64_t(i);
      const bool there = rank >= 0 && rank < unit_.ranks && at >= 0 && at < shard;
      to[i] = there ? full[size_t(rank * shard + at)] : std::numeric_limits<float>::quiet_NaN();
    }
  }
  std::vector<PieceRead> reads;

 private:
  ShardedUnit unit_;
  std::vector<std::vector<float>> full_;  // by state
};

}  // namespace

// Of each part "shard 3", and "reads 3": what was read for it.
Record measure(const CheckOptions& options) {
  Record record;
  for (size_t k = 0; const Part& part : reshard_parts(options)) {
    NotingPieces pieces(part.saved);
    record.put(str("shard ", k), load_shard(pieces, part.now, part.rank, part.state));
    record.put_rows(str("reads ", k++), pieces.reads);
  }
  return record;
}

}  // namespace zl::exercises
