// zerolab plan: each stage's bytes and traffic, by formula and dry run.

#include "stages/predict/plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stages/predict/closed_form.h"
#include "tensor/cpu/compute_threads.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/plan/clock_section.h"
#include "tutorials/zerolab/report/comparison_report.h"
#include "tutorials/zerolab/report/run_json.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPlanRanks = 4;
constexpr int64_t kMostRanks = 1 << 20;  // nothing runs, so there may be many

using Wish = RunOptions::DeviceWish;

struct PlanOptions : RunOptions {
  std::vector<StageKind> stages;  // empty: the paper's four
  std::vector<const Preset*> presets;
  bool any_stage = false;  // --stages is not given
  std::optional<double> parameters;
  ClockFlags clock;
};

Transport transport_of(const PlanOptions& options) {
  constexpr auto threads = Transport::threads;
  constexpr Transport of_wish[] = {threads, threads, Transport::nccl, Transport::mpi};
  return of_wish[int(options.backend)];
}

int list_machines(bool json) {
  Json machines = Json::array();
  for (const Machine& m : shipped_machines())
    machines.push_back(
        {{"name", m.name}, {"ranks_per_node", m.ranks_per_node}, {"title", m.title}});
  print_document(Json{{"schema", 1}, {"command", "plan"}, {"ok", true}, {"machines", machines}},
                 json);
  return kFine;
}

struct PlanReport {
  std::string text, json;
  bool fits;  // one of the stages
};

// ---- --parameters: the paper's closed formulas for model states, of any number of parameters ----

// The closed formula counts model states alone, for any model on any device.
void refuse_flags_of_models(const PlanOptions& o) {
  const bool sizes = o.n_layer || o.n_head || o.n_embd || o.block_size || o.vocab_size,
             variants = std::ranges::any_of(
                 o.stages, [](StageKind stage) { return file_of(stage).is_variant(); });
  for (const auto& [given, flag] :
       {std::pair{o.given("--model") || sizes || !o.init_from.empty(),
                  "--model, the size flags and --init-from"},
        {variants || !o.presets.empty(), "variants and systems as shipped"},
        {!o.clock.machine.empty(), "--machine"},
        {o.checkpoint.save_every > 0, "--save-every"},
        {o.device != Wish::automatic, "--as"},
        {transport_of(o) != Transport::threads, "--backend"}})
    if (given)
      throw UsageError(
          str("--parameters has closed formulas for model states alone; leave out ", flag));
}

ElementBytes element_bytes(const Options& options) {
  return {size_of(options.precision), size_of(gradient_type(options)),
          optimizer_bytes(options.optimizer, options.precision)};
}

Json closed_stage(const PlanOptions& plan, Options options, StageKind stage) {
  const double parameters = *plan.parameters;
  const int ranks = plan.source.ranks;
  options.stage = stage;
  const ModelStates states = model_states(stage, parameters, ranks, element_bytes(options));
  const SentElements sent = sent_elements(options, parameters, ranks);
  PredictionInput in{.options = options, .ranks = ranks, .units = {int64_t(parameters)}};
  in.parameters = in.units[0];
  in.options.stage = StageKind::ddp;  // all save the same
  Json json{{"stage", name(stage)},
            {"memory", Json::array()},
            {"predicted_rest_total_bytes", states.total()},
            {"predicted_sent_bytes_per_rank",
             sent.gradient * double(size_of(communication_type(options))) +
                 sent.parameter * double(size_of(options.precision))},
            {"checkpoint", checkpoint_json<Json>(checkpoint_bytes(in, DeviceKind::cpu))}};
  for (const auto& [use, bytes] : {std::pair{"parameter", states.parameter},
                                   {"gradient", states.gradient},
                                   {"optimizer", states.optimizer}})
    json["memory"].push_back(
        {{"rank", 0}, {"pool", "device"}, {"use", use}, {"predicted_rest_bytes", bytes}});
  if (plan.device_memory > 0) json["fits"] = states.total() <= double(plan.device_memory);
  return json;
}

std::string closed_text(const PlanOptions& plan, const Options& options, const Json& stages) {
  const ElementBytes bytes = element_bytes(options);
  StageColumns table(stages, "model states of a rank");
  const auto gigabytes = [](double b) { return digits(b / 1e9, 4) + " GB"; };
  for (const auto& [title, place] :
       {std::pair{"  parameter", "/memory/0/predicted_rest_bytes"},
        {"  gradient", "/memory/1/predicted_rest_bytes"},
        {"  optimizer", "/memory/2/predicted_rest_bytes"},
        {"total", "/predicted_rest_total_bytes"},
        {"sent per step", "/predicted_sent_bytes_per_rank"},
        {"a checkpoint on disk", "/checkpoint/disk_bytes"},
        {"  on the host, snapshot", "/checkpoint/host_bytes/snapshot"}})
    table.row(title, place, gigabytes);
  if (plan.device_memory > 0)
    table.row("fits " + human_bytes(plan.device_memory), "/fits",
              [](bool fits) { return std::string(fits ? "yes" : "no"); });
  return str(digits(*plan.parameters, 6), " parameters, ", plural(plan.source.ranks, "rank"), ", ",
             precision_name(options.precision), ": ", bytes.total(),
             " bytes per parameter = parameter ", bytes.parameter, " + gradient ", bytes.gradient,
             " + optimizer ", bytes.optimizer.state + bytes.optimizer.master, "\n\n", table.text(),
             "\nThese are model states only (GB = 1e9 bytes), as in the ZeRO paper's Table 1. "
             "Activations are added by plan --model.\n");
}

PlanReport closed_plan(const PlanOptions& plan, const Options& options) {
  refuse_flags_of_models(plan);
  Json json{{"schema", 1},
            {"command", "plan"},
            {"ok", false},
            {"ranks", plan.source.ranks},
            {"parameters", int64_t(*plan.parameters)},
            {"steps", 1},
            {"precision", precision_name(options.precision)}};
  for (const StageKind stage : plan.stages) {
    json["stages"].push_back(closed_stage(plan, options, stage));
    json["ok"] = json["ok"] || json["stages"].back().value("fits", true);
  }
  return {closed_text(plan, options, json["stages"]), json_text(json), json["ok"]};
}

// ---- The real model -----------------------------------------------------------------------------

// Where the ranks compute, as the flags say, which must agree. It need not be here.
DeviceKind planned_device(const PlanOptions& options, const std::optional<Machine>& machine) {
  const bool reference = options.device == Wish::reference;
  const std::string gpus = "GPUs", cpus = "CPUs", own = reference ? "the reference kernels" : cpus;
  std::vector<std::pair<const char*, std::string>> said;  // by which flag
  if (options.device != Wish::automatic)
    said.push_back({"--as", options.device == Wish::cuda ? gpus : own});
  if (const Transport transport = transport_of(options); transport != Transport::threads)
    said.push_back({"--backend", transport == Transport::nccl ? gpus : own});
  if (machine)
    said.push_back({"--machine", machine->rank.device == DeviceKind::cuda ? gpus : cpus});
  for (const auto& [flag, where] : said)
    if (where != said[0].second)
      throw UsageError(str(said[0].first, " means ranks on ", said[0].second, ", but ", flag,
                           " ranks on ", where, "; leave one of them out"));
  return !said.empty() && said[0].second == gpus ? DeviceKind::cuda : DeviceKind::cpu;
}

GptTrainingSpec planned_spec(const PlanOptions& options, GptTrainingSpec spec,
                             const std::optional<Machine>& machine) {
  spec.ranks = options.source.ranks;
  spec.device_memory = options.device_memory;
  spec.host_memory = options.host_memory;
  spec.transport = transport_of(options);
  spec.device = planned_device(options, machine);
  spec.reference = options.device == Wish::reference;
  spec.checkpoint = options.checkpoint;
  spec.interrupted = interrupt_requested;
  if (machine) {
    if (spec.device_memory == 0) spec.device_memory = int64_t(machine->rank.memory_bytes);
    if (options.clock.overlap) set_overlap(spec.engine, *options.clock.overlap);
    // Groups of variants are nodes, but with replicas their number says how large they are.
    if (spec.engine.ranks_per_node == 0 && spec.engine.replicas == 0 &&
        machine->fills_nodes(spec.ranks))
      spec.engine.ranks_per_node = machine->ranks_per_node;
  }
  // Traffic is counted in bytes times ranks, in 64 bits.
  const double parameters = double(spec.model.parameters());
  require_input(
      16.0 * 3 * parameters * spec.ranks * double(spec.engine.accumulation) < 9e18,
      "the traffic of ", parameters, " parameters over ", spec.ranks,
      " ranks is too large to be counted; try fewer ranks, or --parameters, which has no limit");
  return spec;
}

// With a rank's part of the node's host memory as its limit, if something is offloaded.
GptTrainingSpec with_host_memory(GptTrainingSpec spec, const Machine& machine) {
  const Options& e = spec.engine;
  const bool offloads = e.offload_optimizer != OffloadDevice::none ||
                        e.offload_param != OffloadDevice::none || e.cpu_checkpointing;
  if (offloads && spec.host_memory == 0)
    spec.host_memory =
        int64_t(machine.host.memory_bytes) / std::min(spec.ranks, machine.ranks_per_node);
  return spec;
}

PlanReport plan_model(const PlanOptions& options, const LoadedConfig& loaded) {
  std::optional<Machine> machine;
  if (!options.clock.machine.empty())
    machine = planned_machine(options.clock, options.source.ranks_per_node, options.source.ranks);
  const ModelChoice model = choose_model(options, loaded);
  const GptTrainingSpec spec = planned_spec(options, spec_of(model, loaded.config), machine);
  require_threads_used(spec.device, options.threads,
                       loaded.config.offload_optimizer != OffloadDevice::none);
  set_compute_threads(options.threads);
  const GptTrainingSpec limited = machine ? with_host_memory(spec, *machine) : spec;
  std::vector<StagePlan> plans;
  for (const StageKind stage : options.stages) plans.push_back(plan_stage(limited, stage, 0));
  const auto presets = predict_presets(options.presets, loaded.config, spec);
  PlanReport report{
      plan_text(plans, limited, model.name, loaded.config.recompute) + preset_text(presets),
      plan_json(plans, presets, limited),
      std::ranges::any_of(plans, [](const StagePlan& p) { return !p.out_of_memory; })};
  // Of stages that fit, the machine's clock knows which is the fastest.
  if (!machine || !report.fits)
    report.text += plan_advice(plans, limited);
  else
    report.text.pop_back();  // the clock begins with an empty line too
  if (machine)
    report.fits = add_clock({options.stages, spec, *machine, options.clock, options.any_stage},
                            report.text, report.json);
  return report;
}

int plan(PlanOptions options) {
  if (options.clock.list) return list_machines(options.json);
  options.any_stage = options.stages.empty() && options.presets.empty();
  if (options.stages.empty()) options.stages = {kStages, kStages + 4};
  options.out = ".";  // of no checkpoint
  complete_checkpoint_flags(options);
  require_groups_used(options.source, options.stages, !options.clock.machine.empty());
  options.source.ranks = options.ranks.value_or(kPlanRanks);
  const LoadedConfig loaded = load_settings(options, options.source.ranks);
  const PlanReport report =
      options.parameters ? closed_plan(options, loaded.config) : plan_model(options, loaded);
  std::fputs((options.json ? report.json : report.text).c_str(), stdout);
  return report.fits ? kFine : kOutOfMemory;
}

constexpr const char* kPlanFooter =
    R"(Runs one training step of the real model under the real stage on a device that holds no data,
as rank 0 of any number of ranks. So peaks are exact, and nothing needs the memory that it counts.

Examples:
  zerolab plan --model gpt2 --ranks 8
  zerolab plan --model gpt2-xl --ranks 8 --device-memory 24GiB --as cuda
  zerolab plan --model gpt2-xl --ranks 16 --machine a100-80gb --precision bf16 --overlap on
  zerolab plan --parameters 7.5e9 --ranks 64 --precision bf16

Exit codes: 0 fine, 2 usage or configuration, 3 no listed stage fits)"
    "\f"
    R"(
--parameters is the closed formula of model states alone, for any model. --as changes workspace
only: kernels of each device need a different amount. With --save-every the peaks on the host
include what a save takes there. With overlap, prefetch, reuse or reproducible sums, a line per
stage says what they cost in bytes.

More examples:
  zerolab plan --model gpt2-xl --ranks 8 --machine l4 --precision bf16 --advise

Other exit codes: 70 unforeseen, 130 Ctrl-C)";

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  static PlanOptions options;
  Flags flags(app, invocation, "plan",
              "memory and traffic of each stage, without running it; which one fits",
              [] { return plan(options); });
  flags.group("Run");
  add_stages_flag(flags, options.stages, &options.presets);
  flags.value("--ranks", "N", "number of ranks (default 4)",
              [](const auto& text) { options.ranks = int(read_count(text, 1, kMostRanks)); });
  flags.add("--as", "WHERE", options.device, read_device,
            "device of the ranks: cpu, cuda or reference (default cpu)\fIt need not be here");
  flags.value("--parameters", "N",
              "closed formula for this many parameters, such as 7.5e9, and no model",
              [](const auto& text) { options.parameters = double(read_count(text, 1)); });
  add_clock_flags(flags, options.clock);
  add_shared_flags(flags, options);
  flags.footer(kPlanFooter);
}

}  // namespace zl::cli
