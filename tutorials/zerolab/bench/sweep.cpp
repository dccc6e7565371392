#include "tutorials/zerolab/bench/sweep.h"

#include <algorithm>

#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

constexpr int64_t kMostRanks = 64;

// A setting, and where its value goes.
struct Setting {
  const char* name;
  void (*set)(StepOptions& options, int64_t value);
};
constexpr Setting kSettings[] = {
    {"n_layer", [](StepOptions& o, int64_t v) { o.n_layer = v; }},
    {"n_head", [](StepOptions& o, int64_t v) { o.n_head = v; }},
    {"n_embd", [](StepOptions& o, int64_t v) { o.n_embd = v; }},
    {"block_size", [](StepOptions& o, int64_t v) { o.block_size = v; }},
    {"vocab_size", [](StepOptions& o, int64_t v) { o.vocab_size = v; }},
    {"micro_batch", [](StepOptions& o, int64_t v) { o.micro_batch = v; }},
    {"ranks", [](StepOptions& o, int64_t v) { o.ranks = int(v); }}};

const Setting* find_setting(const std::string& name) {
  const auto* found =
      std::ranges::find_if(kSettings, [&](const Setting& s) { return name == s.name; });
  return found == std::end(kSettings) ? nullptr : found;
}

// On a GPU the default model would measure how fast kernels are launched.
bool names_a_model(const StepOptions& o) {
  return o.model || o.n_layer || o.n_head || o.n_embd || o.block_size || o.vocab_size ||
         !o.init_from.empty() || !o.config_file.empty();
}

RunSetup set_up(StepOptions options) {
  options.steps = options.timed + options.warm_up;
  if (!names_a_model(options) && choose_device({.device = options.device}, Dtype::f32, 1).on_gpus())
    options.model = "gpt2";
  RunSetup setup = set_up_run(options, kStepRanks);
  if (options.micro_batch) setup.spec.config.micro_batch = *options.micro_batch;
  return setup;
}

}  // namespace

Sweep read_sweep(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  Sweep sweep{.setting = text.substr(0, equals)};
  std::ranges::replace(sweep.setting, '-', '_');  // as the flags are written
  std::vector<std::string> known;
  std::string all;
  for (const Setting& s : kSettings)
    known.emplace_back(s.name), all += (all.empty() ? "" : ", ") + known.back();
  require_input(find_setting(sweep.setting), "'", sweep.setting,
                "' is no setting to sweep; there are ", all, did_you_mean(sweep.setting, known));
  require_input(equals + 1 < text.size(), "'", text, "' has no values; write ", sweep.setting,
                "=1,2,4");
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const int64_t value = read_count(text.substr(begin, end - begin), 1,
                                     sweep.setting == "ranks" ? kMostRanks : 1 << 20);
    require_input(std::ranges::find(sweep.values, value) == sweep.values.end(), "'", text, "' has ",
                  value, " twice");
    sweep.values.push_back(value);
    begin = end + 1;
  }
  return sweep;
}

std::vector<StepPoint> step_points(const StepOptions& options) {
  std::vector<StepPoint> points;
  if (options.sweeps.empty()) points.push_back({.setup = set_up(options)});
  for (const Sweep& sweep : options.sweeps) {
    const auto same = [&](const Sweep& other) { return other.setting == sweep.setting; };
    require_input(std::ranges::count_if(options.sweeps, same) == 1, "--sweep ", sweep.setting,
                  " is given twice; write all values in one");
    for (const int64_t value : sweep.values) {
      StepOptions changed = options;
      find_setting(sweep.setting)->set(changed, value);
      changed.quiet =
          options.quiet || !points.empty();  // what there is to note is the same for all
      try {
        points.push_back({.setting = sweep.setting, .value = value, .setup = set_up(changed)});
      } catch (const InputError& e) {
        throw InputError(str("--sweep ", sweep.setting, "=", value, ": ", e.what()));
      }
    }
  }
  return points;
}

}  // namespace zl::cli
