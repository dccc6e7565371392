// zerolab golden: a run that a run in PyTorch can be compared with: where it starts, what it reads,
// and what it must compute, send and keep.

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/io/safetensors.h"
#include "tutorials/zerolab/check/commands.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/report/run_json.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

// All tokens of the first file as little-endian uint16, as nanoGPT has them.
std::string token_bytes(const TokenData& data) {
  std::vector<int32_t> tokens(size_t(data.tokens()));
  data.read(0, 0, tokens);
  static_assert(std::endian::native == std::endian::little);
  const std::vector<uint16_t> words(tokens.begin(), tokens.end());
  return {reinterpret_cast<const char*>(words.data()), 2 * words.size()};
}

Json golden_json(const RunSetup& setup, const TrainingResult& result,
                 const SafetensorsFile& weights) {
  const GptTrainingSpec& spec = setup.spec;
  const OptimizerConfig& o = spec.engine.optimizer;
  const StagePlan plan = plan_stage(spec.without_data(), spec.engine.stage, 0);
  Json all = document_head<Json>("golden", spec);
  all.update({{"model", model_json<Json>(setup)},
              {"window", spec.window},
              {"stage", name(spec.engine.stage)},
              {"accumulation", spec.engine.accumulation},
              {"micro_batch", spec.micro_batch},
              {"gradient_clipping", spec.engine.gradient_clipping},
              {"optimizer",
               {{"lr", o.lr},
                {"betas", {o.beta1, o.beta2}},
                {"eps", o.eps},
                {"weight_decay", o.weight_decay}}},
              {"traffic_per_step", traffic_json<Json>(plan.traffic, Columns::predicted)},
              {"memory", memory_json<Json>(plan.memory, Columns::predicted)}});
  for (const StepRecord& step : result.steps) {
    all["lr"].push_back(step.lr);
    all["losses"].push_back(step.loss);
    all["grad_norms"].push_back(step.grad_norm);
  }
  for (const SafetensorsEntry& e : weights.entries())
    all["hashes"][e.name] = hexadecimal(weights_hash(weights.read_floats(e.name)));
  return all;
}

int golden(RunOptions& options) {
  if (options.out.empty()) throw UsageError("golden needs a folder DIR to write");
  options.command = "golden";
  const RunSetup setup = set_up_run(options, options.ranks.value_or(2));
  const OptimizerConfig& o = setup.spec.engine.optimizer;
  const TokenData& data = setup.windows->data();
  require_input(data.files() == 1, "golden needs data of one file, and '", data.name(), "' has ",
                data.files());
  require_input(setup.spec.engine.precision == Dtype::f32,
                "golden is for fp32: other types round differently elsewhere");
  require_input(o.kind == OptimizerKind::adamw && o.decoupled && o.bias_correction &&
                    o.no_weight_decay.empty(),
                "golden is for AdamW with one weight decay, because parity.py makes no other");
  const RunFolder folder(options.out, RunFolder::For::train);
  require_input(std::filesystem::is_empty(options.out), "golden needs a new or empty folder, and '",
                options.out, "' has files");
  write_files({{folder.file("tokens.bin"), token_bytes(data)}});
  Metrics metrics(folder.file("metrics.jsonl"), false);
  const auto save = [&](Trainer& t, const char* name) {
    save_weights(t, t.comm().rank() == 0 ? folder.file(name) : "");
  };
  const TrainingResult result = run_training(
      setup.spec, {.at_start = [&](Trainer& t) { save(t, "init.safetensors"); },
                   .on_step = [&](const StepRecord& record) { metrics.append(record); },
                   .at_end = [&](Trainer& t) { save(t, "model.safetensors"); }});
  const Json json = golden_json(setup, result, SafetensorsFile(folder.file("model.safetensors")));
  write_files({{folder.file("golden.json"), json_text(json)}});
  std::printf("%s: golden.json, init.safetensors, tokens.bin, metrics.jsonl, model.safetensors\n",
              options.out.c_str());
  return kFine;
}

void add_golden(CLI::App& app, Invocation& invocation) {
  static RunOptions options;
  Flags flags(app, invocation, "golden",
              "a run that tutorials/zerolab/check/parity.py repeats in PyTorch",
              [] { return golden(options); });
  flags.name("DIR", "", "folder for the weights, the tokens and the numbers of the run",
             options.out);
  add_settings(flags, options);
  flags.add("--ranks", "N", options.ranks, count_within(1, 64), "number of ranks (default 2)");
  flags.value("--steps", "N", "number of updates (default 100)", [](const std::string& text) {
    options.set("--steps", "zerolab.steps", str(read_count(text, 1, 1'000'000)), false);
  });
  flags.footer("  zerolab golden golden --config ds.json --model tiny --steps 20");
}

[[maybe_unused]] const bool golden_is_here = have_program("golden", add_golden);

}  // namespace
}  // namespace zl::cli
