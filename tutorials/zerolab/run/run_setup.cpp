#include "tutorials/zerolab/run/run_setup.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "nn/data/corpus.h"
#include "nn/formats/named_gpt.h"
#include "stages/deepspeed/json_text.h"
#include "stages/variants/groups.h"
#include "tensor/io/crc32c.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/version.h"

namespace zl::cli {
namespace {

using Severity = ConfigFinding::Severity;

// The flags that are not the value of one key.
void apply_flags(const ConfigSource& source, LoadedConfig& loaded) {
  Config& config = loaded.config;
  // Adds a note if a file or --set gave another value under `key`.
  const auto replace = [&](const char* flag, const char* key, auto& value, const auto& by,
                           const auto& text) {
    const auto origin = loaded.origins.find(key);
    if (origin != loaded.origins.end() && !(value == by))
      loaded.findings.push_back({Severity::note, origin->second,
                                 str(flag, " ", text(by), " replaces ", text(value)), key, true});
    value = by;
  };
  const auto number = [](int64_t n) { return n; };
  if (source.stage)
    replace("--stage", "zero_optimization.stage", config.stage, *source.stage,
            [](StageKind stage) { return name(stage); });
  if (source.ranks_per_node > 0)
    replace("--ranks-per-node", "zero_optimization.zero_hpz_partition_size", config.ranks_per_node,
            source.ranks_per_node, number);
  if (source.replicas > 0)
    replace("--replicas", "zerolab.replicas", config.replicas, source.replicas, number);
  if (!source.precision) return;
  // The key that decided; if none did, one that is in the file and off.
  const bool bf16 = config.precision == Dtype::bf16 ||
                    (config.precision != Dtype::f16 && loaded.origins.contains("bf16.enabled"));
  replace("--precision", bf16 ? "bf16.enabled" : "fp16.enabled", config.precision,
          *source.precision, precision_name);
}

// Several notes about the file are one line.
void print_findings(std::vector<ConfigFinding> findings, const RunOptions& options) {
  const std::string& file = options.source.file;
  const auto is_note_of_file = [&](const ConfigFinding& f) {
    return f.severity == Severity::note && !f.of_flag && f.where.starts_with(file + ":");
  };
  if (const int64_t notes = std::ranges::count_if(findings, is_note_of_file); notes > 1) {
    std::erase_if(findings, is_note_of_file);
    findings.push_back({Severity::note, file,
                        str(notes, " keys have notes, which 'zerolab config check ", file,
                            "' lists; most have no effect here"),
                        ""});
  }
  for (const ConfigFinding& f : findings)
    if (f.severity != Severity::note || !options.quiet)
      std::fprintf(stderr, "%s\n", printable(as_called(to_string(f))).c_str());
}

// A pattern of zerolab.no_weight_decay that matches no parameter is probably a typo.
void warn_of_patterns(const RunOptions& options, const LoadedConfig& loaded,
                      const ModelChoice& choice) {
  constexpr const char* key = "zerolab.no_weight_decay";
  const auto& globs = loaded.config.optimizer.no_weight_decay;
  if (globs.empty()) return;
  Gpt model(choice.model);
  for (const std::string& glob : globs)
    if (std::ranges::none_of(model.parameters(),
                             [&](const Parameter& p) { return matches_glob(glob, p.name); }))
      print_findings(
          {{Severity::warning, loaded.origins.at(key),
            str(in_quotes(glob), " matches no parameter of ", choice.name, "; there are ",
                model.parameters().front().name, " to ", model.parameters().back().name),
            key}},
          options);
}

// All that a run's collectives and numbers depend on. Processes compare it, because each has read
// its own files and flags: the files by their content, the configuration by its values.
std::string settings_text(const RunOptions& options, const RunSetup& setup) {
  const GptConfig& m = setup.spec.model;
  const TokenData& data = setup.windows->data();
  const CheckpointOptions& checkpoint = setup.spec.checkpoint;
  std::vector<std::string> files;
  if (setup.model.weights) files = setup.model.weights->files();
  for (int f = 0; setup.config.data && f < data.files(); ++f) files.push_back(data.file_name(f));
  std::string text = str(
      "program=zerolab ", kVersion, " ", options.command, "\n--init-from=", options.init_from,
      "\ndata=", data.name(), "\nwindows=", setup.windows->training(), " of ", setup.spec.window,
      "\nmodel=", m.layers, " layers, ", m.heads, " heads, width ", m.width, ", ", m.block_size,
      " positions, vocabulary ", m.vocab, "\ndevice=", setup.spec.device_name(),
      "\n--shuffle=", options.shuffle, "\n--eval-every=", options.spec.eval_every,
      "\n--check=", options.spec.check_calls,
      "\n--timeout=", options.spec.rank_options.timeout.count(),
      "\n--save-every=", checkpoint.save_every, "\n--checkpoint-writes=", name(checkpoint.writes),
      "\n--resume=", checkpoint.resume, "\nstage=", name(setup.spec.engine.stage), "\n");
  for (const std::string& file : files) {
    std::error_code ignored;
    text += str(file, ": ", std::filesystem::file_size(file, ignored), " bytes, CRC-32C ",
                crc_text(crc32c_of_file(file, end_if_interrupted)), "\n");
  }
  for (const ConfigValue& value : setup.values) text += value.key + "=" + value.value + "\n";
  return text;
}

void open_data(const RunOptions& options, RunSetup& setup) {
  const Config& config = setup.config;
  TokenData data = config.data ? TokenData::open(*config.data)
                               : TokenData::of_text("the text that comes with zerolab",
                                                    std::string(default_corpus()));
  for (int f = 1; f < data.files() && !options.quiet; ++f)
    if (data.file_format(f) != std::string_view(data.file_format(0))) {
      std::fprintf(stderr, "note: %s is %s, but %s is %s: their tokens may mean other things\n",
                   printable_line(data.file_name(0)).c_str(), data.file_format(0),
                   printable_line(data.file_name(f)).c_str(), data.file_format(f));
      break;
    }
  data.require_below(setup.model.model.vocab, end_if_interrupted);
  WindowOptions order{.hold_out = options.spec.eval_every > 0, .poll = end_if_interrupted};
  if (options.shuffle) order.shuffle_seed = config.seed;
  setup.windows = std::make_unique<const Windows>(std::move(data), setup.model.window, order);
}

// ---- What a run is, in a few lines
// ---------------------------------------------------------------

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
  return str(link.bandwidth > 0 ? digits(link.bandwidth * 1e-6, 4) + " MB/s for each rank, " : "",
             digits(link.latency * 1e6, 4), " us per call");
}

}  // namespace

LoadedConfig load_settings(const RunOptions& options, int ranks) {
  ConfigSource source = options.source;
  source.ranks = ranks;
  LoadedConfig loaded = load_config(source);
  if (loaded.ok()) apply_flags(source, loaded);
  for (const auto& [key, enabled] :
       {std::pair("csv_monitor.enabled", loaded.config.csv_monitor.enabled),
        {"tensorboard.enabled", loaded.config.tensorboard.enabled}})
    if (enabled && options.command != "train")
      loaded.findings.push_back({Severity::note, loaded.origins.at(key),
                                 "has no effect: only zerolab train writes these files", key});
  print_findings(loaded.findings, options);
  const int64_t errors =
      std::ranges::count(loaded.findings, Severity::error, &ConfigFinding::severity);
  require_input(errors == 0, "the settings have ", plural(errors, "error"),
                ", named above; nothing was run");
  return loaded;
}

ModelChoice choose_model(const RunOptions& options, const LoadedConfig& loaded) {
  const struct {
    const char* flag;
    const std::optional<int64_t>& given;
    int64_t GptConfig::*member;
  } sizes[] = {{"--n-layer", options.n_layer, &GptConfig::layers},
               {"--n-head", options.n_head, &GptConfig::heads},
               {"--n-embd", options.n_embd, &GptConfig::width},
               {"--block-size", options.block_size, &GptConfig::block_size},
               {"--vocab-size", options.vocab_size, &GptConfig::vocab}};
  const std::string name = loaded.config.model;
  const GptConfig named = named_gpt(name);
  ModelChoice choice{.model = named, .name = name};
  const bool of_file = !options.init_from.empty();
  if (of_file) {
    choice.weights = open_weights(options.init_from, options.n_head);
    choice.model = choice.weights->config();
    choice.name = options.init_from;
  }
  for (const auto& [flag, given, member] : sizes) {
    const int64_t size = choice.model.*member, wanted = given.value_or(named.*member);
    if (!of_file && wanted != size)
      choice.model.*member = wanted, choice.name = name + ", changed by flags";
    if (!of_file || (!given && !loaded.origins.contains("zerolab.model"))) continue;
    const bool shorter = given && member == &GptConfig::block_size;
    require_input(
        shorter ? wanted <= size : wanted == size,
        given ? str(flag, " ", wanted) : str("model ", name, " (", flag + 2, " ", wanted, ")"),
        " does not match ", choice.name, ", which has ", size,
        shorter ? " positions; a sequence can only be shorter" : "; leave it out");
  }
  choice.model.check();
  choice.window = options.block_size.value_or(choice.model.block_size);
  return choice;
}

GptTrainingSpec spec_of(const RunOptions& options, const ModelChoice& model, const Config& config) {
  GptTrainingSpec spec =
      gpt_spec(model.model, model.window, config.recompute, config.checkpoints, options.spec);
  spec.engine = config;
  spec.micro_batch = config.micro_batch;
  spec.steps = config.steps;
  spec.ordered_sums = config.ordered;
  spec.interrupted = interrupt_requested;
  return spec;
}

RunSetup set_up_run(const RunOptions& options, int ranks,
                    const std::optional<LaunchedRank>& process) {
  ranks = process ? process->size : options.ranks.value_or(ranks);
  const LoadedConfig loaded = load_settings(options, ranks);
  RunSetup setup{.config = loaded.config, .values = effective_values(loaded)};
  const Config& config = setup.config;
  require_input(options.spec.eval_every <= config.steps, "--eval-every ", options.spec.eval_every,
                " is more than ", plural(config.steps, "step"), ", so no evaluation would be made");
  setup.device = choose_device(options, config.precision, ranks, process);
  require_threads_used(setup.device.kind, setup.device.threads,
                       config.offload_optimizer != OffloadDevice::none);
  setup.backend = choose_backend(options, setup.device, ranks, process);
  setup.model = choose_model(options, loaded);
  if (setup.model.weights && !options.quiet)
    for (const std::string& note : setup.model.weights->info().notes) say(note, "note");
  warn_of_patterns(options, loaded, setup.model);

  GptTrainingSpec& spec = setup.spec = spec_of(options, setup.model, config);
  spec.ranks = ranks;
  place(spec, setup.device);
  if (const auto weights = setup.model.weights)
    spec.weights = [weights](const Parameter& p) { return weights->load(p.name); };
  spec.transport = setup.backend.transport;
  (void)rank_options(spec);  // refuses a simulated link where there is none, before data is read
  open_data(options, setup);
  spec.data = setup.windows.get();
  if (!setup.backend.on_threads())
    place(spec, setup.backend, setup.device, settings_text(options, setup));
  return setup;
}

std::string describe(const RunSetup& setup, const std::vector<StageKind>& compared) {
  const GptTrainingSpec& spec = setup.spec;
  const Config& config = setup.config;
  const GptConfig& m = spec.model;
  const Windows& windows = *setup.windows;
  const int64_t per_step = config.micro_batch * config.accumulation * spec.ranks;
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
