#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tensor/io/small_file.h"
#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/report/comparison_report.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, const char*> kNames[] = {
    {"model", "name"}, {"data", "name"}, {"settings", "version"}};

// With names instead of numbers in all lists: "step 2", "rank 1, device, gradient", "[0]".
Json named(const std::string& list, const Json& json) {
  if (json.is_primitive()) return json;
  Json all = Json::object();
  for (const auto& [key, value] : json.items()) {
    std::string name = key;
    if (json.is_array())
      name = list == "loss" || list == "grad_norm" ? str("step ", std::stoi(key) + 1)
                                                   : "[" + key + "]";
    if (json.is_array() && value.is_object()) {
      name = value.contains("rank") ? "rank " + value["rank"].dump() : "";
      for (const char* label : {"stage", "pool", "use", "collective", "purpose", "group", "move"})
        if (value.contains(label)) name += (name.empty() ? "" : ", ") + as_is<Json>(value[label]);
    }
    all[name] = named(key, value);
  }
  return all;
}

// "zero2: loss: step 2: 5.0 in the baseline, 5.5 now"; "" if the two are equal.
std::string difference(const Json& stored, const Json& now) {
  const Json a = named("", stored), b = named("", now), patch = Json::diff(a, b);
  if (patch.empty()) return "";
  const std::string op = patch[0]["op"];
  const Json::json_pointer at(patch[0]["path"].get<std::string>());
  std::string where;
  for (Json::json_pointer part = at; !part.empty(); part.pop_back())
    where = part.back() + (where.empty() ? "" : ": ") + where;
  if (op == "add") return where + " is not in the baseline";
  if (op == "remove") return where + " is in the baseline only";
  return str(where, ": ", a[at].dump(), " in the baseline, ", b[at].dump(), " now");
}

}  // namespace

Baseline::Baseline(std::string path, const std::string& settings) : path_(std::move(path)) {
  const std::string text = read_small_file(path_, {"baseline", 256 << 20});
  check_json(text, "--baseline " + path_);
  const Json stored = Json::parse(text), now = Json::parse(settings);
  require_input(stored.is_object() && stored.value("command", Json()) == "compare", "--baseline ",
                path_, " is not a compare.json of 'zerolab compare --out'");
  require_input(stored.value("schema", Json()) == 1, "--baseline ", path_,
                " has another schema than 1, which this program reads");
  for (const char* key : {"ranks", "steps", "parameters", "model", "data", "settings", "stages"})
    require_input(stored.contains(key), "--baseline ", path_, ": it has no \"", key, "\"");
  const Json& stages = stored["stages"];
  require_input(
      stages.is_array() && std::ranges::all_of(stages, &Json::is_object) &&
          std::ranges::all_of(kNames, [&](auto& n) { return stored[n.first].is_object(); }),
      "--baseline ", path_, " is damaged: stages is not a list of objects, or model, data ",
      "or settings is no object");
  stages_ = stages.dump();
  Json ours = Json::object(), theirs = Json::object();
  for (const auto& [key, value] : now.items())
    if (key != "ok" && stored.contains(key)) ours[key] = value, theirs[key] = stored[key];
  for (Json* document : {&ours, &theirs})  // sizes and the hash of the data decide, not their names
    for (const auto& [part, name] : kNames) (*document)[part].erase(name);
  const std::string other = difference(theirs, ours);
  require_input(other.empty(), "--baseline ", path_, " is of another run: ", other);
}

std::string Baseline::first_difference(const std::string& text) const {
  Json stored = Json::parse(stages_), now = Json::parse(text);
  for (Json* stages : {&stored, &now})  // times differ from run to run
    for (Json& stage : *stages)
      for (const char* time : {"seconds_per_step", "communication_time"}) stage.erase(time);
  return difference(stored, now);
}

}  // namespace zl::cli
