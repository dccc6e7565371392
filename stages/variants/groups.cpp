#include "stages/variants/groups.h"

#include <string>
#include <vector>

namespace zl {
namespace {

// "4 ranks", "1 replica".
std::string counted(int64_t count, const char* what) {
  return str(count, " ", what, count == 1 ? "" : "s");
}

// `groups`: what the ranks are divided into, such as "3 replicas".
void require_divides(StageKind kind, int64_t count, const std::string& groups, int ranks) {
  std::string use;
  for (int d = 1; d <= ranks; ++d)
    if (ranks % d == 0) use += str(d == 1 ? "" : d == ranks ? " or " : ", ", d);
  require_input(count >= 1 && ranks % count == 0, name(kind), ": ", counted(ranks, "rank"),
                " cannot be divided into ", groups, "; use ", use);
}

// Half of them; an error says how to choose.
int half_of(StageKind kind, int ranks, const char* how) {
  require_input(ranks > 2 && ranks % 2 == 0, name(kind), " on ", counted(ranks, "rank"),
                " has no default groups; ", how);
  return ranks / 2;
}

}  // namespace

Options with_groups(Options o, int ranks) {
  const VariantGroups groups = file_of(o.stage).groups;
  int64_t &X = o.ranks_per_node, &R = o.replicas;
  if (groups == VariantGroups::none) return X = R = 0, o;
  if (X != 0) require_divides(o.stage, X, str("nodes of ", X), ranks);
  if (groups == VariantGroups::nodes) {
    R = 0;
    if (X == 0)
      X = half_of(o.stage, ranks,
                  "give --ranks-per-node, or zero_hpz_partition_size in a configuration");
    return o;
  }
  if (R != 0) require_divides(o.stage, R, counted(R, "replica"), ranks);
  if (X != 0 && R != 0)
    require_input(X * R == ranks, name(o.stage), ": ", counted(R, "replica"), " of ",
                  counted(ranks, "rank"), " have ", ranks / R, " each, not ", X,
                  " per node; leave one of the two out, or use ", counted(ranks / X, "replica"));
  if (R != 0) X = ranks / R;
  if (X == 0)
    X = half_of(o.stage, ranks,
                "give --replicas, or \"zerolab\": {\"replicas\": R} in a configuration");
  R = ranks / X;
  return o;
}

Groups::Groups(Communicator& comm, const Options& options) {
  const int each = int(with_groups(options, comm.size()).ranks_per_node);
  std::vector<int> group, place;
  for (int r = 0; r < comm.size(); ++r) group.push_back(r / each), place.push_back(r % each);
  intra_ = comm.split(group, "intra");
  inter_ = comm.split(place, "inter");
}

}  // namespace zl
