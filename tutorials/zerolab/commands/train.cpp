// zerolab train: one model, one stage, any number of ranks.

#include <algorithm>
#include <cstdio>
#include <map>

#include "nn/sampler.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/report/train_report.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_reports.h"
#include "tutorials/zerolab/run/run_trace.h"

namespace zl::cli {
namespace {

constexpr int kDefaultRanks = 1;

struct TrainOptions : RunOptions {
  std::string trace;     // empty: none
  int64_t sample = 120;  // tokens
  std::optional<std::string> prompt;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
};

// A stage that can be interrupted between units: sampling has no other place to ask.
class Interruptible : public UnitObserver {
 public:
  explicit Interruptible(UnitObserver& stage) : stage_(stage) {}
  void before_forward(Unit& u) override {
    if (interrupt_requested()) throw Interrupted();
    stage_.before_forward(u);
  }
  void after_forward(Unit& u) override { stage_.after_forward(u); }

 private:
  UnitObserver& stage_;
};

// What to write at the end, decided and checked before any time is spent; nothing if no sample is
// wanted.
std::optional<TextSample> plan_sample(const TrainOptions& options, const RunSetup& setup) {
  const bool asked = options.prompt || options.temperature || options.top_k;
  if (options.sample == 0) {
    if (asked)
      throw UsageError(
          "--sample 0 writes nothing, so --prompt, --temperature and --top-k have nothing to do; "
          "leave one side out");
    return std::nullopt;
  }
  const TokenData& data = setup.windows->data();
  TextSample sample{.temperature = options.temperature.value_or(0.8),
                    .top_k = options.top_k.value_or(0)};
  sample.bytes = data.file_format(0) == std::string_view("text");
  const int64_t vocab = setup.spec.model.vocab;
  require_input(sample.top_k <= vocab, "--top-k ", sample.top_k, " is more than the vocabulary of ",
                vocab);
  if (!sample.bytes) {
    require_input(!options.prompt, "--prompt is text, but the data are token ids; leave it out");
    sample.prompt.resize(1);
    data.read(0, 0, sample.prompt);
    return sample;
  }
  for (const char c : options.prompt.value_or("\n")) sample.prompt.push_back(uint8_t(c));
  for (const int32_t token : sample.prompt)
    require_input(token < vocab, "--prompt has a byte ", token,
                  ", which is outside the vocabulary of ", vocab);
  return sample;
}

// Rank 0 writes. The others wait as long as that takes. Returns on rank 0 when the file is whole.
void save_weights(RankTraining& training, const std::string& path) {
  std::map<std::string, std::vector<float>> values;
  const bool saves = training.comm().rank() == 0;
  training.engine().stage().visit_weights([&](const Parameter& p, const Tensor& data) {
    if (interrupt_requested()) throw Interrupted();
    if (saves) values[p.name] = kernel::download_floats(data);
  });
  if (saves)
    save_safetensors_weights(path, training.model().config(), [&](const std::string& name) {
      if (interrupt_requested()) throw Interrupted();
      return values.at(name);
    });
}

// Every rank draws the same tokens, since in stage 3 every pass needs them all; rank 0's are kept.
void draw(RankTraining& training, const RunSetup& setup, int64_t n, TextSample& sample) {
  Interruptible observer(training.engine().stage());
  const bool keeps = training.comm().rank() == 0;
  try {
    const auto tokens = generate(
        training.model(), observer, training.memory(), sample.prompt, n,
        {.temperature = sample.temperature, .top_k = sample.top_k, .seed = setup.spec.config.seed});
    if (keeps) sample.tokens = tokens;
  } catch (const InputError& e) {  // the weights are not finite; metrics say so, and so does this
    if (keeps) sample.missing = e.what();
  }
}

int interrupted(const RunSetup& setup, const RunFolder* folder, int64_t done, bool saved) {
  const int64_t steps = setup.spec.config.steps;
  const std::string kept =
      folder == nullptr ? "nothing was written"
      : done == 0       ? "nothing was kept"
      : saved           ? folder->metrics() + " and " + folder->weights() + " are complete"
              : folder->metrics() + " holds the steps so far, and no weights were written";
  std::fprintf(stderr, "zerolab: interrupted after step %lld of %lld; %s\n", (long long)done,
               (long long)steps, kept.c_str());
  return 130;
}

int train(TrainOptions options) {
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);  // else another process writes and speaks for this one
  if (!first) hush(options);
  const RunSetup setup = set_up_run(options, kDefaultRanks, process);
  std::optional<TextSample> sample = plan_sample(options, setup);
  require_memory(setup.spec, setup, {setup.spec.config.stage.value_or(StageKind::ddp)});
  std::optional<RunFolder> folder;
  if (!options.out.empty() && first) folder.emplace(options.out);
  std::optional<RunTrace> trace;
  if (!options.trace.empty()) trace.emplace(options.trace, setup.spec.ranks, first);

  const Terminal terminal = standard_error(options.color);
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace(terminal, setup.spec.config.steps);
  RunReports reports(setup.spec, progress ? &*progress : nullptr, first);
  if (!options.quiet) std::fputs(describe(setup).c_str(), stderr);
  int64_t done = 0;
  bool saved = false;  // on the process that has rank 0
  const TrainingCallbacks callbacks{.at_start =
                                        [&](RankTraining& training) {
                                          reports.at_start(training);
                                          if (trace) trace->at_start(training);
                                        },
                                    .on_step =
                                        [&](const StepRecord& record) {
                                          if (folder) folder->append(record);
                                          reports.on_step(record);
                                          if (progress) progress->step(record);
                                          done = record.step;
                                        },
                                    .at_end =
                                        [&](RankTraining& training) {
                                          reports.at_end(training);
                                          if (trace) trace->at_end(training);
                                          if (!options.out.empty()) {
                                            save_weights(training, folder ? folder->weights() : "");
                                            if (training.comm().rank() == 0) saved = true;
                                            (void)training.comm().exchange("", "weights saved");
                                          }
                                          if (sample)
                                            draw(training, setup, options.sample, *sample);
                                        }};
  try {
    const TrainingResult result = run_training(setup.spec, callbacks);
    if (!first) return 0;
    progress.reset();
    reports.finish();
    if (trace && !options.quiet) std::fputs(trace->summary().c_str(), stderr);
    const TrainReport report{setup, result, sample, folder ? folder->metrics() : "",
                             folder ? folder->weights() : ""};
    std::fputs((options.json ? json_report(report) : text_report(report)).c_str(), stdout);
    return 0;
  } catch (const Interrupted&) {
    if (!first) return 130;
    progress.reset();
    return interrupted(setup, folder ? &*folder : nullptr, done, saved);
  }
}

void add_sample_flags(Flags& flags, TrainOptions& options) {
  flags.group("Text sample at the end");
  flags.value("--sample", "N", "tokens to write; 0: none (default 120)",
              [&](const auto& text) { options.sample = read_count(text, 0, 1'000'000); });
  flags.value("--prompt", "TEXT", "what it goes on from (default a line break)",
              [&](const auto& text) {
                require_input(!text.empty(), "a prompt needs at least one byte");
                options.prompt = text;
              });
  flags.value("--temperature", "X", "0: always the likeliest token (default 0.8)",
              [&](const auto& text) { options.temperature = read_real(text); });
  flags.value("--top-k", "K", "among the K likeliest only (default all)",
              [&](const auto& text) { options.top_k = read_count(text, 1); });
}

constexpr const char* kFooter =
    R"(Settings that have no flag are given by --config or --set, with DeepSpeed's names:
  train_micro_batch_size_per_gpu (B, default 4), gradient_accumulation_steps (A, default 1),
  gradient_clipping, optimizer, scheduler, fp16, bf16, communication_data_type, data_types, zero_optimization with
  offload_optimizer, and the block "zerolab": 'zerolab config explain' lists all, 'config init' writes a file.
  What to tell beside: steps_per_print, wall_clock_breakdown, comms_logger, csv_monitor, as DeepSpeed does.
  Default < file < --set < flag. Without either: AdamW, lr 1e-3, betas 0.9 0.999, no decay, no clipping.
Numbers: counts as 100, 5e8, 500M; sizes as 64MiB, 1.5GB.
--out DIR receives metrics.jsonl (one object per step) and model.safetensors (names of Hugging Face's GPT-2).

Examples:
  zerolab train --model tiny --steps 20
  zerolab train --stage zero2 --ranks 4 --out runs/a --eval-every 50
  zerolab train --init-from runs/a/model.safetensors --data notes.txt --set train_micro_batch_size_per_gpu=8

Exit codes: 0 fine, 1 no loss scale is small enough, 2 usage or configuration, 3 out of memory, 4 communication,
            70 unforeseen, 130 Ctrl-C)";

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  static TrainOptions options;
  Flags flags(app, invocation, "train", "train a GPT under one stage",
              [] { return train(options); });
  add_run_flags(flags, options);
  flags.group("Ranks");
  flags.value("--stage", "STAGE", "ddp, zero1, zero2 or zero3, or 0 to 3 (default ddp)",
              [](const auto& text) { options.stage = read_stage(text); });
  add_rank_flags(flags, options, kDefaultRanks);
  add_model_flags(flags, options);
  add_data_flags(flags, options);
  add_sample_flags(flags, options);
  flags.group("Output");
  flags.value("--out", "DIR",
              "where metrics and weights go; must not hold a run yet (default nowhere)",
              [](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.out = text;
              });
  flags.value("--trace", "FILE", "a timeline of all ranks, for ui.perfetto.dev (default none)",
              [](const auto& text) {
                require_input(!text.empty(), "the name is empty");
                options.trace = text;
              });
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
