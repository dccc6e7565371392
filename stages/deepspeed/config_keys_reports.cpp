// Keys that decide what is printed and written, and our own block.

#include "stages/deepspeed/config_keys.h"

namespace zl {
namespace {

using enum ConfigUse;

constexpr char kRecompute[] = "write \"zerolab\": {\"recompute\": true} to recompute activations";
constexpr char kMonitor[] =
    "steps are written to metrics.jsonl in the folder of --out; csv_monitor writes DeepSpeed's "
    "files";
constexpr char kProfiler[] = "'zerolab plan' predicts memory, traffic and time";
constexpr char kCheckpoint[] = "--out writes whole weights at the end";

constexpr ConfigKey kKeys[] = {
    {"", "steps_per_print", any_whole(), "", "", honoured,
     "steps from one printed line to the next; -3 counts as 3, as in DeepSpeed"},
    {"", "wall_clock_breakdown", a_boolean(), "false", "false", honoured,
     "prints the time of forward, backward and step"},
    {"", "comms_logger", an_object(), "", "", honoured, "a table of the collectives"},
    {"comms_logger", "enabled", a_boolean(), "false", "false", honoured,
     "counts and times every collective"},
    {"comms_logger", "verbose", a_boolean(), "false", "false", honoured,
     "prints a line for each call"},
    {"comms_logger", "prof_all", a_boolean(), "true", "true", honoured,
     "all collectives; false: those of prof_ops"},
    {"comms_logger", "prof_ops", some_texts(), "[]", "[]", honoured,
     "names such as \"all_reduce\""},
    {"comms_logger", "debug", a_boolean(), "false", "false", honoured,
     "lines name the purpose and the unit too"},
    {"", "csv_monitor", an_object(), "", "", honoured, "DeepSpeed's CSV files"},
    {"csv_monitor", "enabled", a_boolean(), "false", "false", honoured,
     "writes loss, rate and loss scale of each step"},
    {"csv_monitor", "output_path", a_text(), "\"\"", "\"\"", honoured,
     "folder; \"\": the working folder, so ./DeepSpeedJobName/"},
    {"csv_monitor", "job_name", a_text(), "\"DeepSpeedJobName\"", "\"DeepSpeedJobName\"", honoured,
     "folder below that"},
    {"", "tensorboard", an_object(), "", "", noted, kMonitor},
    {"tensorboard", "enabled", a_boolean(), "false", "false", noted, kMonitor},
    {"tensorboard", "output_path", a_text(), "\"\"", "", noted, kMonitor},
    {"tensorboard", "job_name", a_text(), "\"DeepSpeedJobName\"", "", noted, kMonitor},
    {"", "wandb", an_object(), "", "", noted, kMonitor},
    {"wandb", "enabled", a_boolean(), "false", "false", noted, kMonitor},
    {"wandb", "group", or_null(a_text()), "null", "", noted, kMonitor},
    {"wandb", "team", or_null(a_text()), "null", "", noted, kMonitor},
    {"wandb", "project", a_text(), "\"deepspeed\"", "", noted, kMonitor},
    {"", "comet", an_object(), "", "", noted, kMonitor},
    {"comet", "enabled", a_boolean(), "false", "false", noted, kMonitor},
    {"comet", "samples_log_interval", any_whole(), "100", "", noted, kMonitor},
    {"comet", "project", or_null(a_text()), "null", "", noted, kMonitor},
    {"comet", "workspace", or_null(a_text()), "null", "", noted, kMonitor},
    {"comet", "api_key", or_null(a_text()), "null", "", noted, kMonitor},
    {"comet", "experiment_name", or_null(a_text()), "null", "", noted, kMonitor},
    {"comet", "experiment_key", or_null(a_text()), "null", "", noted, kMonitor},
    {"comet", "online", or_null(a_boolean()), "null", "", noted, kMonitor},
    {"comet", "mode", or_null(a_text()), "null", "", noted, kMonitor},
    {"", "flops_profiler", an_object(), "", "", noted, kProfiler},
    {"flops_profiler", "enabled", a_boolean(), "false", "false", noted, kProfiler},
    {"flops_profiler", "recompute_fwd_factor", a_number(0), "0.0", "", noted, kProfiler},
    {"flops_profiler", "profile_step", a_whole(0), "1", "", noted, kProfiler},
    {"flops_profiler", "module_depth", a_whole(-1), "-1", "", noted, kProfiler},
    {"flops_profiler", "top_modules", a_whole(0), "1", "", noted, kProfiler},
    {"flops_profiler", "detailed", a_boolean(), "true", "", noted, kProfiler},
    {"flops_profiler", "output_file", or_null(a_text()), "null", "", noted, kProfiler},
    {"", "dump_state", a_boolean(), "false", "false", noted,
     "'zerolab config explain' prints every setting"},
    {"", "memory_breakdown", a_boolean(), "false", "false", noted,
     "'zerolab compare' prints memory by use"},
    {"", "log_level", or_null(a_text()), "null", "", noted, "-q leaves out notes and progress"},
    {"", "timers", an_object(), "", "", noted, "a step's time is always taken"},

    {"", "activation_checkpointing", an_object(), "", "", noted, kRecompute},
    {"activation_checkpointing", "partition_activations", a_boolean(), "false", "false", noted,
     kRecompute},
    {"activation_checkpointing", "contiguous_memory_optimization", a_boolean(), "false", "false",
     noted, kRecompute},
    {"activation_checkpointing", "cpu_checkpointing", a_boolean(), "false", "false", noted,
     kRecompute},
    {"activation_checkpointing", "number_checkpoints", or_null(any_whole()), "null", "", noted,
     kRecompute},
    {"activation_checkpointing", "synchronize_checkpoint_boundary", a_boolean(), "false", "false",
     noted, kRecompute},
    {"activation_checkpointing", "profile", a_boolean(), "false", "false", noted, kRecompute},
    {"", "checkpoint", an_object(), "", "", noted, kCheckpoint},
    {"checkpoint", "tag_validation", a_text(), "\"WARN\"", "", noted, kCheckpoint},
    {"checkpoint", "load_universal", a_boolean(), "false", "", noted, kCheckpoint},
    {"checkpoint", "use_node_local_storage", a_boolean(), "false", "", noted, kCheckpoint},
    {"checkpoint", "parallel_write", an_object(), "", "", noted, kCheckpoint},
    {"checkpoint", "writer", anything(), "", "", noted, kCheckpoint},

    {"", "zerolab", an_object(), "", "", honoured, "our own block, which DeepSpeed ignores"},
    {"zerolab", "defaults", a_choice("ours deepspeed"), "", "\"ours\"", honoured,
     "whose defaults absent keys take"},
    {"zerolab", "reproducible", a_boolean(), "", "false", refused,
     "equal bits for every number of ranks come with a later version; leave it out or write false"},
    {"zerolab", "ordered", a_boolean(), "", "true", honoured,
     "sums over ranks in rank order; false: NCCL adds as it likes, without scratch, and right but "
     "for rounding"},
    {"zerolab", "separate_master", a_boolean(), "", "false", honoured,
     "an fp32 copy of fp32 weights: 20 bytes per parameter, not 16"},
    {"zerolab", "no_weight_decay", some_texts(), "", "[]", honoured,
     "patterns (*, ?) of parameters that do not decay"},
    {"zerolab", "recompute", a_boolean(), "", "false", honoured,
     "blocks are computed again in backward: less memory, more time"},
    {"zerolab", "model", a_text(), "", "\"small\"", honoured, "as --model"},
    {"zerolab", "data", a_text(), "", "", honoured,
     "as --data; default: the text that comes with zerolab"},
    {"zerolab", "seed", a_whole(0), "", "1337", honoured, "as --seed, up to 2^64 - 1"},
    {"zerolab", "steps", a_whole(1), "", "100", honoured, "as --steps"},
};

}  // namespace

std::span<const ConfigKey> report_config_keys() { return kKeys; }

}  // namespace zl
