// Which collectives a step must make on each rank, one by one: zerolab's stages as
// stages/steady_state.h declares them, and real systems as they are shipped. And what a run did
// beside that: each difference with its name.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dist/call.h"
#include "nn/unit.h"
#include "stages/deepspeed/config.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {

// The parameters of a model in its units, root first: of a GPT, or of a list that
// tutorials/zerolab/check/units.py writes from any nn.Module.
struct CheckedModel {
  std::vector<Unit> units;
  std::shared_ptr<void> owner;  // of their parameters
  // A linear weight may be (in, out), as in Hugging Face's GPT-2, or (out, in), as in nn.Linear.
  bool either_layout = false, transposed = false;

  Unit all() const;  // of all parameters
};
CheckedModel gpt_units(const GptConfig& config);
// One line per parameter: name, shape, dtype, unit, such as "wte.weight 256x32 float32 root". All
// have one `dtype`. Throws InputError that names file and line.
CheckedModel read_units(const std::string& path, Dtype& dtype);

struct PlannedCalls {      // of a step, that are alike
  std::string collective;  // "all_gather"
  Purpose purpose{};
  int64_t elements = 0;    // [n] of the unsharded side
  int group = 0;           // how many ranks take part; 0: all
  int64_t part = 1;        // the elements are 1/part of a unit's
  std::string dtype = "";  // "f32"
  // Only the sum over the calls of this purpose is certain: the borders of buckets depend on the
  // order in which gradients are ready.
  bool sum_only = false;
  std::vector<std::string> units = {};
  int64_t planned = 0, made = 0;  // made: by the run
  bool named = false;             // that the two differ

  bool is(const std::string& which, Purpose what) const {
    return collective == which && purpose == what;
  }
  bool gather() const { return is("all_gather", Purpose::parameter); }
  bool number() const { return purpose == Purpose::norm || purpose == Purpose::loss; }
  bool differs() const { return !named && made != planned; }
  int64_t missing() const { return planned - made; }
};

// What `check traffic --as` knows.
inline constexpr const char* kSystems =
    "ddp,zero1,zero2,zero3,hsdp,torch-ddp,fsdp2,fsdp2-no-reshard,deepspeed-1,deepspeed-2,"
    "deepspeed-3";

struct TrafficCase {
  CheckedModel model;
  std::string system;  // of kSystems
  const Config& config;
  int ranks;

  // [n] A unit with the first dimension of each parameter padded to a multiple of the ranks, as
  // fully_shard does.
  int64_t padded(const Unit& unit) const;
  // How the unit is padded if it has n elements; null: it is another unit.
  const char* padding(int64_t n, const Unit& unit) const;
};
struct TrafficPlan {
  std::vector<PlannedCalls> calls = {};
  bool each = true;  // each micro-batch is reduced
  std::string note = "";
};
TrafficPlan plan_traffic(const TrafficCase& c);

// ---- what a run did beside it ------------------------------------------------------------------

// Whether it is harmless, because it changes neither results nor volume by itself; one sentence.
using Difference = std::pair<bool, std::string>;

struct TrafficVerdict {
  // By collective and purpose, of a rank and step: calls, planned ones, elements of the unsharded
  // side, planned ones. Purpose "other": the plan does not explain it.
  std::map<std::pair<std::string, std::string>, std::array<int64_t, 4>> rows;
  std::set<Difference> differences;
  std::set<std::string> notes;  // what is as planned, but not obvious
};
TrafficVerdict compare_traffic(const TrafficCase& c, const std::vector<SeenCall>& calls);

}  // namespace zl::cli
