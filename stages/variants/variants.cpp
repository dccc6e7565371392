#include "stages/variants/variants.h"

#include <algorithm>
#include <string>
#include <vector>

namespace zl {

std::span<const Variant> variants() {
  static constexpr Variant table[] = {
      {StageKind::hsdp, "hsdp", StageKind::zero3, VariantBits::rounding, VariantGroups::replicas,
       "inside each of --replicas R groups, which add gradients once per step"},
      {StageKind::zero3_hpz, "zero3_hpz", StageKind::zero3, VariantBits::equal,
       VariantGroups::nodes, "backward gathers inside nodes of --ranks-per-node X (ZeRO++)"},
      {StageKind::zero3_qwz, "zero3_qwz", StageKind::zero3, VariantBits::lossy, VariantGroups::none,
       "gathers parameters in 8 bits (ZeRO++)"},
      {StageKind::zero3_qgz, "zero3_qgz", StageKind::zero3, VariantBits::lossy,
       VariantGroups::nodes, "reduces gradients in 4 bits, inside nodes, then between (ZeRO++)"},
  };
  return table;
}

const Variant* find_variant(StageKind kind) {
  const auto found = std::ranges::find(variants(), kind, &Variant::kind);
  return found == variants().end() ? nullptr : &*found;
}

VariantBits bits_of(StageKind kind) {
  const Variant* variant = find_variant(kind);
  return variant ? variant->bits : VariantBits::equal;
}

namespace {

// "4 ranks", "1 replica".
std::string counted(int count, const char* what) {
  return str(count, " ", what, count == 1 ? "" : "s");
}

// `groups`: what the ranks are divided into, such as "3 replicas".
void require_divides(StageKind kind, int count, const std::string& groups, int ranks) {
  std::vector<int> divisors;
  for (int d = 1; d <= ranks; ++d)
    if (ranks % d == 0) divisors.push_back(d);
  std::string use;
  for (size_t i = 0; i < divisors.size(); ++i)
    use += str(i == 0 ? "" : i + 1 == divisors.size() ? " or " : ", ", divisors[i]);
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

GroupSizes rank_groups(StageKind kind, int ranks, GroupSizes asked) {
  const Variant* variant = find_variant(kind);
  const VariantGroups groups = variant ? variant->groups : VariantGroups::none;
  if (groups == VariantGroups::none) return {};
  const auto [X, R] = asked;
  if (X != 0) require_divides(kind, X, str("nodes of ", X), ranks);
  if (groups == VariantGroups::nodes) {
    if (X != 0) return {X, 0};
    return {half_of(kind, ranks,
                    "give --ranks-per-node, or zero_hpz_partition_size in a configuration"),
            0};
  }
  if (R != 0) require_divides(kind, R, counted(R, "replica"), ranks);
  if (X != 0 && R != 0)
    require_input(X * R == ranks, name(kind), ": ", counted(R, "replica"), " of ",
                  counted(ranks, "rank"), " have ", ranks / R, " each, not ", X,
                  " per node; leave one of the two out, or use ", counted(ranks / X, "replica"));
  const int each = R != 0   ? ranks / R
                   : X != 0 ? X
                            : half_of(kind, ranks,
                                      "give --replicas, or \"zerolab\": "
                                      "{\"replicas\": R} in a configuration");
  return {each, ranks / each};
}

StageOptions with_groups(StageKind kind, int ranks, StageOptions options) {
  const GroupSizes groups = rank_groups(kind, ranks, {options.ranks_per_node, options.replicas});
  options.ranks_per_node = groups.ranks_per_node;
  options.replicas = groups.replicas;
  require_input(
      !options.reproducible || bits_of(kind) == VariantBits::equal, name(kind),
      " does not support reproducible sums: it ",
      bits_of(kind) == VariantBits::lossy ? "communicates fewer bits" : "adds the sums of groups",
      "; leave \"reproducible\" out, or take zero3 or zero3_hpz");
  require_input(kind != StageKind::zero3_qgz || !options.communication_dtype, name(kind),
                " communicates gradients in 4 bits; leave communication_data_type out");
  return options;
}

std::vector<StageKind> all_stages() {
  std::vector<StageKind> all(std::begin(kStages), std::end(kStages));
  for (const Variant& variant : variants()) all.push_back(variant.kind);
  return all;
}

const char* name(OffloadDevice device) {
  return device == OffloadDevice::none ? "none" : device == OffloadDevice::cpu ? "cpu" : "nvme";
}

const char* name(StageKind kind) {
  static constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3"};
  const Variant* variant = find_variant(kind);
  return variant ? variant->name : names[size_t(kind)];
}

StageKind parent(StageKind kind) {
  const Variant* variant = find_variant(kind);
  return variant ? variant->parent : kind;
}

}  // namespace zl
