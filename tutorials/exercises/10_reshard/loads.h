// What load_shard() of exercise 10 returns and reads: the right one, and ones with a typical
// mistake.
#pragma once

#include <vector>

#include "tutorials/exercises/10_reshard/reshard_case.h"

namespace zl::exercises::reshard_checks {

struct Read {
  int rank = 0;
  State state = State::weights;
  int64_t first = 0, count = 0;
  bool operator==(const Read&) const = default;
};

struct Load {
  std::vector<float> shard;
  std::vector<Read> reads;
};

// Compares the values; NaN equals NaN.
bool same_shard(const Load& a, const Load& b);

// What the library's Partition says.
Load right_load(const ReshardCase& c, int rank, State state);

// A loading side that breaks some of the rules in reshard.h.
struct Rules {
  // The flat memory.
  bool unaligned = false;        // parameters without gaps
  bool padded_to_ranks = false;  // to a multiple of the ranks, not of 16 per rank
  bool saved_by_now = false;     // the pieces are cut as by the new number of ranks
  bool now_by_saved = false;     // the shard is cut as by the old one
  bool tied_has_place = false;   // as if no parameter were tied
  bool frozen_has_moments = false, frozen_has_no_weights = false;
  bool saved_flags_of_now = false;  // frozen and tied_to, for both
  bool now_flags_of_saved = false;
  // What goes where.
  bool own_piece = false;           // reads what the rank of the same number saved
  bool flat = false;                // copies flat memory, padding included
  bool first_piece_only = false;    // a parameter ends where the piece ends
  bool flat_position = false;       // in the flat memory instead of in the piece
  bool restarts = false;            // each piece is read from its beginning
  bool from_element_0 = false;      // a parameter that begins in an earlier shard begins again
  bool untied_is_zero = false;      // a parameter that was tied is not looked up
  bool thawed_has_weights = false;  // moments of a parameter that was frozen are its weights
  bool moments_are_weights = false;
  bool drops_last = false;  // of each range
  // What is read beside.
  bool one_by_one = false, all_pieces = false, whole_parameters = false;
};

struct Mistake {
  Rules rules;
  const char* meaning;
};
extern const std::vector<Mistake> kWrongShards;  // mistakes that change values
extern const std::vector<Mistake> kWrongReads;   // mistakes that read too much or too often

Load simulated(const ReshardCase& c, int rank, State state, const Rules& rules = {});

}  // namespace zl::exercises::reshard_checks
