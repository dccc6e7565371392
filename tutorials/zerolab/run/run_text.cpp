// What a run is, in a few lines.

#include "stages/variants/groups.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

// "AdamW, betas 0.9 0.999, …; lr 0 to 0.01 in 10 steps (WarmupLR); no clipping".
std::string update_line(const Config& config) {
  const ScheduleConfig& s = config.schedule;
  const double lr = config.optimizer.lr;
  const char* type = s.kind == ScheduleKind::warmup          ? "WarmupLR"
                     : s.kind == ScheduleKind::warmup_cosine ? "WarmupCosineLR"
                                                             : "WarmupDecayLR";
  return describe(config.optimizer) + "; " +
         (s.kind == ScheduleKind::constant ? str("lr ", lr, ", constant")
                                           : "lr " + describe(s, lr, type)) +
         (config.gradient_clipping > 0
              ? str("; gradients clipped to norm ", config.gradient_clipping)
              : "; no clipping");
}

// "groups  hsdp: 2 replicas of 2 ranks", of the stages that have groups.
std::string groups_line(const Config& config, int ranks, const std::vector<StageKind>& stages) {
  std::string text;
  for (const StageKind kind : stages) {
    Options options = config;
    options.stage = kind;
    const Options groups = with_groups(options, ranks);
    if (groups.ranks_per_node == 0) continue;
    text += str(text.empty() ? "groups  " : "; ", name(kind), ": ",
                plural(ranks / groups.ranks_per_node, groups.replicas > 0 ? "replica" : "node"),
                " of ", plural(groups.ranks_per_node, "rank"));
  }
  return text.empty() ? "" : text + "\n";
}

// "set     bf16.enabled=true, zerolab.steps=20": the given values that are not zerolab's defaults.
std::string settings_line(const std::vector<ConfigValue>& values) {
  std::string text;
  for (const ConfigValue& v : values)
    if (v.value != v.ours && !v.origin.starts_with("derived") && v.origin != "default" &&
        v.key != "zerolab.model" && v.key != "zerolab.steps")  // in the lines above
      text += (text.empty() ? "set     " : ", ") + v.key + "=" + v.value;
  return text.empty() ? "" : text + "\n";
}

// "100 MB/s for each rank, 50 us per call".
std::string describe(const Link& link) {
  std::string text;
  if (link.bandwidth > 0) text = digits(link.bandwidth * 1e-6, 4) + " MB/s for each rank";
  if (link.latency > 0)
    text += (text.empty() ? "" : ", ") + digits(link.latency * 1e6, 4) + " us per call";
  return text;
}

}  // namespace

std::string describe(const RunSetup& setup, const std::vector<StageKind>& compared) {
  const GptTrainingSpec& spec = setup.spec;
  const Config& config = setup.config;
  const GptConfig& m = spec.model;
  const Windows& windows = *setup.windows;
  const int64_t per_step = config.micro_batch * config.accumulation * readers(config, spec.ranks);
  const double epochs = double(per_step * config.steps) / double(windows.training());
  std::string text = str(
      "model   ", setup.model.name, ": ", plural(m.layers, "layer"), ", ", plural(m.heads, "head"),
      ", width ", m.width, ", ", with_commas(m.block_size), " positions, vocabulary ",
      with_commas(m.vocab), "; ", with_commas(m.parameters()), " parameters",
      setup.model.weights || !spec.checkpoint.resume.empty()
          ? ""
          : str(", initial values of seed ", config.seed),
      "\ndata    ", windows.data().name(), ": ", plural(windows.training(), "window"), " of ",
      spec.window, " tokens",
      windows.held_out() > 0 ? str(" and ", with_commas(windows.held_out()), " held out") : "",
      "; this run reads ", digits(epochs, 3), " epochs\nrun     ",
      compared.empty() ? name(config.stage) : "ddp and each listed stage", " on ",
      plural(spec.ranks, "rank"),
      setup.device.threads > 1 ? str(" of ", setup.device.threads, " threads") : "", ", ",
      plural(config.steps, "step"), " of ", plural(per_step, "window"), " (",
      with_commas(per_step * spec.window), " tokens): B ", config.micro_batch, " × A ",
      config.accumulation, " × N ", spec.ranks, "; ", precision_name(config.precision), "\n",
      groups_line(config, spec.ranks, compared.empty() ? std::vector{config.stage} : compared));
  if (setup.device.on_gpus() || spec.reference)
    text += "device  " + describe(setup.device, spec.ranks) + "\n";
  if (!setup.backend.on_threads())
    text += "ranks   " + describe(setup.backend, config.ordered) + "\n";
  if (spec.link.simulated()) text += "link    simulated: " + describe(spec.link) + "\n";
  return printable(text + settings_line(setup.values) + "update  " + update_line(config) + "\n");
}

}  // namespace zl::cli
