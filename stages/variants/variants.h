// Stages besides the paper's four: each is its parent with changes that `diff` shows, as in `diff
// stages/zero3.cpp stages/variants/zero3_hpz.cpp`.
#pragma once

#include <span>

#include "stages/stage.h"

namespace zl {

// What a variant promises relative to its parent on the same ranks and data.
enum class VariantBits {
  equal,     // losses, norms and weights have the same bits
  rounding,  // sums are added in another order
  lossy,     // something is communicated in fewer bits than it has
};

// Which groups of ranks it has: none, nodes, or replicas of the whole state.
enum class VariantGroups { none, nodes, replicas };

struct Variant {
  StageKind kind;
  const char* name;
  StageKind parent;
  VariantBits bits;
  VariantGroups groups;
  const char* sentence;  // for --help
};

// To add one: an enumerator in stages/options.h, a row in variants.cpp, a case in make_stage.cpp,
// and its file.
std::span<const Variant> variants();
const Variant* find_variant(StageKind kind);  // null: one of the four

VariantBits bits_of(StageKind kind);  // of the four: equal

// Groups of consecutive ranks: ranks_per_node in each; 0: the stage has none. `replicas`: how many
// groups hold the whole state; 0: all ranks together hold it once.
struct GroupSizes {
  int ranks_per_node = 0, replicas = 0;
};
// The groups of a stage; `asked`: what a user wants, 0: nothing. Then an even number of more than 2
// ranks is two nodes, or two replicas. Throws InputError unless they divide the ranks and agree.
GroupSizes rank_groups(StageKind kind, int ranks, GroupSizes asked);
// With these groups. Throws InputError if the stage cannot keep what other options ask for.
StageOptions with_groups(StageKind kind, int ranks, StageOptions options);

// The four, then the variants.
std::vector<StageKind> all_stages();

}  // namespace zl
