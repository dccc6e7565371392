#include "tutorials/zerolab/run/run_setup.h"

#include <algorithm>
#include <cstdio>

#include "nn/data/corpus.h"
#include "nn/gpt.h"
#include "stages/deepspeed/config_values.h"
#include "stages/deepspeed/json_text.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/run/machine.h"

namespace zl::cli {
namespace {

using Severity = ConfigFinding::Severity;

// One value that a flag may change.
class Overrides {
 public:
  explicit Overrides(LoadedConfig& loaded) : loaded_(loaded) {}

  // Sets `value`; says so if a file or --set gave another one under `key`.
  template <class T, class Name>
  void set(const std::string& flag, const std::string& key, const T& from, T& value,
           const Name& text) {
    const auto origin = loaded_.origins.find(key);
    if (origin != loaded_.origins.end() && !(value == from))
      loaded_.findings.push_back({Severity::note, origin->second,
                                  str(flag, " ", text(from), " replaces ", text(value)), key});
    value = from;
  }

 private:
  LoadedConfig& loaded_;
};

void apply_flags(const RunOptions& options, LoadedConfig& loaded) {
  Config& config = loaded.config;
  Overrides flags(loaded);
  const auto number = [](const auto& v) { return str(v); };
  const auto stage = [](const std::optional<StageKind>& kind) {
    return std::string(kind ? name(*kind) : "nothing");
  };
  const auto text = [](const std::optional<std::string>& value) {
    return value.value_or("nothing");
  };
  if (options.steps) flags.set("--steps", "zerolab.steps", *options.steps, config.steps, number);
  if (options.seed) flags.set("--seed", "zerolab.seed", *options.seed, config.seed, number);
  if (options.stage)
    flags.set("--stage", "zero_optimization.stage", options.stage, config.stage, stage);
  if (options.model) flags.set("--model", "zerolab.model", options.model, config.model, text);
  if (options.data) flags.set("--data", "zerolab.data", options.data, config.data, text);
  if (options.precision) {
    // The key that decided; if none did, one that is there and off.
    std::string key = config.precision == Dtype::f16                ? "fp16.enabled"
                      : loaded.origins.contains("bfloat16.enabled") ? "bfloat16.enabled"
                                                                    : "bf16.enabled";
    if (config.precision == Dtype::f32 && !loaded.origins.contains(key)) key = "fp16.enabled";
    flags.set("--precision", key, *options.precision, config.precision, precision_name);
  }
  const auto nothing = [](bool on) { return std::string(on ? "(true)" : "false"); };
  if (options.separate_master)
    flags.set("--separate-master", "zerolab.separate_master", true,
              config.optimizer.separate_master, nothing);
}

void print_findings(const std::vector<ConfigFinding>& findings, const RunOptions& options) {
  const Terminal terminal = standard_error(options.color);
  for (const ConfigFinding& finding : findings) {
    if (finding.severity == Severity::note && options.quiet) continue;
    const std::string line = to_string(finding);
    const std::string shown = finding.severity == Severity::error     ? terminal.red(line)
                              : finding.severity == Severity::warning ? terminal.yellow(line)
                                                                      : line;
    std::fputs((shown + "\n").c_str(), stderr);
  }
}

std::string update_line(const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  const ScheduleConfig& s = config.schedule;
  const bool adamw = o.kind == OptimizerKind::adamw;
  std::string text =
      adamw ? str(o.decoupled ? "AdamW" : "Adam, decay added to the gradient", ", betas ", o.beta1,
                  " ", o.beta2, ", eps ", o.eps, o.bias_correction ? "" : ", no bias correction")
            : str("SGD, momentum ", o.momentum, o.nesterov ? " (Nesterov)" : "",
                  o.dampening != 0 ? str(", dampening ", o.dampening) : "");
  text += str(", decay ", o.weight_decay);
  for (const std::string& glob : o.no_weight_decay)
    text += str(&glob == &o.no_weight_decay[0] ? " except " : " ", glob);
  switch (s.kind) {
    case ScheduleKind::constant: text += str("; lr ", o.lr, ", constant"); break;
    case ScheduleKind::warmup:
      text += str("; lr ", s.warmup_min_lr, " to ", s.warmup_max_lr, " in ", s.warmup_num_steps,
                  " steps (WarmupLR)");
      break;
    case ScheduleKind::warmup_decay:
      text += str("; lr ", s.warmup_min_lr, " to ", s.warmup_max_lr, " in ", s.warmup_num_steps,
                  " steps, then to 0 at step ", s.total_num_steps, " (WarmupDecayLR)");
      break;
    case ScheduleKind::warmup_cosine:
      text += str("; lr ", o.lr * s.warmup_min_ratio, " to ", o.lr, " in ", s.warmup_num_steps,
                  " steps, then by cosine to ", o.lr * s.cos_min_ratio, " at step ",
                  s.total_num_steps, " (WarmupCosineLR)");
  }
  return text + (config.gradient_clipping > 0
                     ? str("; gradients clipped to norm ", config.gradient_clipping)
                     : "; no clipping");
}

// "fp16, loss scale from 65536, gradients added in fp32".
std::string describe_precision(const Config& config) {
  std::string text = precision_name(config.precision);
  if (config.precision == Dtype::f16)
    text += str(", loss scale ", LossScaler(config.loss_scale).scale(),
                config.loss_scale.static_scale > 0 ? "" : " to begin with");
  if (config.grad_accum_dtype)
    text += str(", gradients added in ", precision_name(*config.grad_accum_dtype));
  if (config.communication_data_type)
    text += str(", sent in ", precision_name(*config.communication_data_type));
  return text;
}

// A pattern of zerolab.no_weight_decay that matches no parameter is a slip of the pen.
void warn_of_patterns(const RunOptions& options, const LoadedConfig& loaded,
                      const ModelChoice& choice) {
  const auto& globs = loaded.config.optimizer.no_weight_decay;
  if (globs.empty()) return;
  Gpt model(choice.model);
  std::vector<ConfigFinding> findings;
  for (const std::string& glob : globs) {
    if (std::ranges::any_of(model.parameters(),
                            [&](const Parameter& p) { return matches_glob(glob, p.name); }))
      continue;
    findings.push_back(
        {Severity::warning, loaded.origins.at("zerolab.no_weight_decay"),
         str(in_quotes(glob), " matches no parameter of ", choice.name, "; there are ",
             model.parameters().front().name, " to ", model.parameters().back().name),
         "zerolab.no_weight_decay"});
  }
  print_findings(findings, options);
}

// What decides a run's calls and numbers, for processes to compare: each has read its own files and
// flags.
std::string settings_text(const RunOptions& options, const LoadedConfig& loaded,
                          const RunSetup& setup) {
  const GptConfig& m = setup.spec.model;
  const TokenData& data = setup.windows->data();
  std::string text = str("program=zerolab ", kVersion, " ", options.command, "\nmodel=", m.layers,
                         " layers, ", m.heads, " heads, width ", m.width, ", ", m.block_size,
                         " positions, vocabulary ", m.vocab, "\ndata=", data.name(), ", ",
                         setup.windows->training(), " windows of ", setup.spec.window,
                         "\ndevice=", name(setup.device.kind), "\n--init-from=", options.init_from,
                         "\n--shuffle=", options.shuffle, "\n--eval-every=", options.eval_every,
                         "\n--check=", options.check, "\n--timeout=", options.timeout,
                         "\nstage=", name(setup.spec.config.stage.value_or(StageKind::ddp)), "\n");
  for (const ConfigValue& value : effective_values(loaded))
    text += value.key + "=" + value.value + "\n";
  return text;
}

// Bytes that some ranks want of one place.
struct Demand {
  int64_t each = 0, host = 0, here = 0;  // [B] of a rank; of these, for what is offloaded; that the
                                         // place has left, 0: unknown
  int ranks = 1;
  std::string where;
  Pool pool = Pool::device;
};

std::string plural(int64_t n, const char* one) {
  return with_commas(n) + " " + one + (n == 1 ? "" : "s");
}

void require_place(StageKind stage, const Demand& d) {
  if (d.here == 0 || d.each <= d.here / std::max(d.ranks, 1)) return;
  throw OutOfMemory(
      str(name(stage), " needs ", human_bytes(d.each), " per rank",
          d.host > 0 ? str(", ", human_bytes(d.host), " of them for what is offloaded") : "",
          ", so ", human_bytes(d.each * d.ranks), " on ", plural(d.ranks, "rank"), ", but ",
          d.where, " has ", human_bytes(d.here),
          " left; nothing was started. Try a smaller model, --set "
          "train_micro_batch_size_per_gpu=1, --set zerolab.recompute=true, "
          "or 'zerolab plan', which needs no memory."),
      0, d.pool, "initialize", "", d.each);
}

}  // namespace

const char* precision_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f16 ? "fp16" : "fp32";
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = int64_t(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(size_t(at), ",");
  return text;
}

LoadedConfig load_settings(const RunOptions& options, int ranks) {
  LoadedConfig loaded = load_config({.file = options.config_file,
                                     .sets = options.sets,
                                     .ranks = ranks,
                                     .precision = options.precision,
                                     .stage = options.stage,
                                     .several_stages = options.command != "train"});
  if (loaded.ok()) apply_flags(options, loaded);
  print_findings(loaded.findings, options);
  int64_t errors = 0;
  for (const ConfigFinding& finding : loaded.findings)
    errors += finding.severity == Severity::error;
  require_input(errors == 0, "the settings have ", plural(errors, "error"),
                ", named above; nothing was run");
  return loaded;
}

std::optional<ConfiguredModel> configured_model(const RunOptions& options,
                                                const LoadedConfig& loaded) {
  if (!loaded.config.model || options.model) return std::nullopt;
  const auto origin = loaded.origins.find("zerolab.model");
  return ConfiguredModel{*loaded.config.model,
                         origin == loaded.origins.end() ? "" : origin->second};
}

void require_memory(const TrainingSpec& spec, const RunSetup& setup,
                    const std::vector<StageKind>& stages) {
  const DeviceChoice& device = setup.device;
  const std::optional<LaunchedRank>& process = setup.backend.process;
  const int ranks_here = process ? process->local_size : spec.ranks;
  for (const StageKind stage : stages) {
    TrainingSpec dry = spec;
    dry.config.stage = stage;
    dry.windows = nullptr;
    dry.weights = nullptr;
    dry.device_memory = 0;  // that limit is found out in the run itself, by rank, unit and phase
    const RankReport rank = dry_run(dry, 0);  // throws beyond --host-memory
    const int64_t host = rank.host.peak_total(),
                  each = std::max(rank.rest.peak_total(), rank.init_peak_total);
    for (size_t i = 0; i < device.gpus.size(); ++i) {
      const int ranks = process ? 1 : device.ranks_on(i, spec.ranks);
      if (ranks == 0) continue;
      const Gpu& gpu = device.gpus[i];
      const std::string where = str("GPU ", gpu.index, " (", gpu.name, ")");
      require_place(stage, {.each = each,
                            .here = gpu.available,
                            .ranks = ranks,
                            .where = where,
                            .pool = Pool::device});
    }
    const bool apart = device.on_gpus();  // or both pools lie in the machine's memory
    require_place(stage, {.each = host + (apart ? 0 : each),
                          .host = host,
                          .here = available_memory(),
                          .ranks = ranks_here,
                          .where = "this machine",
                          .pool = host > each || apart ? Pool::host : Pool::device});
  }
}

void note_reports_of_train(const Config& config, const char* command) {
  std::string keys;
  const auto add = [&](bool asked, const char* key) {
    if (asked) keys += (keys.empty() ? "" : ", ") + std::string(key);
  };
  add(config.steps_per_print.has_value(), "steps_per_print");
  add(config.wall_clock_breakdown, "wall_clock_breakdown");
  add(config.comms_logger.enabled, "comms_logger");
  add(config.csv_monitor.enabled, "csv_monitor");
  if (!keys.empty())
    std::fprintf(stderr, "note: %s: reports of zerolab train; %s makes none of them\n",
                 keys.c_str(), command);
}

RunSetup set_up_run(const RunOptions& options, int ranks,
                    const std::optional<LaunchedRank>& process) {
  ranks = process ? process->size : options.ranks.value_or(ranks);
  RunSetup setup;
  const LoadedConfig loaded = load_settings(options, ranks);
  const Config& config = loaded.config;
  require_input(options.eval_every <= config.steps, "--eval-every ", options.eval_every,
                " never comes in ", plural(config.steps, "step"));

  setup.device = process ? choose_device_of_process(options, config.precision, process->local_rank)
                         : choose_device(options, config.precision, ranks);
  setup.backend = choose_backend(options, setup.device, ranks, process);
  setup.model = choose_model(options, configured_model(options, loaded));
  warn_of_patterns(options, loaded, setup.model);

  TokenData data = config.data ? TokenData::open(*config.data)
                               : TokenData::of_text("the text that comes with zerolab",
                                                    std::string(default_corpus()));
  data.require_below(setup.model.model.vocab);
  WindowOptions order{.hold_out = options.eval_every > 0};
  if (options.shuffle) order.shuffle_seed = config.seed;
  setup.windows = std::make_unique<const Windows>(std::move(data), setup.model.window, order);

  TrainingSpec& spec = setup.spec;
  spec.model = setup.model.model;
  spec.window = setup.model.window;
  spec.config = config;
  spec.ranks = ranks;
  place(spec, setup.device);
  spec.check_calls = options.check;
  spec.device_memory = options.device_memory;
  spec.host_memory = options.host_memory;
  spec.rank_options.timeout = std::chrono::milliseconds(int64_t(options.timeout * 1000));
  spec.windows = setup.windows.get();
  spec.eval_every = options.eval_every;
  if (const auto weights = setup.model.weights)
    spec.weights = [weights](const Parameter& p) { return weights->load(p.name); };
  spec.interrupted = interrupt_requested;
  place(spec, setup.backend, setup.device, settings_text(options, loaded, setup));
  return setup;
}

std::string describe(const RunSetup& setup, const std::string& stages) {
  const TrainingSpec& spec = setup.spec;
  const Config& config = spec.config;
  const GptConfig& m = spec.model;
  const Windows& windows = *setup.windows;
  const int64_t per_step = config.micro_batch * config.accumulation * spec.ranks;
  const double epochs = double(per_step * config.steps) / double(windows.training());
  std::string text = str(
      "model   ", setup.model.name, ": ", plural(m.layers, "layer"), ", ", plural(m.heads, "head"),
      ", width ", m.width, ", ", with_commas(m.block_size), " positions, vocabulary ",
      with_commas(m.vocab), "; ", with_commas(m.parameters()), " parameters",
      setup.model.weights ? "" : str(", initial values of seed ", config.seed), "\n");
  text +=
      str("data    ", windows.data().name(), ": ", plural(windows.training(), "window"), " of ",
          spec.window, " tokens",
          windows.held_out() > 0 ? str(" and ", with_commas(windows.held_out()), " held out") : "",
          "; this run reads ", digits(epochs, 3), " epochs\n");
  text += str("run     ", stages.empty() ? name(config.stage.value_or(StageKind::ddp)) : stages,
              " on ", plural(spec.ranks, "rank"), ", ", plural(config.steps, "step"), " of ",
              plural(per_step, "window"), " (", with_commas(per_step * spec.window), " tokens): B ",
              config.micro_batch, " × A ", config.accumulation, " × N ", spec.ranks, "; ",
              describe_precision(config),
              config.offload_optimizer ? ", optimizer on the host (but ddp's)" : "",
              config.recompute ? ", blocks recomputed in backward" : "", "\n");
  if (setup.device.on_gpus()) text += "device  " + describe(setup.device, spec.ranks) + "\n";
  if (setup.backend.on_nccl()) text += "ranks   " + describe(setup.backend, config) + "\n";
  return text + "update  " + update_line(config) + "\n";
}

}  // namespace zl::cli
