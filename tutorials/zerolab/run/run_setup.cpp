#include "tutorials/zerolab/run/run_setup.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "nn/data/corpus.h"
#include "nn/gpt.h"
#include "stages/checkpoint/manifest.h"
#include "stages/deepspeed/config.h"
#include "stages/deepspeed/json_text.h"
#include "stages/variants/groups.h"
#include "tensor/io/crc32c.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"
#include "tutorials/zerolab/run/run_checkpoints.h"

namespace zl::cli {
namespace {

using Severity = ConfigFinding::Severity;

// Sets `value` as `flag` says; adds a note if a file or --set gave another value under `key`.
template <class T, class Text>
void replace(LoadedConfig& loaded, const std::string& flag, const std::string& key, const T& from,
             T& value, const Text& text) {
  const auto origin = loaded.origins.find(key);
  if (origin != loaded.origins.end() && !(value == from))
    loaded.findings.push_back({Severity::note, origin->second,
                               str(flag, " ", text(from), " replaces ", text(value)), key, true});
  value = from;
}

// The key that decided the precision; if none did, one that is in the file and off.
std::string precision_key(const LoadedConfig& loaded) {
  const Dtype precision = loaded.config.precision;
  const bool bf16 = precision == Dtype::bf16 || loaded.origins.contains("bf16.enabled");
  return bf16 && precision != Dtype::f16 ? "bf16.enabled" : "fp16.enabled";
}

// The flags that are not the value of one key.
void apply_flags(const ConfigSource& source, LoadedConfig& loaded) {
  Config& config = loaded.config;
  const auto stage = [](StageKind kind) { return name(kind); };
  if (source.stage)
    replace(loaded, "--stage", "zero_optimization.stage", *source.stage, config.stage, stage);
  const auto groups = [&](const char* flag, const char* key, int64_t given, int64_t& value) {
    if (given > 0) replace(loaded, flag, key, given, value, [](int64_t size) { return size; });
  };
  groups("--ranks-per-node", "zero_optimization.zero_hpz_partition_size", source.ranks_per_node,
         config.ranks_per_node);
  groups("--replicas", "zerolab.replicas", source.replicas, config.replicas);
  if (source.precision)
    replace(loaded, "--precision", precision_key(loaded), *source.precision, config.precision,
            precision_name);
}

// Both kinds of offload may be on the disk, with one folder.
void add_nvme_path(const std::string& path, ConfigSource& source) {
  const std::vector<KeyFlag> given = source.flags;
  for (const KeyFlag& f : given)
    if (f.flag.starts_with("--offload") && f.text == "nvme")
      source.flags.push_back(
          {"--nvme-path", f.key.substr(0, f.key.rfind('.')) + ".nvme_path", path});
  if (source.flags.size() == given.size())
    throw UsageError(
        "--nvme-path is the folder of --offload nvme or --offload-param nvme; give one of "
        "them too, or set nvme_path in the configuration");
}

// Several notes about the file are one line.
void print_findings(std::vector<ConfigFinding> findings, const RunOptions& options) {
  const Terminal terminal = standard_error(options.color);
  const std::string& file = options.source.file;
  const auto is_of_file = [&](const ConfigFinding& f) {
    return f.severity == Severity::note && !f.of_flag && f.where.starts_with(file + ":");
  };
  if (const int64_t notes = std::ranges::count_if(findings, is_of_file); notes > 1) {
    std::erase_if(findings, is_of_file);
    findings.push_back({Severity::note, file,
                        str(notes, " keys have notes, which 'zerolab config check ", file,
                            "' lists; most have no effect here"),
                        ""});
  }
  for (const ConfigFinding& finding : findings) {
    if (finding.severity == Severity::note && options.quiet) continue;
    const std::string line = printable(to_string(finding));
    const std::string shown = finding.severity == Severity::error     ? terminal.red(line)
                              : finding.severity == Severity::warning ? terminal.yellow(line)
                                                                      : line;
    std::fputs((shown + "\n").c_str(), stderr);
  }
}

// "lr 0 to 0.01 in 10 steps (WarmupLR)".
std::string schedule_text(const ScheduleConfig& s, double lr) {
  if (s.kind == ScheduleKind::constant) return str("lr ", lr, ", constant");
  const char* type = s.kind == ScheduleKind::warmup          ? "WarmupLR"
                     : s.kind == ScheduleKind::warmup_cosine ? "WarmupCosineLR"
                                                             : "WarmupDecayLR";
  return "lr " + describe(s, lr, type);
}

std::string update_line(const Config& config) {
  return describe(config.optimizer) + "; " + schedule_text(config.schedule, config.optimizer.lr) +
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

// "fp16, loss scale 65536 to begin with, gradients accumulated in fp32".
std::string describe_precision(const Config& config) {
  std::string text = precision_name(config.precision);
  if (config.precision == Dtype::f16)
    text += str(", loss scale ", LossScaler(config.loss_scale).scale(),
                config.loss_scale.static_scale > 0 ? "" : " to begin with");
  if (config.grad_accum_dtype)
    text += str(", gradients accumulated in ", precision_name(*config.grad_accum_dtype));
  if (config.communication_data_type)
    text += str(", communicated in ", precision_name(*config.communication_data_type));
  return text;
}

// A pattern of zerolab.no_weight_decay that matches no parameter is probably a typo.
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

// "w.safetensors: 5160 bytes, CRC-32C 1a2b3c4d".
std::string content_line(const std::string& file) {
  std::error_code ignored;
  const uintmax_t bytes = std::filesystem::file_size(file, ignored);
  return str("\n", file, ": ", bytes, " bytes, CRC-32C ", crc_text(crc32c_of_file(file)));
}

// All that a run's collectives and numbers depend on. Processes compare it, because each has read
// its own files and flags: the files by their content, the configuration by its values.
std::string settings_text(const RunOptions& options, const LoadedConfig& loaded,
                          const RunSetup& setup) {
  const GptConfig& m = setup.spec.model;
  const TokenData& data = setup.windows->data();
  std::string text =
      str("program=zerolab ", kVersion, " ", options.command, "\n--init-from=", options.init_from);
  if (setup.model.weights)
    for (const std::string& file : setup.model.weights->files()) text += content_line(file);
  text += str("\ndata=", data.name());
  for (int f = 0; loaded.config.data && f < data.files(); ++f)
    text += content_line(data.file_name(f));
  text += str("\nwindows=", setup.windows->training(), " of ", setup.spec.window,
              "\nmodel=", m.layers, " layers, ", m.heads, " heads, width ", m.width, ", ",
              m.block_size, " positions, vocabulary ", m.vocab,
              "\ndevice=", setup.spec.device_name(), "\n--shuffle=", options.shuffle,
              "\n--eval-every=", options.eval_every, "\n--check=", options.check,
              "\n--timeout=", options.timeout, "\n--save-every=", setup.spec.checkpoint.save_every,
              "\n--checkpoint-writes=", name(setup.spec.checkpoint.writes),
              "\n--resume=", setup.spec.checkpoint.resume,
              "\nstage=", name(setup.spec.engine.stage), "\n");
  for (const ConfigValue& value : effective_values(loaded))
    text += value.key + "=" + value.value + "\n";
  return text;
}

// Before any data is read; zl::rank_options() has the rule.
void require_link(const RunOptions& options, const RunSetup& setup) {
  const bool real = setup.device.on_gpus() || !setup.backend.on_threads();
  require_input(
      !options.link.simulated() || !real,
      "--link-bandwidth and --link-latency simulate a link between ranks that are threads "
      "on the CPU, but here ",
      setup.device.on_gpus() ? "the ranks are on GPUs" : setup.backend.version + " moves the data",
      "; add --device cpu --backend threads, or leave them out");
}

// ", 2 checkpoints, inputs partitioned"; "" where every block's input stays on the device.
std::string describe_checkpointing(const Config& config) {
  return str(config.checkpoints > 0 ? ", " + plural(config.checkpoints, "checkpoint") : "",
             config.partition_activations ? ", inputs partitioned" : "",
             config.cpu_checkpointing ? ", inputs on the host" : "",
             config.replicated_micro_batches ? ", the same micro-batches on all ranks" : "");
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

LoadedConfig load_settings(const RunOptions& options, int ranks) {
  ConfigSource source = options.source;
  source.ranks = ranks;
  if (!options.nvme_path.empty()) add_nvme_path(options.nvme_path, source);
  LoadedConfig loaded = load_config(source);
  if (loaded.ok()) apply_flags(source, loaded);
  print_findings(loaded.findings, options);
  const int64_t errors =
      std::ranges::count(loaded.findings, Severity::error, &ConfigFinding::severity);
  require_input(errors == 0, "the settings have ", plural(errors, "error"),
                ", named above; nothing was run");
  return loaded;
}

std::optional<ConfiguredModel> configured_model(const LoadedConfig& loaded) {
  if (!loaded.config.model) return std::nullopt;
  return ConfiguredModel{*loaded.config.model, loaded.origins.at("zerolab.model")};
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
  add(config.tensorboard.enabled, "tensorboard");
  if (!keys.empty())
    std::fprintf(stderr,
                 "note: %s: ignored by zerolab %s; only zerolab train writes these reports\n",
                 keys.c_str(), command);
}

GptTrainingSpec spec_of(const ModelChoice& model, const Config& config) {
  GptTrainingSpec spec = gpt_spec(model.model, model.window, config.recompute, config.checkpoints);
  spec.engine = config;
  spec.micro_batch = config.micro_batch;
  spec.steps = config.steps;
  spec.ordered_sums = config.ordered;
  return spec;
}

RunSetup set_up_run(const RunOptions& options, int ranks,
                    const std::optional<LaunchedRank>& process) {
  ranks = process ? process->size : options.ranks.value_or(ranks);
  RunSetup setup;
  const LoadedConfig loaded = load_settings(options, ranks);
  const Config& config = setup.config = loaded.config;
  setup.values = effective_values(loaded);
  require_input(options.eval_every <= config.steps, "--eval-every ", options.eval_every,
                " is more than ", plural(config.steps, "step"), ", so no evaluation would be made");

  setup.device = process ? choose_device_of_process(options, config.precision, process->local_rank)
                         : choose_device(options, config.precision, ranks);
  require_threads_used(setup.device.kind, setup.device.threads,
                       config.offload_optimizer != OffloadDevice::none);
  setup.backend = choose_backend(options, setup.device, ranks, process);
  setup.model = choose_model(options, configured_model(loaded));
  if (setup.model.weights && !options.quiet)
    for (const std::string& note : setup.model.weights->info().notes)
      std::fprintf(stderr, "note: %s\n", printable(note).c_str());
  require_link(options, setup);
  warn_of_patterns(options, loaded, setup.model);

  TokenData data = config.data ? TokenData::open(*config.data)
                               : TokenData::of_text("the text that comes with zerolab",
                                                    std::string(default_corpus()));
  const Poll poll = [] {
    if (interrupt_requested()) throw Interrupted();
  };
  data.require_below(setup.model.model.vocab, poll);
  WindowOptions order{.hold_out = options.eval_every > 0, .poll = poll};
  if (options.shuffle) order.shuffle_seed = config.seed;
  setup.windows = std::make_unique<const Windows>(std::move(data), setup.model.window, order);

  GptTrainingSpec& spec = setup.spec;
  spec = spec_of(setup.model, config);
  spec.ranks = ranks;
  place(spec, setup.device);
  spec.check_calls = options.check;
  spec.device_memory = options.device_memory;
  spec.host_memory = options.host_memory;
  spec.link = options.link;
  spec.rank_options.timeout = std::chrono::milliseconds(int64_t(options.timeout * 1000));
  spec.data = setup.windows.get();
  spec.eval_every = options.eval_every;
  if (const auto weights = setup.model.weights)
    spec.weights = [weights](const Parameter& p) { return weights->load(p.name); };
  spec.checkpoint = checkpoint_options(options);
  spec.interrupted = interrupt_requested;
  place(spec, setup.backend, setup.device,
        setup.backend.process ? settings_text(options, loaded, setup) : "");
  return setup;
}

std::string describe(const RunSetup& setup, const std::vector<StageKind>& compared) {
  const GptTrainingSpec& spec = setup.spec;
  const Config& config = setup.config;
  const StageKind stage = config.stage;
  const GptConfig& m = spec.model;
  const Windows& windows = *setup.windows;
  const int64_t per_step = config.micro_batch * config.accumulation * readers(config, spec.ranks);
  const double epochs = double(per_step * config.steps) / double(windows.training());
  std::string text = str("model   ", setup.model.name, ": ", plural(m.layers, "layer"), ", ",
                         plural(m.heads, "head"), ", width ", m.width, ", ",
                         with_commas(m.block_size), " positions, vocabulary ", with_commas(m.vocab),
                         "; ", with_commas(m.parameters()), " parameters",
                         setup.model.weights || !spec.checkpoint.resume.empty()
                             ? ""
                             : str(", initial values of seed ", config.seed),
                         "\n");
  text +=
      str("data    ", windows.data().name(), ": ", plural(windows.training(), "window"), " of ",
          spec.window, " tokens",
          windows.held_out() > 0 ? str(" and ", with_commas(windows.held_out()), " held out") : "",
          "; this run reads ", digits(epochs, 3), " epochs\n");
  text += str(
      "run     ", compared.empty() ? name(stage) : "ddp and each listed stage", " on ",
      plural(spec.ranks, "rank"),
      setup.device.threads > 1 ? str(" of ", setup.device.threads, " threads") : "", ", ",
      plural(config.steps, "step"), " of ", plural(per_step, "window"), " (",
      with_commas(per_step * spec.window), " tokens): B ", config.micro_batch, " × A ",
      config.accumulation, " × N ", spec.ranks, "; ", describe_precision(config),
      config.reproducible ? ", reproducible sums" : "",
      config.offload_optimizer == OffloadDevice::cpu    ? ", optimizer on the host (except ddp's)"
      : config.offload_optimizer == OffloadDevice::nvme ? ", optimizer on disk (except ddp's)"
                                                        : "",
      config.offload_param == OffloadDevice::cpu    ? ", parameters on the host (stage 3)"
      : config.offload_param == OffloadDevice::nvme ? ", parameters on disk (stage 3)"
                                                    : "",
      config.recompute == Recompute::selective ? "" : str(", recompute ", name(config.recompute)),
      describe_checkpointing(config), "\n");
  text += groups_line(config, spec.ranks, compared.empty() ? std::vector{stage} : compared);
  if (setup.device.on_gpus() || spec.reference)
    text += "device  " + describe(setup.device, spec.ranks) + "\n";
  if (!setup.backend.on_threads())
    text += "ranks   " + describe(setup.backend, config.ordered) + "\n";
  if (spec.link.simulated()) text += "link    simulated: " + describe(spec.link) + "\n";
  return printable(text + "update  " + update_line(config) + "\n");
}

}  // namespace zl::cli
