#include "tutorials/zerolab/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "nn/formats/named_gpt.h"
#include "stages/variants/groups.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

// The commands that have a flag, a bit for each. `more`: only --help-all lists it.
const std::vector<std::string> kCommands = {
    "train", "compare", "plan", "bench step", "bench comm", "bench kernels", "bench machine"};
enum : unsigned { train = 1, compare = 2, plan = 4, step = 8, comm = 16, kernels = 32, more = 128 };
constexpr unsigned runs = train | compare, models = runs | plan | step, all = 127;

// Adds flags that the command has.
struct Shared {
  Flags& flags;
  RunOptions& o;
  unsigned command = 1u << (std::ranges::find(kCommands, flags.command()) - kCommands.begin());
  const char* heading = "";

  bool has(unsigned commands) const {
    flags.group(heading, commands & more);
    return commands & command;
  }
  void operator()(unsigned commands, const char* flag, const char* type, auto& into,
                  const auto& read, const char* help) const {
    if (has(commands)) flags.add(flag, type, into, read, help);
  }
  void operator()(unsigned commands, const char* flag, bool& on, const char* help) const {
    if (has(commands)) flags.toggle(flag, help, on);
  }
  // The value of a key of the configuration: a number, or else a string.
  void key(unsigned commands, const char* flag, const char* type, const char* key, const auto& read,
           const char* help) const {
    if (!has(commands)) return;
    flags.value(flag, type, help, [&options = o, flag, key, read](const std::string& text) {
      const auto value = read(text);
      options.set(flag, key, str(value), !std::is_arithmetic_v<decltype(value)>);
    });
  }
  void key(unsigned commands, const char* flag, const char* key, const char* help) const {
    const auto set = [&options = o, flag, key] { options.set(flag, key, "true", false); };
    if (has(commands)) flags.toggle(flag, help, set);
  }
};

// The enumerator of the word's place.
template <class Enum>
auto word(const std::vector<std::string>& words) {
  return [=](const std::string& text) { return Enum(choose(text, words)); };
}

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const StageKind kind : all_stages()) names.push_back(name(kind));
  return names;
}

void add_run(Shared add) {
  RunOptions& o = add.o;
  add.heading = "Run";
  add.key(runs, "--steps", "N", "zerolab.steps", count_within(1, 1e9),
          "number of updates (default 100)");
  add.key(runs, "--seed", "S", "zerolab.seed", read_seed,
          "seed of initial values, --shuffle and samples (default 1337)");
  add(models | kernels, "--precision", "TYPE", o.source.precision, read_precision,
      "type of weights and activations: fp32, bf16 or fp16 (default fp32)");
  add(models, "--config", "FILE", o.source.file, read_name,
      "a DeepSpeed JSON file; 'zerolab config' checks and explains it");
  if (add.has(models))
    add.flags.value(
        "--set", "KEY=VALUE",
        "one setting of such a file: gradient_accumulation_steps=A (default 1),\n"
        "train_micro_batch_size_per_gpu=B (default 4), …; may be given again",
        [&o](const std::string& text) { o.source.sets.push_back(text); }, Flags::Takes::several);
  add.key(models, "--reproducible", "zerolab.reproducible",
          "the same bits for all numbers of ranks N and of micro-batches per step A\n"
          "with the same N × A\f"
          "by adding one after another in fp32, which takes more memory and traffic");
  add.key(models | more, "--separate-master", "zerolab.separate_master",
          "keep an fp32 copy of the weights: 20 bytes per parameter, not 16");
}

void add_ranks(Shared add) {
  RunOptions& o = add.o;
  add.heading = "Ranks";
  add(runs | step | comm, "--ranks", "N", o.ranks,
      count_within(1, 64, "; 'zerolab plan' takes more ranks, because it runs none"),
      "number of ranks, 1 to 64, threads of this process (train: 1, else 4)");
  add(all & ~plan, "--device", "WHERE", o.device, read_device,
      "cpu, cuda, or auto: GPUs if there are any, else the CPU (default auto)\f"
      "or reference: the CPU, by kernels in their textbook form");
  add(models | comm, "--backend", "HOW", o.backend,
      word<RunOptions::BackendWish>({"auto", "threads", "nccl", "mpi"}),
      "how ranks communicate: threads, nccl, mpi or auto (default auto)\f"
      "auto: threads, unless mpirun, srun, torchrun or zerolab launch started processes");
  add(models, "--device-memory", "SIZE", o.spec.device_memory, read_size,
      "memory limit of each rank, such as 64MiB; beyond it: exit code 3");
  add(models | more, "--host-memory", "SIZE", o.spec.host_memory, read_size,
      "the same for host memory, which offload_optimizer and offload_param use");
  add((runs | step | kernels) | more, "--tf32", o.tf32,
      "on GPUs, multiply fp32 matrices with inputs rounded to TF32 (10 bits): faster");
  add(models | kernels | more, "--threads", "N", o.threads, count_within(1, kMostComputeThreads),
      "on the CPU, compute each rank's kernels on N threads, with the same bits (default 1)");
  add(runs | step | more, "--check", o.spec.check_calls,
      "processes compare their collectives in every step, not only in the first two");
  add(runs | step | comm | more, "--timeout", "S", o.spec.rank_options.timeout, read_seconds,
      "seconds that a rank waits for the others; 0: no limit (default 60)");
  add(runs | plan | more, "--ranks-per-node", "X", o.source.ranks_per_node,
      count_within(1, 1 << 20),
      "for zero3_hpz, zero3_qgz and hsdp: X consecutive ranks are a node\n"
      "(default: half of --ranks if that is even and above 2; else required)");
  add(runs | plan | more, "--replicas", "R", o.source.replicas, count_within(1, 1 << 20),
      "for hsdp: R groups of ranks, each with all of the state (default: one per node)");
  add.heading = "Simulated link, for ranks that are threads on the CPU";
  add(runs | more, "--link-bandwidth", "RATE", o.spec.link.bandwidth, read_rate,
      "no rank sends faster than this, such as 100MB/s or 10Gbit/s (default: no limit)");
  add(runs | more, "--link-latency", "TIME", o.spec.link.latency, read_time,
      "each call takes at least this long, such as 50us or 2ms (default 0)");
}

void add_model_and_data(Shared add) {
  RunOptions& o = add.o;
  add.heading = "Model";
  add.key(
      models, "--model", "NAME", "zerolab.model",
      [](const std::string& text) { return gpt_names()[choose(text, gpt_names())]; },
      "tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl (default small)");
  add(models, "--init-from", "FILE", o.init_from, read_name,
      "weights to start from: safetensors, their folder, or llm.c's .bin");
  add(models | kernels | more, "--n-layer", "N", o.n_layer, count_within(),
      "transformer blocks (bench kernels: 1)");
  add(models | more, "--n-head", "N", o.n_head, count_within(),
      "attention heads; must divide --n-embd");
  add(models | more, "--n-embd", "N", o.n_embd, count_within(), "embedding width");
  add(models | more, "--block-size", "T", o.block_size, count_within(), "tokens of a sequence");
  add(models | more, "--vocab-size", "V", o.vocab_size, count_within(), "size of the vocabulary");
  add.heading = "Data";
  add.key(runs, "--data", "FILE", "zerolab.data", read_name,
          "text, or tokens if it ends in .bin (default: a text of zerolab's)\f"
          "A quoted pattern means several files");
  add(runs, "--eval-every", "N", o.spec.eval_every, count_within(),
      "hold out the last tenth of the data; print its loss every N steps");
  add(runs | more, "--shuffle", o.shuffle, "read the sequences in an order that --seed decides");
}

void add_checkpoints_and_output(Shared add) {
  RunOptions& o = add.o;
  CheckpointOptions& c = o.spec.checkpoint;
  add.heading = "Checkpoints";
  add(train | plan, "--save-every", "K", c.save_every, count_within(),
      "save a checkpoint every K steps, and after the last one");
  add(train | plan | more, "--checkpoint-writes", "HOW", c.writes,
      word<CheckpointWrites>({"wait", "still", "snapshot"}),
      "wait: training waits; still: a thread writes during the next step's forward and\n"
      "backward passes; snapshot: it writes a copy in host memory (default wait)");
  if (add.has(train | plan)) add.flags.needs("--checkpoint-writes", "--save-every");
  add(train | more, "--keep", "M", c.keep, count_within(),
      "keep the M newest checkpoints (default 3)");
  add(train | more, "--new-data", c.new_data,
      "resume although the checkpoint was made with other data");
  if (add.has(train)) {
    add.flags.needs("--keep", "--save-every");
    add.flags.value(
        "--resume", "DIR",
        "go on from the newest checkpoint in DIR (default: that of --out), or from\n"
        "DIR/step-00000100; where there is none yet, begin at the start",
        [&o](const std::string& text) { o.resume = text; }, Flags::Takes::optional);
    add.flags.needs("--new-data", "--resume");
  }
  add.heading = "Output";
  add(runs, "--out", "DIR", o.out, read_name,
      "new folder for report.html and all that the run keeps (default: none)");
  add(all, "--json", o.json, "print one JSON document instead of text");
  add(all, "-q,--quiet", o.quiet, "no progress and no notes");
}

}  // namespace

void add_shared_flags(Flags& flags, RunOptions& options) {
  options.command = flags.command();
  options.source.several_stages = options.command != "train";
  for (const auto add : {add_run, add_ranks, add_model_and_data, add_checkpoints_and_output})
    add({flags, options});
}

void add_stages_flag(Flags& flags, std::vector<StageKind>& stages,
                     std::vector<const Preset*>* list) {
  std::string help =
      "comma-separated: ddp,zero1,zero2,zero3 (default: these four), or all" + variants_help();
  if (list) help += "\nand systems as they are shipped, which are predicted by closed formulas:";
  for (const Preset& preset : list ? presets() : std::span<const Preset>())
    help += str("\n", preset.name, ": ", name(preset.parent), ", but ", preset.sentence);
  flags.value("--stages", "LIST", help,
              [&stages, list](const auto& text) { stages = read_stages(text, list); });
}

// The names, and for --help-all what is different.
std::string variants_help() {
  std::string names, sentences;
  for (const StageFile& file : stage_files())
    if (file.is_variant()) {
      names += str(names.empty() ? "" : ", ", file.name);
      sentences += str("\n", file.name, ": ", file.parent, ", but ", file.sentence);
    }
  if (names.empty()) return "";  // in a student's tree
  return ";\nvariants of them: " + names + "\f" + sentences.substr(1);
}

std::vector<std::string> comma_list(std::string_view text) {
  return CLI::detail::split(std::string(text) + ',', ',');  // also a last empty part
}

size_t choose(const std::string& text, const std::vector<std::string>& words) {
  const auto found = std::ranges::find(words, text);
  require_input(found != words.end(), "'", text, "' is none of ", CLI::detail::join(words, ", "),
                did_you_mean(text, words));
  return size_t(found - words.begin());
}

// Whether a GPU can be used is checked later, so that --help does not wait for a driver.
RunOptions::DeviceWish read_device(const std::string& text) {
  require_input(text != "meta", "meta holds no data and cannot train; 'zerolab plan' runs there");
  return RunOptions::DeviceWish(choose(text, {"auto", "cpu", "cuda", "reference"}));
}

StageKind read_stage(const std::string& text) {
  const Preset* preset = find_preset(text);
  require_input(!preset, "'", text, "' is a system as it is shipped, which is predicted, not run: ",
                "'zerolab plan --stages ", text, "' shows what it keeps and sends; it changes ",
                preset ? name(preset->parent) : "");
  if (text.size() == 1 && '0' <= text[0] && text[0] <= '3') return kStages[text[0] - '0'];
  return all_stages()[choose(text, stage_names())];
}

Dtype read_precision(const std::string& text) {
  constexpr Dtype types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
  const std::vector<std::string> names = {"fp32", "bf16", "fp16"};
  for (const auto& [torch, name] :
       {std::pair{"float32", "fp32"}, {"bfloat16", "bf16"}, {"float16", "fp16"}})
    require_input(text != torch, "'", text, "' is PyTorch's name; write '", name, "'");
  return types[choose(text, names)];
}

std::vector<StageKind> read_stages(const std::string& text, std::vector<const Preset*>* presets) {
  if (text == "all") return all_stages();
  std::set<StageKind> stages;
  std::vector<std::string> names = stage_names();
  if (presets) std::ranges::transform(zl::presets(), std::back_inserter(names), &Preset::name);
  for (const std::string& word : comma_list(text)) {
    if (presets && word.size() > 1) choose(word, names);
    if (const Preset* preset = presets ? find_preset(word) : nullptr)
      presets->push_back(preset);
    else
      stages.insert(read_stage(word));
  }
  return {stages.begin(), stages.end()};
}

const char* precision_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f16 ? "fp16" : "fp32";
}

bool RunOptions::given(std::string_view flag) const {
  return std::ranges::count(source.flags, flag, &KeyFlag::flag) > 0;
}

void require_groups_used(const ConfigSource& source, const std::vector<StageKind>& stages,
                         bool machine) {
  const auto groups = [](StageKind stage) { return file_of(stage).groups; };
  if (source.replicas > 0 && std::ranges::count(stages, VariantGroups::replicas, groups) == 0)
    throw UsageError("--replicas is for the stage hsdp, which is not selected; leave it out");
  if (source.ranks_per_node > 0 && !machine &&
      std::ranges::count(stages, VariantGroups::none, groups) == std::ssize(stages))
    throw UsageError(
        "--ranks-per-node is for the stages zero3_hpz, zero3_qgz and hsdp, and none is selected; "
        "leave it out");
}

}  // namespace zl::cli
