// zero_optimization, where keys depend on each other or on the stage, as in DeepSpeed 0.19.8
// (runtime/zero/config.py).

#include <algorithm>

#include "stages/deepspeed/reading.h"
#include "stages/stage_file.h"
#include "stages/variants/presets.h"
#include "tensor/error.h"

namespace zl {
namespace {

const std::string kZero = "zero_optimization.";

// The stage by which keys are judged; empty: several will run.
std::optional<StageKind> judged_stage(const Reading& r) {
  if (r.source.several_stages) return std::nullopt;
  return r.source.stage.value_or(r.config.stage);
}

// A preset chooses the stage that it changes.
void apply_preset(Reading& r) {
  Config& c = r.config;
  const Preset* preset = find_preset(c.as);
  if (preset == nullptr) return;
  if (r.value(kZero + "stage") && c.stage != preset->parent)
    r.error(kZero + "stage", str("is ", stage_number(c.stage), ", but zerolab.as is \"", c.as,
                                 "\", which is a stage ", stage_number(preset->parent),
                                 "; leave one of the two out"));
  c.stage = preset->parent;
  if (const auto stage = judged_stage(r))
    r.note("zerolab.as",
           str(c.as, " is predicted, not run: 'zerolab compare' and 'zerolab plan' show what it ",
               "keeps and sends; ", name(*stage), " runs"));
}

// A key of ZeRO++ or HSDP that is on, and the variant of stage 3 that it selects.
struct VariantKey {
  std::string key;
  StageKind kind;
  int64_t group = 1;  // the ranks must be a multiple of it
};

std::vector<VariantKey> variant_keys(const Reading& r) {
  const Config& c = r.config;
  const ConfigSource& source = r.source;
  const VariantGroups taken =  // --stage of such a variant takes its size here
      source.stage && !source.several_stages ? file_of(*source.stage).groups : VariantGroups::none;
  std::vector<VariantKey> keys;
  if (r.is_on(kZero + "zero_quantized_weights"))
    keys.push_back({kZero + "zero_quantized_weights", StageKind("zero3_qwz")});
  if (r.is_on(kZero + "zero_quantized_gradients"))
    keys.push_back({kZero + "zero_quantized_gradients", StageKind("zero3_qgz")});
  if (c.ranks_per_node > 0 && taken == VariantGroups::none)
    keys.push_back({kZero + "zero_hpz_partition_size", StageKind("zero3_hpz"),
                    source.ranks_per_node > 0 ? source.ranks_per_node : c.ranks_per_node});
  if (c.replicas > 1 && taken != VariantGroups::replicas)
    keys.push_back({"zerolab.replicas", StageKind("hsdp"),
                    source.replicas > 0 ? source.replicas : c.replicas});
  return keys;
}

// Each of the keys makes stage 3 the variant of that name. A flag for the stage wins, and where
// several stages run, the keys choose none.
void apply_variants(Reading& r) {
  Config& c = r.config;
  const ConfigSource& source = r.source;
  if (c.ranks_per_node == 1) c.ranks_per_node = 0;  // DeepSpeed's 1: off
  const StageKind stage = c.stage;
  const bool several = source.several_stages, flag = source.stage && !several;
  const auto keys = variant_keys(r);
  for (const auto& [key, kind, group] : keys) {
    if (!flag && (c.as.empty() || several) && stage == StageKind::zero3 && keys.size() > 1) {
      r.error(key, str("zerolab has one stage for each of zero_quantized_weights, "
                       "zero_quantized_gradients, zero_hpz_partition_size above 1 and replicas, "
                       "and none for several together; keep one, or give --stage ",
                       name(kind)));
    } else if (several) {
      r.note(key, str("several stages run here: list ", name(kind), " among them"));
    } else if (flag || !c.as.empty() || stage != StageKind::zero3) {
      const std::string where = flag ? str("--stage ", name(*source.stage), " overrides it")
                                : !c.as.empty() ? str("zerolab.as is ", c.as)
                                                : str("this is stage ", stage_number(stage));
      if (!flag || *source.stage != kind)
        r.note(key, str("has no effect: ", where, "; it selects ", name(kind), " in stage 3"));
    } else {
      c.stage = kind;
      if (source.ranks > 1 && source.ranks % group != 0)
        r.error(key, str(group, " does not divide ", source.ranks, " ranks"));
    }
  }
}

// cpu_offload and cpu_offload_param, which a block has replaced: "cpu" if they are on.
void apply_deprecated(Reading& r, const char* old, const char* block, OffloadDevice& device) {
  const std::string key = kZero + old;
  if (!r.value(key)) return;
  const bool on = r.is_on(key);
  if (r.has(kZero + block))
    return r.error(key, str("leave it out: ", block, " replaces it, and is given too"));
  r.warn(key,
         str("is deprecated: write \"", block, "\": {\"device\": \"", on ? "cpu" : "none", "\"}"));
  if (!on) return;
  device = OffloadDevice::cpu;
  r.loaded.origins[str(kZero, block, ".device")] = r.where(key) + ": " + key;
}

// The key that asks for an offload.
std::string asking(const Reading& r, const std::string& block, const std::string& old) {
  return kZero + (r.is_on(kZero + old) ? old : block);
}

void apply_offload(Reading& r) {
  Config& c = r.config;
  const std::string optimizer = kZero + "offload_optimizer", param = kZero + "offload_param";
  const auto stage = judged_stage(r);
  const bool on_disk = c.offload_optimizer == OffloadDevice::nvme,
             params_on_disk = c.offload_param == OffloadDevice::nvme;
  const auto folder = [&](const std::string& block, bool disk, const char* file) {
    const JsonValue* path = r.value(block + ".nvme_path");
    const std::string text = path ? path->text : "";
    if (disk && text.empty())
      r.error(block + ".device",
              str("nvme needs nvme_path: the folder in which the ", file, " file is made"));
    return text;
  };
  const std::string of_state = folder(optimizer, on_disk, "state's"),
                    of_shards = folder(param, params_on_disk, "shards'");
  if (on_disk && params_on_disk && !of_shards.empty() && of_shards != of_state)
    r.error(param + ".nvme_path", str("is ", of_shards, ", but offload_optimizer's is ", of_state,
                                      ": a rank makes one file; write the same"));
  c.nvme_path = params_on_disk ? of_shards : of_state;
  c.swap.sub_group_size = std::max<int64_t>(c.swap.sub_group_size, 1);  // DeepSpeed takes 0
  const JsonValue* ratio = r.value(optimizer + ".ratio");
  if (ratio && ratio->number != 1 && !shards_parameter(r.as_run().stage))
    r.error(optimizer + ".ratio",
            str(ratio->number, " needs stage 3, as in DeepSpeed; leave it out"));
  if (c.offload_optimizer != OffloadDevice::none &&
      !shards_optimizer(stage.value_or(StageKind::ddp)))
    r.note(asking(r, "offload_optimizer", "cpu_offload"),
           "has an effect in stages 1 to 3: ddp keeps its optimizer state on the device");
  if (c.offload_param == OffloadDevice::none) return;
  const std::string key = asking(r, "offload_param", "cpu_offload_param");
  if (stage == StageKind("zero3_qwz"))
    r.error(key,
            str("leave it out: ", name(*stage), " quantizes its parameter shard on the device"));
  else if (!shards_parameter(stage.value_or(StageKind::ddp)))
    r.note(key,
           "has an effect in stage 3 only, as in DeepSpeed: the other stages compute with full "
           "parameters, which stay on the device");
}

// What DeepSpeed refuses in some stages.
void apply_refusals(Reading& r) {
  const auto stage = judged_stage(r);
  const std::string norm = kZero + "compute_grad_norm";
  if (!r.is_on(norm, true) && stage &&
      (parent(*stage) == StageKind::ddp || shards_parameter(*stage)))
    r.error(norm, "write true: DeepSpeed takes false in stages 1 and 2 only");
  const JsonValue* divisor = r.value("gradient_predivide_factor");
  if (!r.is_on(kZero + "reduce_scatter", true) || !stage || !shards_gradient(*stage)) return;
  for (const auto& [key, given] : {std::pair{"prescale_gradients", r.is_on("prescale_gradients")},
                                   {"gradient_predivide_factor", divisor && divisor->number != 1}})
    if (given)
      r.error(key, "leave it out: DeepSpeed refuses it in stages 2 and 3 with reduce_scatter");
}

}  // namespace

void apply_zero_rules(Reading& r) {
  Config& c = r.config;
  apply_preset(r);
  apply_variants(r);
  apply_deprecated(r, "cpu_offload", "offload_optimizer", c.offload_optimizer);
  apply_deprecated(r, "cpu_offload_param", "offload_param", c.offload_param);
  apply_offload(r);
  apply_refusals(r);
  // Absent and null mean DeepSpeed's default: true in stage 3 and false elsewhere.
  if (r.loaded.deepspeed_defaults && !r.value(kZero + "overlap_comm"))
    c.overlap.overlap_comm = shards_parameter(r.as_run().stage);
}

}  // namespace zl
