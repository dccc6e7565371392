// Loading sides with one mistake.
#include <algorithm>
#include <limits>

#include "tutorials/exercises/10_reshard/loads.h"

namespace zl::exercises::reshard_checks {

constexpr const char* kOwnPiece =
    "each rank reads the piece with its number: with another number of ranks its shard is "
    "elsewhere";

const std::vector<Mistake> kWrongShards = {
    {{.own_piece = true}, kOwnPiece},
    {{.saved_by_now = true},
     "the pieces are cut as if the ranks of now had saved them: another number of ranks has other "
     "shards, and other padding"},
    {{.now_by_saved = true}, "the shard has the size that it had on the ranks that saved"},
    {{.unaligned = true},
     "parameters follow each other without a gap: each begins at a multiple of 16 elements"},
    {{.padded_to_ranks = true},
     "the flat memory is padded to a multiple of the ranks, not of 16 elements per rank"},
    {{.flat = true},
     "padding of the pieces is copied: it may hold anything, and here it must be 0"},
    {{.own_piece = true, .flat = true}, kOwnPiece},
    {{.first_piece_only = true},
     "a parameter that goes on in the next rank's piece is loaded from the first piece only"},
    {{.flat_position = true},
     "a piece is read at the position in the flat memory: its own elements begin at 0"},
    {{.restarts = true}, "each piece is read from its beginning"},
    {{.from_element_0 = true},
     "a parameter that begins in an earlier rank's shard is loaded from its first element again"},
    {{.drops_last = true}, "the last element of each range is missing"},
    {{.moments_are_weights = true}, "the moments are read from the weights"},
    {{.frozen_has_moments = true},
     "frozen parameters have no moments: what follows them is earlier in that memory"},
    {{.frozen_has_no_weights = true},
     "the weights of frozen parameters are lost: they have no moments, but they have weights"},
    {{.saved_flags_of_now = true},
     "the pieces are read as if the same parameters had been frozen and tied when they were saved"},
    {{.now_flags_of_saved = true},
     "the shard is laid out as if the same parameters were frozen and tied as when it was saved"},
    {{.thawed_has_weights = true},
     "a parameter that was frozen has no moments in the pieces: they begin with 0, not with its "
     "weights"},
    {{.tied_has_place = true},
     "tied parameters have no memory: what follows them is earlier in the flat memory"},
    {{.untied_is_zero = true},
     "a parameter that was tied is not in the pieces, and is loaded as 0: the one that it was tied "
     "to has its values"},
};

const std::vector<Mistake> kWrongReads = {
    {{.one_by_one = true}, "elements are read one by one: one call can read what is in a row"},
    {{.all_pieces = true},
     "every rank reads all pieces: with N ranks each byte is read N times, and a rank needs memory "
     "for the whole unit"},
    {{.whole_parameters = true},
     "whole parameters are read, also the part that is in another rank's shard"},
    {{.flat = true}, "padding is read"},
};

namespace {

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Layout {
  Layout(const ShardedUnit& unit, State state, int ranks, const Rules& rules) {
    int64_t end = 0;
    for (const UnitParameter& p : unit.parameters) {
      const bool without =
          state == State::weights ? rules.frozen_has_no_weights : !rules.frozen_has_moments;
      const bool here = (p.tied_to < 0 || rules.tied_has_place) && !(p.frozen && without);
      begin.push_back(here ? rounded_up(end, rules.unaligned ? 1 : 16) : -1);
      if (here) end = begin.back() + p.numel;
    }
    shard = rounded_up(end, rules.padded_to_ranks ? ranks : 16 * ranks) / ranks;
    full = shard * ranks;
  }
  std::vector<int64_t> begin;
  int64_t shard = 0, full = 0;
};

// The parameters of `flags`, as `unit` has them otherwise.
ShardedUnit with_flags_of(ShardedUnit unit, const ShardedUnit& flags) {
  unit.parameters = flags.parameters;
  return unit;
}

class Loader {
 public:
  Loader(const ReshardCase& c, int rank, State state, const Rules& rules)
      : case_(c),
        rules_(rules),
        saved_(rules.saved_flags_of_now ? with_flags_of(c.saved, c.now) : c.saved),
        now_(rules.now_flags_of_saved ? with_flags_of(c.now, c.saved) : c.now),
        rank_(rank),
        state_(state),
        from_(rules.moments_are_weights ? State::weights : state),
        old_(saved_, from_, rules.saved_by_now ? c.now.ranks : c.saved.ranks, rules),
        new_(now_, state, rules.now_by_saved ? c.saved.ranks : c.now.ranks, rules),
        first_(rank * new_.shard) {
    load_.shard.assign(size_t(new_.shard), 0.0f);
  }

  Load load() {
    if (rules_.all_pieces)
      for (int piece = 0; piece < case_.saved.ranks; ++piece)
        load_.reads.push_back({piece, from_, 0, old_.shard});
    if (rules_.flat && rules_.own_piece)
      copy(rank_ * old_.shard, 0, std::min(new_.shard, old_.shard), old_, from_);
    else if (rules_.flat)
      copy(first_, 0, std::min(new_.shard, old_.full - first_), old_, from_);
    else
      for (size_t p = 0; p < new_.begin.size(); ++p) parameter(p);
    return load_;
  }

 private:
  void parameter(size_t p) {
    const int64_t begin = new_.begin[p], numel = now_.parameters[p].numel;
    if (begin < 0) return;
    size_t source = p;
    if (saved_.parameters[p].tied_to >= 0 && !rules_.untied_is_zero && !rules_.tied_has_place)
      source = size_t(saved_.parameters[p].tied_to);
    const int64_t low = std::max(begin, first_),
                  high = std::min(begin + numel, first_ + new_.shard);
    if (low >= high) return;
    const int64_t skipped = rules_.from_element_0 ? 0 : low - begin;
    const int64_t count = high - low - (rules_.drops_last ? 1 : 0);
    if (old_.begin[source] >= 0) {
      if (rules_.whole_parameters) note_whole(old_.begin[source], numel);
      copy(old_.begin[source] + skipped, low - first_, count, old_, from_);
    } else if (rules_.thawed_has_weights) {
      const Layout weights(saved_, State::weights, case_.saved.ranks, rules_);
      copy(weights.begin[source] + skipped, low - first_, count, weights, State::weights);
    }
  }

  void note_whole(int64_t at, int64_t count) {
    const bool fills = false;
    for (int64_t n = 0; count > 0; at += n, count -= n) {
      n = std::min(count, old_.shard - at % old_.shard);
      read(int(at / old_.shard), from_, at % old_.shard, 0, n, fills);
    }
  }

  // `count` elements from position `at` of the saved flat memory to position `to` of the shard.
  void copy(int64_t at, int64_t to, int64_t count, const Layout& layout, State state) {
    for (int64_t n = 0; count > 0; at += n, to += n, count -= n) {
      const int64_t in_piece = at % layout.shard;
      n = rules_.one_by_one ? 1 : std::min(count, layout.shard - in_piece);
      const int piece = rules_.own_piece ? rank_ : int(at / layout.shard);
      const int64_t position = rules_.flat_position ? at : rules_.restarts ? 0 : in_piece;
      read(piece, state, position, to, n, true);
      if (rules_.first_piece_only) return;
    }
  }

  void read(int piece, State state, int64_t position, int64_t to, int64_t count, bool fills) {
    const bool noted = fills ? !rules_.all_pieces && !rules_.whole_parameters : true;
    if (noted) load_.reads.push_back({piece, state, position, count});
    if (!fills) return;
    const bool there = piece >= 0 && piece < case_.saved.ranks;
    const std::vector<float> values =
        there ? saved_piece(case_.saved, piece, state) : std::vector<float>();
    for (int64_t i = 0; i < count; ++i) {
      const bool inside = position + i < int64_t(values.size());
      load_.shard[size_t(to + i)] =
          inside ? values[size_t(position + i)] : std::numeric_limits<float>::quiet_NaN();
    }
  }

  const ReshardCase& case_;
  const Rules& rules_;
  const ShardedUnit saved_, now_;
  const int rank_;
  const State state_, from_;
  const Layout old_, new_;
  const int64_t first_;  // of the shard, in the flat memory
  Load load_;
};

}  // namespace

Load simulated(const ReshardCase& c, int rank, State state, const Rules& rules) {
  return Loader(c, rank, state, rules).load();
}

}  // namespace zl::exercises::reshard_checks
