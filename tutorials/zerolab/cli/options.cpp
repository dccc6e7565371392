#include "tutorials/zerolab/cli/options.h"

#include <algorithm>

#include "nn/gpt.h"
#include "stages/variants/groups.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/comma_list.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

Flags::Read count(std::optional<int64_t>& into, int64_t least = 1) {
  return [&into, least](const std::string& text) { into = read_count(text, least); };
}

}  // namespace

size_t choose(const std::string& text, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == text) return i;
  throw InputError(str("'", text, "' is none of ", joined(words), did_you_mean(text, words)));
}

// Whether a GPU can be used is checked later, so that --help does not wait for a driver.
RunOptions::DeviceWish read_device(const std::string& text) {
  require_input(text != "meta", "meta holds no data and cannot train; 'zerolab plan' runs there");
  return RunOptions::DeviceWish(choose(text, {"auto", "cpu", "cuda", "reference"}));
}

std::string variants_help() {
  std::string text = "\nand variants of them:";
  for (const StageFile& file : stage_files())
    if (file.is_variant()) text += str("\n", file.name, ": ", file.parent, ", but ", file.sentence);
  return text;
}

StageKind read_stage(const std::string& text) {
  std::vector<std::string> names;
  for (const StageKind kind : all_stages()) {
    if (text == name(kind)) return kind;
    names.push_back(name(kind));
  }
  for (const StageKind kind : kStages)
    if (text == std::to_string(stage_number(kind))) return kind;
  if (const Preset* preset = find_preset(text))
    throw InputError(str("'", text, "' is a system as it is shipped, which is predicted, not run: ",
                         "'zerolab compare --as ", text, "' and 'zerolab plan --stages ", text,
                         "' show what it keeps and sends; it changes ", name(preset->parent)));
  throw InputError(
      str("'", text, "' is none of ", joined(names), " (or 0 to 3)", did_you_mean(text, names)));
}

Dtype read_precision(const std::string& text) {
  constexpr Dtype types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
  return types[choose(text, {"fp32", "bf16", "fp16"})];
}

OffloadDevice read_offload(const std::string& text) {
  return OffloadDevice(choose(text, {"none", "cpu", "nvme"}));
}

std::vector<StageKind> read_stages(const std::string& text, std::vector<const Preset*>* presets) {
  if (text == "all") return all_stages();
  std::vector<StageKind> stages;
  for (const std::string& word : comma_list(text))
    if (const Preset* preset = presets ? find_preset(word) : nullptr)
      presets->push_back(preset);
    else
      stages.push_back(read_stage(word));
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

std::vector<const Preset*> read_presets(const std::string& text) {
  std::vector<std::string> names{"paper"};
  for (const Preset& preset : presets()) names.push_back(preset.name);
  std::vector<const Preset*> listed;
  for (const std::string& word : comma_list(text))
    if (const size_t i = choose(word, names); i > 0) listed.push_back(&presets()[i - 1]);
  require_input(!listed.empty(),
                "paper is the stages that presets change; name a preset too, such as "
                "paper,deepspeed-1");
  return listed;
}

const char* precision_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f16 ? "fp16" : "fp32";
}

bool RunOptions::given(std::string_view flag) const {
  return std::ranges::any_of(source.flags, [&](const KeyFlag& f) { return f.flag == flag; });
}

void add_settings_flags(Flags& flags, RunOptions& options) {
  options.command = flags.command();
  options.source.several_stages = options.command != "train";
  flags.name("--config", "FILE", "a DeepSpeed JSON file; 'zerolab config' checks and explains it",
             options.source.file);
  flags.values("--set", "KEY=VALUE",
               "one setting, named as in the file; may be given several times",
               [&](const std::string& text) {
                 const size_t equals = text.find('=');
                 require_input(equals != 0 && equals != std::string::npos, "'", text,
                               "' is not KEY=VALUE, such as gradient_clipping=1.0");
                 options.source.sets.push_back(text);
               });
  flags.value("--precision", "TYPE",
              "type of weights and activations: fp32, bf16 or fp16; the last two keep\n"
              "fp32 master weights, 2+2+12 bytes per parameter (default fp32)",
              [&](const auto& text) { options.source.precision = read_precision(text); });
  flags.toggle("--separate-master",
               "keep an fp32 copy of the weights: 20 bytes per parameter, not 16",
               [&] { options.set("--separate-master", "zerolab.separate_master", "true", false); });
  flags.toggle(
      "--reproducible",
      "the same bits for every number of ranks N and of micro-batches per step A with the\n"
      "same N × A: gradients are added one after another in fp32, which costs memory and\n"
      "traffic ('zerolab plan' says how much)",
      [&] { options.set("--reproducible", "zerolab.reproducible", "true", false); });
  flags.value("--offload", "WHERE",
              "optimizer state in host memory (cpu), in a file (nvme), or none of it (none): key\n"
              "zero_optimization.offload_optimizer.device; the bits stay the same",
              [&](const auto& text) {
                options.set("--offload", "zero_optimization.offload_optimizer.device",
                            name(read_offload(text)));
              });
  flags.value("--nvme-path", "DIR",
              "the folder of nvme's file, which has no name and ends with the run; choose a fast\n"
              "local disk. Its space is taken before the first step",
              [&](const auto& text) { options.nvme_path = text; });
  flags.value(
      "--offload-param", "WHERE",
      "parameter shards of stage 3 in host memory (cpu), in a file (nvme) or on the device\n"
      "(none): key zero_optimization.offload_param.device; the bits stay the same",
      [&](const auto& text) {
        options.set("--offload-param", "zero_optimization.offload_param.device",
                    name(read_offload(text)));
      });
}

void add_run_flags(Flags& flags, RunOptions& options) {
  flags.group("Run");
  flags.value("--steps", "N", "number of updates (default 100)", [&](const auto& text) {
    options.set("--steps", "zerolab.steps", std::to_string(read_count(text, 1, 1'000'000'000)),
                false);
  });
  flags.value("--seed", "S", "seed of initial values, --shuffle and samples (default 1337)",
              [&](const auto& text) {
                options.set("--seed", "zerolab.seed", std::to_string(read_seed(text)), false);
              });
  add_settings_flags(flags, options);
}

void add_memory_flags(Flags& flags, RunOptions& options, const std::string& beyond) {
  flags.value("--device-memory", "SIZE",
              "memory limit of each rank, such as 64MiB" + beyond + " (default none)",
              [&](const auto& text) { options.device_memory = read_size(text); });
  flags.value(
      "--host-memory", "SIZE",
      "limit of the host memory of each rank, which offload_optimizer and offload_param use\n"
      "(default none)",
      [&](const auto& text) { options.host_memory = read_size(text); });
}

void add_ranks_flag(Flags& flags, RunOptions& options, int default_ranks, bool several) {
  constexpr int64_t most = 64;  // of threads in one process
  flags.value(
      "--ranks", several ? "N[,N …]" : "N",
      str("number of ranks, 1 to ", most, ", as threads of this process (default ", default_ranks,
          ").\nNot for ranks that a launcher starts: the launcher sets their number",
          several ? ".\nWith --reproducible, also several numbers: one run of each" : ""),
      [&, most, several](const auto& text) {
        const std::vector<std::string> parts = several ? comma_list(text) : std::vector{text};
        std::vector<int> numbers;
        for (const std::string& part : parts) numbers.push_back(int(read_count(part, 1, most)));
        if (numbers.size() == 1) options.ranks = numbers[0];
        if (numbers.size() > 1) options.several_ranks = numbers;
      });
}

void add_device_flag(Flags& flags, RunOptions& options) {
  flags.value("--device", "WHERE",
              "cpu, cuda, or auto: GPUs if there are any, else the CPU (default auto)\n"
              "With several GPUs, rank r uses GPU r modulo their number; ranks may share one.\n"
              "reference: the CPU, by kernels in their textbook form (tensor/reference); slow.",
              [&](const auto& text) { options.device = read_device(text); });
}

void add_threads_flag(Flags& flags, RunOptions& options) {
  flags.value(
      "--threads", "N",
      "on the CPU, compute each rank's kernels on N threads, with the same bits for every N\n"
      "(default 1; OMP_NUM_THREADS has no effect)",
      [&](const auto& text) { options.threads = int(read_count(text, 1, kMostComputeThreads)); });
}

void add_device_flags(Flags& flags, RunOptions& options) {
  add_device_flag(flags, options);
  flags.toggle("--tf32",
               "on GPUs, multiply fp32 matrices with inputs rounded to TF32 (10 bits): faster",
               options.tf32);
  add_threads_flag(flags, options);
}

void add_backend_flag(Flags& flags, RunOptions& options, const std::string& help) {
  flags.value("--backend", "HOW", help, [&](const auto& text) {
    options.backend = RunOptions::BackendWish(choose(text, {"auto", "threads", "nccl", "mpi"}));
  });
}

void add_rank_flags(Flags& flags, RunOptions& options, int default_ranks, bool several) {
  flags.group("Ranks");
  add_ranks_flag(flags, options, default_ranks, several);
  add_device_flags(flags, options);
  add_backend_flag(
      flags, options,
      "how ranks communicate: threads (they read each other's memory), nccl (processes, one\n"
      "GPU per rank), mpi (processes on CPUs), or auto: threads, unless a launcher started\n"
      "processes: mpirun, srun, torchrun or zerolab launch (default auto)");
  add_memory_flags(flags, options, "; beyond it: exit code 3");
  flags.toggle("--check",
               "processes compare their collectives in every step, not only in the first two",
               options.check);
  add_timeout_flag(flags, options);
}

void add_group_flags(Flags& flags, RunOptions& options) {
  const auto count = [](int64_t& into) {
    return [&into](const std::string& text) { into = read_count(text, 1, 1 << 20); };
  };
  flags.value(
      "--ranks-per-node", "X",
      "for zero3_hpz, zero3_qgz and hsdp: X consecutive ranks are a node; must divide --ranks\n"
      "(default: half of --ranks if that is even and above 2; else required)",
      count(options.source.ranks_per_node));
  flags.value(
      "--replicas", "R",
      "for hsdp: R groups of consecutive ranks, each with one full copy of the state; must divide\n"
      "--ranks "
      "(default: one per node)",
      count(options.source.replicas));
}

void require_groups_used(const ConfigSource& source, const std::vector<StageKind>& stages,
                         bool machine) {
  const auto any = [&](VariantGroups groups) {
    return std::ranges::any_of(stages, [&](StageKind k) { return file_of(k).groups == groups; });
  };
  if (source.replicas > 0 && !any(VariantGroups::replicas))
    throw UsageError("--replicas is for the stage hsdp, which is not selected; leave it out");
  if (!machine && source.ranks_per_node > 0 && !any(VariantGroups::nodes) &&
      !any(VariantGroups::replicas))
    throw UsageError(
        "--ranks-per-node is for the stages zero3_hpz, zero3_qgz and hsdp, and none is selected; "
        "leave it out");
}

void add_link_flags(Flags& flags, RunOptions& options) {
  flags.value("--link-bandwidth", "RATE",
              "simulate a slow link: no rank sends faster than this, such as 100MB/s or 10Gbit/s.\n"
              "Calls take longer and bits stay. Compare step times with and without\n"
              "--set zero_optimization.overlap_comm=true: that hides communication behind\n"
              "backward. Only for ranks that are threads on the CPU (default: no limit)",
              [&](const auto& text) { options.link.bandwidth = read_rate(text); });
  flags.value("--link-latency", "TIME",
              "of the simulated link: each call takes at least this long, such as 50us or 2ms;\n"
              "larger buckets then pay it less often (default 0)",
              [&](const auto& text) { options.link.latency = read_time(text); });
}

void add_timeout_flag(Flags& flags, RunOptions& options) {
  flags.value(
      "--timeout", "S", "seconds that a rank waits for the others; 0: no limit (default 60)",
      [&](const auto& text) {
        options.timeout = read_real(text);
        require_input(options.timeout == 0 || (options.timeout >= 0.001 && options.timeout <= 1e6),
                      "'", text, "' is not within 0.001 to 1e6 seconds, nor 0");
      });
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

void add_model_flags(Flags& flags, RunOptions& options) {
  flags.group("Model");
  flags.value("--model", "NAME", joined(gpt_names()) + " (default small)", [&](const auto& text) {
    choose(text, gpt_names());
    options.set("--model", "zerolab.model", text);
  });
  flags.value("--n-layer", "N", "transformer blocks", count(options.n_layer));
  flags.value("--n-head", "N", "attention heads; must divide --n-embd", count(options.n_head));
  flags.value("--n-embd", "N", "embedding width", count(options.n_embd));
  flags.value("--block-size", "T", "tokens of a sequence", count(options.block_size));
  flags.value("--vocab-size", "V", "size of the vocabulary", count(options.vocab_size));
  flags.name("--init-from", "FILE",
             "safetensors, their index or folder, or llm.c's .bin: the\nweights to start from; "
             "they give the sizes. With --resume a checkpoint's weights win",
             options.init_from);
}

void add_data_flags(Flags& flags, RunOptions& options) {
  flags.group("Data");
  flags.value("--data", "FILE",
              "text, or tokens if the name ends in .bin; a quoted pattern means\nseveral files "
              "(default: the text that comes with zerolab)",
              [&](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.set("--data", "zerolab.data", text);
              });
  flags.toggle("--shuffle", "read the sequences in an order that --seed decides", options.shuffle);
  flags.value("--eval-every", "N",
              "hold out the last tenth of the data; print its loss every N steps",
              [&](const auto& text) { options.eval_every = read_count(text, 1); });
}

void add_save_flags(Flags& flags, RunOptions& options) {
  flags.value("--save-every", "K", "save a checkpoint every K steps, and after the last one",
              [&](const auto& text) { options.checkpoint.save_every = read_count(text, 1); });
  flags.value(
      "--checkpoint-writes", "HOW",
      "wait: training waits; still: a thread writes while the next step's forward and\n"
      "backward passes run; snapshot: it writes a copy in host memory (default wait)",
      [&](const auto& text) {
        options.checkpoint.writes = CheckpointWrites(choose(text, {"wait", "still", "snapshot"}));
      });
}

void add_checkpoint_flags(Flags& flags, RunOptions& options) {
  flags.group("Checkpoints");
  add_save_flags(flags, options);
  flags.value("--keep", "M", "keep the M newest checkpoints (default 3)",
              [&](const auto& text) { options.checkpoint.keep = read_count(text, 1); });
  flags.optional_value("--resume", "DIR",
                       "go on from the newest checkpoint in DIR, or from DIR/step-00000100; begin\n"
                       "at the start if there is none yet (default of DIR: that of --out)",
                       [&](const auto& text) { options.checkpoint.resume = text; });
  flags.toggle("--new-data", "resume although the checkpoint was made with other data",
               options.checkpoint.new_data);
}

void add_output_flags(Flags& flags, RunOptions& options) {
  flags.group("Output");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.toggle("-q,--quiet", "no progress and no notes", options.quiet);
  flags.value("--color", "WHEN", "auto, always or never; auto obeys NO_COLOR (default auto)",
              [&](const auto& text) {
                options.color = Color(choose(text, {"auto", "always", "never"}));
              });
}

}  // namespace zl::cli
