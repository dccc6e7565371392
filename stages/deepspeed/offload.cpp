// zero_optimization.offload_optimizer and offload_param: where shards are kept.
#include "stages/deepspeed/reader.h"

namespace zl {

void read_offload_optimizer(ConfigBlock& zero, std::optional<StageKind> stage, bool old,
                            Config& config) {
  ConfigBlock offload = zero.block("offload_optimizer");
  const std::string device = offload.get<std::string>("device").value_or("none");
  const double ratio = offload.get<double>("ratio").value_or(1);
  if (ratio != 1 && !shards_parameter(stage.value_or(StageKind::zero3)))
    offload.error("ratio", str(ratio, " needs stage 3, as in DeepSpeed; leave it out"));
  else if (ratio != 1)
    offload.note("ratio", "has no effect yet: all of the optimizer state is offloaded");
  offload.read("nvme_path", config.nvme_path);
  offload.read("pipeline_read", config.swap.pipeline_read);
  offload.read("pipeline_write", config.swap.pipeline_write);
  zero.read("sub_group_size", config.swap.sub_group_size);
  if (device == "nvme" && config.nvme_path.empty())
    offload.error("device", "nvme needs nvme_path: the folder in which the state's file is made");
  for (const char* key : {"nvme_path", "pipeline_read", "pipeline_write"})
    if (device != "nvme" && offload.given(key))
      offload.note(key, str("has no effect with device ", device, ": it is for nvme"));
  if (device != "nvme" && zero.given("sub_group_size"))
    zero.note("sub_group_size", "has no effect: it is for offload_optimizer to nvme");
  offload.finish();
  config.offload_optimizer = device == "nvme"         ? OffloadDevice::nvme
                             : device == "cpu" || old ? OffloadDevice::cpu
                                                      : OffloadDevice::none;
  if (config.offload_optimizer != OffloadDevice::none &&
      !shards_optimizer(stage.value_or(StageKind::ddp)))
    zero.note(old ? "cpu_offload" : "offload_optimizer",
              "has an effect in stages 1 to 3: ddp keeps its optimizer state on the device");
}

void read_offload_param(ConfigBlock& zero, std::optional<StageKind> stage, bool old,
                        Config& config) {
  ConfigBlock offload = zero.block("offload_param");
  const std::string device = offload.get<std::string>("device").value_or("none");
  std::string folder;
  offload.read("nvme_path", folder);
  if (device == "nvme" && folder.empty())
    offload.error("device", "nvme needs nvme_path: the folder in which the shards' file is made");
  else if (device != "nvme" && offload.given("nvme_path"))
    offload.note("nvme_path", str("has no effect with device ", device, ": it is for nvme"));
  else if (device == "nvme" && config.offload_optimizer == OffloadDevice::nvme &&
           folder != config.nvme_path)
    offload.error("nvme_path", str("is ", folder, ", but offload_optimizer's is ", config.nvme_path,
                                   ": a rank makes one file; write the same"));
  if (device == "nvme") config.nvme_path = folder;
  offload.finish();
  if (device == "none" && !old) return;
  config.offload_param = device == "nvme" ? OffloadDevice::nvme : OffloadDevice::cpu;
  const char* key = old ? "cpu_offload_param" : "offload_param";
  if (stage == StageKind("zero3_qwz"))
    zero.error(key,
               str("leave it out: ", name(*stage), " quantizes its parameter shard on the device"));
  else if (!shards_parameter(stage.value_or(StageKind::ddp)))
    zero.note(key,
              "has an effect in stage 3 only, as in DeepSpeed: the other stages compute with full "
              "parameters, which stay on the device");
}

}  // namespace zl
