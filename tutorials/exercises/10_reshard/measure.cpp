#include "tutorials/exercises/grader/measure.h"

#include <limits>
#include <map>

#include "tensor/error.h"
#include "tutorials/exercises/10_reshard/reshard_case.h"

namespace zl::exercises {
namespace {

using namespace reshard_checks;

// Notes all reads. Where there is nothing to read it gives NaN.
class NotingPieces final : public SavedPieces {
 public:
  explicit NotingPieces(const ShardedUnit& unit) : unit_(unit) {
    for (const State state : kStates)
      for (int rank = 0; rank < unit.ranks; ++rank)
        pieces_[{rank, state}] = saved_piece(unit, rank, state);
  }
  const ShardedUnit& unit() const override { return unit_; }
  void read(int rank, State state, int64_t first, std::span<float> to) override {
    for (const double number : {double(rank), double(state), double(first), double(to.size())})
      reads.push_back(number);
    const auto piece = pieces_.find({rank, state});
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t at = first + int64_t(i);
      const bool there = piece != pieces_.end() && at >= 0 && at < int64_t(piece->second.size());
      to[i] = there ? piece->second[size_t(at)] : std::numeric_limits<float>::quiet_NaN();
    }
  }
  std::vector<double> reads;  // rank, state, first, count

 private:
  ShardedUnit unit_;
  std::map<std::pair<int, State>, std::vector<float>> pieces_;
};

}  // namespace

// "0 1 weights": the shard of rank 1 in case 0; "0 1 weights reads": what it read.
Record measure(const std::string& check, const CheckOptions& options) {
  Record record;
  const std::vector<ReshardCase> cases = reshard_cases(check, options.seed);
  for (size_t k = 0; k < cases.size(); ++k)
    for (int rank = 0; rank < cases[k].now.ranks; ++rank)
      for (const State state : kStates) {
        NotingPieces pieces(cases[k].saved);
        const std::vector<float> shard = load_shard(pieces, cases[k].now, rank, state);
        const std::string name = part_name(k, rank, state);
        record.numbers[name] = {shard.begin(), shard.end()};
        record.numbers[name + " reads"] = pieces.reads;
      }
  return record;
}

}  // namespace zl::exercises
