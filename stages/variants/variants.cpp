#include "stages/variants/variants.h"

#include <algorithm>

namespace zl {

MakeStage make_hsdp, make_zero3_hpz, make_zero3_qwz, make_zero3_qgz;
MakeStage make_deepspeed_1, make_deepspeed_2, make_deepspeed_3, make_fsdp2, make_torch_ddp;

std::span<const Variant> variants() {
  static constexpr Variant table[] = {
      {StageKind::hsdp, "hsdp", StageKind::zero3, VariantBits::rounding, VariantGroups::replicas,
       "inside each of --replicas R groups, which add gradients once per step", make_hsdp},
      {StageKind::zero3_hpz, "zero3_hpz", StageKind::zero3, VariantBits::equal,
       VariantGroups::nodes, "backward gathers inside nodes of --ranks-per-node X (ZeRO++)",
       make_zero3_hpz},
      {StageKind::zero3_qwz, "zero3_qwz", StageKind::zero3, VariantBits::lossy, VariantGroups::none,
       "gathers parameters in 8 bits (ZeRO++)", make_zero3_qwz},
      {StageKind::zero3_qgz, "zero3_qgz", StageKind::zero3, VariantBits::lossy,
       VariantGroups::nodes,
       "reduces gradients in 4 bits, inside nodes of --ranks-per-node X and then between (ZeRO++)",
       make_zero3_qgz},
      {StageKind::deepspeed_1, "deepspeed-1", StageKind::zero1, VariantBits::norm_order,
       VariantGroups::none, "all-reduces gradients in buckets of 5e8 elements (DeepSpeed)",
       make_deepspeed_1},
      {StageKind::deepspeed_2, "deepspeed-2", StageKind::zero2, VariantBits::norm_order,
       VariantGroups::none, "all-reduces gradients in buckets of 5e8 elements (DeepSpeed)",
       make_deepspeed_2},
      {StageKind::deepspeed_3, "deepspeed-3", StageKind::zero3, VariantBits::norm_order,
       VariantGroups::none, "keeps small parameters and what is used again (DeepSpeed)",
       make_deepspeed_3},
      {StageKind::fsdp2, "fsdp2", StageKind::zero3, VariantBits::equal, VariantGroups::none,
       "frees gradients after the step (PyTorch's fully_shard)", make_fsdp2},
      {StageKind::fsdp2_no_reshard, "fsdp2-no-reshard", StageKind::zero3, VariantBits::equal,
       VariantGroups::none, "keeps parameters from forward to backward (PyTorch)", make_fsdp2},
      {StageKind::torch_ddp, "torch-ddp", StageKind::ddp, VariantBits::norm_order,
       VariantGroups::none, "copies gradients into buckets that are never freed (PyTorch)",
       make_torch_ddp},
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

void require_divides(StageKind kind, int count, const char* what, int ranks) {
  std::string divisors;
  for (int d = 1; d <= ranks; ++d)
    if (ranks % d == 0) divisors += str(divisors.empty() ? "" : ", ", d);
  require_input(count >= 1 && ranks % count == 0, name(kind), ": ", count, " ", what,
                " cannot divide ", ranks, " ranks; try one of ", divisors);
}

// Half of them; an error says how to choose.
int half_of(StageKind kind, int ranks, const char* how) {
  require_input(ranks > 2 && ranks % 2 == 0, name(kind), " on ", ranks,
                ranks == 1 ? " rank" : " ranks", " has no default groups; ", how);
  return ranks / 2;
}

}  // namespace

RankGroups rank_groups(StageKind kind, int ranks, RankGroups asked) {
  const Variant* variant = find_variant(kind);
  const VariantGroups groups = variant ? variant->groups : VariantGroups::none;
  if (groups == VariantGroups::none) return {};
  const auto [X, R] = asked;
  if (X != 0) require_divides(kind, X, X == 1 ? "rank per node" : "ranks per node", ranks);
  if (groups == VariantGroups::nodes) {
    if (X != 0) return {X, 0};
    return {half_of(kind, ranks,
                    "give --ranks-per-node, or zero_hpz_partition_size in a configuration"),
            0};
  }
  if (R != 0) require_divides(kind, R, R == 1 ? "replica" : "replicas", ranks);
  const int each = R != 0   ? ranks / R
                   : X != 0 ? X
                            : half_of(kind, ranks,
                                      "give --replicas, or \"zerolab\": "
                                      "{\"replicas\": R} in a configuration");
  return {each, ranks / each};
}

StageOptions with_groups(StageKind kind, int ranks, StageOptions options) {
  const RankGroups groups = rank_groups(kind, ranks, {options.ranks_per_node, options.replicas});
  options.ranks_per_node = groups.ranks_per_node;
  options.replicas = groups.replicas;
  require_input(
      !options.reproducible || bits_of(kind) == VariantBits::equal, name(kind),
      " cannot keep reproducible sums, which add gradient after gradient as they are: it ",
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

const char* name(StageKind kind) {
  static constexpr const char* names[] = {"ddp", "zero1", "zero2", "zero3"};
  const Variant* variant = find_variant(kind);
  return variant ? variant->name : names[size_t(kind)];
}

StageKind parent(StageKind kind) {
  const Variant* variant = find_variant(kind);
  return variant ? variant->parent : kind;
}

std::unique_ptr<Stage> make_stage(StageKind kind, std::vector<Unit>& units, Communicator& comm,
                                  Memory& memory, const StageOptions& options) {
  require(shards_optimizer(kind) || !options.placement.optimizer, name(kind),
          " keeps its optimizer state on the device");
  constexpr MakeStage* make[] = {make_ddp, make_zero1, make_zero2, make_zero3};
  const Variant* variant = find_variant(kind);
  std::unique_ptr<Stage> stage = (variant ? variant->make : make[size_t(kind)])(
      units, comm, memory, with_groups(kind, comm.size(), options));
  stage->start();
  return stage;
}

}  // namespace zl
