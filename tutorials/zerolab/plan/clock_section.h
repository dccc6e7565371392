// plan --machine: how long a step takes on a machine, by the clock of stages/predict/clock/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stages/deepspeed/config.h"
#include "stages/predict/clock/clock_plan.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/plan/plan_sections.h"

namespace zl::cli {

struct ClockFlags {
  std::string machine;  // a name or a path; "": no clock
  bool list = false, advise = false, force = false;
  bool quiet = false;  // no progress
  std::optional<bool> overlap;
  Stragglers stragglers;
  bool seed = false;  // of the stragglers, was given
  std::vector<int> sweep_ranks;
  std::vector<StageKind> advised;  // that --advise tries; empty: those of --stages
  std::string csv, trace;          // "": none
};
void add_clock_flags(Flags& flags, ClockFlags& options);
// Throws UsageError if a flag is given that needs --machine.
void require_machine(const ClockFlags& options);

// --machines: one line for each shipped machine; or JSON.
std::string machine_list(bool json);

// The machine of --machine, with the nodes that `source` asks for. The spec gets the machine's
// device, its memory as a limit where none is given, and the flag's overlap. Groups of variants are
// nodes, but with replicas their number says how large they are. Throws UsageError if the nodes
// asked for are not full.
Machine take_machine(const ClockFlags& options, const ConfigSource& source, GptTrainingSpec& spec);
void group_by_nodes(GptTrainingSpec& spec, const Machine& machine);

// The part of a rank in the host memory of its node, as a limit of the plan: 0 if nothing is
// offloaded or the machine's file does not say how much there is.
int64_t host_memory_of_rank(const GptTrainingSpec& spec, const Machine& machine);

// What a step gains most from, of what a machine could have at twice the speed.
enum class Part { kernels, links, launches, copies };
struct StepLimit {
  Part part{};
  double seconds = 0;  // [s] of the step, with that part at twice the speed
};

// One stage on the machine, as configured and with overlap switched on and off.
struct StageClock {
  StageKind stage{};
  StepTime as_configured, with_overlap, without_overlap;
  Shortage lacks{};
  StepLimit limit;
};
std::vector<StageClock> clock_stages(const std::vector<StageKind>& stages,
                                     const GptTrainingSpec& spec, const Machine& machine,
                                     const ClockFlags& options);

bool any_fits(const std::vector<StageClock>& clocks);

// For people: a table, which stage to take, and a sentence for each about what limits it.
std::string clock_text(const std::vector<StageClock>& clocks, const GptTrainingSpec& spec,
                       const Machine& machine);
// Adds the clock's keys to the plan's document and its stages.
void add_clock_json(std::string& json, const std::vector<StageClock>& clocks,
                    const GptTrainingSpec& spec, const Machine& machine);

// Those that --advise tries if no --stages are given: the paper's four, and hsdp on several full
// nodes.
std::vector<StageKind> advised_stages(const GptTrainingSpec& spec, const Machine& machine);

// --advise: the settings that fit and take least time per token, and why others lose. Tries the
// stages, recomputation, offload and micro-batches with the same tokens per step.
PlanSection advice_section(const std::vector<StageKind>& stages, const GptTrainingSpec& spec,
                           const Machine& machine, const ClockFlags& options);

// --sweep ranks=…: seconds of a step by stage and number of ranks; `csv` as a file.
PlanSection sweep_section(const std::vector<StageKind>& stages, const GptTrainingSpec& spec,
                          const Machine& machine, const ClockFlags& options, std::string& csv);

// --trace: the predicted step of each stage, for ui.perfetto.dev.
std::string clock_trace(const std::vector<StageClock>& clocks, const Machine& machine);

}  // namespace zl::cli
