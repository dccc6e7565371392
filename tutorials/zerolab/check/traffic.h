// Which collectives a step must make on each rank, one by one: zerolab's stages as
// stages/steady_state.h declares them, and real systems as they are shipped. And what a run did
// beside that: each difference with its name.
#pragma once

#include <string>
#include <vector>

#include "dist/call.h"
#include "stages/deepspeed/config.h"
#include "tensor/shape.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {

// The parameters of a model in its units, root first: of a GPT, or of a list that
// tutorials/zerolab/check/units.py writes from any nn.Module.
struct CheckedModel {
  struct Parameter {
    std::string name;
    Shape shape;
  };
  struct Unit {
    std::string name;
    std::vector<Parameter> parameters;
  };
  std::vector<Unit> units;
  std::string dtype;  // of the list: "f32"; "": the configuration says it
  // A linear weight may be (in, out), as in Hugging Face's GPT-2, or (out, in), as in nn.Linear.
  bool either_layout = false;

  std::vector<Parameter> parameters() const;
  int64_t numel() const;  // [n] of all parameters
  void add(const std::string& unit, Parameter parameter);
};
CheckedModel gpt_units(const GptConfig& config);
// One line per parameter: name, shape, dtype, unit, such as "wte.weight 256x32 float32 root".
// Throws InputError that names file and line.
CheckedModel read_units(const std::string& path);

// [n] What a unit may have: without padding; with the first dimension of each parameter padded to
// a multiple of the ranks, as fully_shard does.
struct UnitSizes {
  int64_t exact = 0, rows = 0;
};
UnitSizes sizes_of(const std::vector<CheckedModel::Parameter>& parameters, int ranks);

struct PlannedCalls {      // of a step, that are alike
  std::string collective;  // "all_gather"
  Purpose purpose{};
  int64_t elements = 0;  // [n] of the unsharded side
  std::string dtype;     // "f32"
  int group = 0;         // how many ranks take part
  // Only the sum over the calls of this purpose is certain: the borders of buckets depend on the
  // order in which gradients are ready.
  bool sum_only = false;
  std::vector<std::string> units = {};
  int64_t planned = 0, made = 0;  // made: by the run
  bool named = false;             // that the two differ

  bool is(const std::string& which, Purpose what) const {
    return collective == which && purpose == what;
  }
  bool number() const { return purpose == Purpose::norm || purpose == Purpose::loss; }
  bool differs() const { return !named && made != planned; }
  int64_t missing() const { return planned - made; }
};

struct TrafficPlan {
  std::vector<PlannedCalls> calls;
  bool each = true;  // each micro-batch is reduced
  std::string note;
};

// What `check traffic --as` knows.
inline const std::vector<std::string> kSystems = {
    "ddp",         "zero1",       "zero2",      "zero3",
    "hsdp",        "torch-ddp",   "fsdp2",      "fsdp2-no-reshard",
    "deepspeed-1", "deepspeed-2", "deepspeed-3"};
TrafficPlan plan_traffic(const std::string& system, const CheckedModel& model, const Config& config,
                         int ranks);

// ---- what a run did beside it ------------------------------------------------------------------

// Whether it is harmless, because it changes neither results nor volume by itself; one sentence.
using Difference = std::pair<bool, std::string>;

struct CountedCalls {  // of a rank and step; elements of the unsharded side
  int64_t calls = 0, planned_calls = 0, elements = 0, planned_elements = 0;
};
struct TrafficVerdict {
  // By collective and purpose; "other": the plan does not explain it.
  std::map<std::pair<std::string, std::string>, CountedCalls> rows;
  std::vector<Difference> differences;
  std::set<std::string> notes;  // what is as planned, but not obvious
};

struct TrafficCase {
  CheckedModel model;
  std::string system;  // of kSystems
  const Config& config;
  int ranks;
  bool marked = false;  // the file marks its steps
  TrafficPlan plan = plan_traffic(system, model, config, ranks);
};
TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls);

// Takes the units as the collectives of the run show them, where that explains sizes that the plan
// does not know: weights are transposed, two units are one, a module is a unit, a parameter is
// there twice. Each adds its sentence.
void fit_units(TrafficCase& c, const std::vector<SeenCall>& calls, TrafficVerdict& verdict);

std::string list_of(const std::vector<std::string>& names);  // "root, h.0 and h.1"

}  // namespace zl::cli
