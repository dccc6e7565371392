// zerolab train: one model, one stage, any number of ranks.

#include <cmath>
#include <cstdio>
#include <map>

#include "nn/sampler.h"
#include "stages/weights.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
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
  int64_t sample = 120;  // tokens
  std::optional<std::string> prompt;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
};

// Checks for an interrupt before each unit, for passes that have no other place to check.
class Interruptible : public UnitObserver {
 public:
  explicit Interruptible(UnitObserver& stage) : stage_(stage) {}
  void before_forward(Unit& u, bool recorded) override {
    if (interrupt_requested()) throw Interrupted();
    stage_.before_forward(u, recorded);
  }
  void after_forward(Unit& u) override { stage_.after_forward(u); }

 private:
  UnitObserver& stage_;
};

// The text sample at the end, checked before any time is spent; nothing if none is wanted.
std::optional<TextSample> plan_sample(const TrainOptions& options, const RunSetup& setup) {
  if (options.sample == 0) {
    if (options.prompt || options.temperature || options.top_k)
      throw UsageError(
          "--sample 0 writes nothing, so --prompt, --temperature and --top-k have no effect; leave "
          "one side out");
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

Gpt& gpt_of(Trainer& training) { return static_cast<Gpt&>(training.model()); }

// The files of a run and what has been written to them. On the process of rank 0 they are open.
class Outputs {
 public:
  Outputs(const TrainOptions& options, int ranks, bool static_scale, bool first)
      : static_scale_(static_scale) {
    if (!options.out.empty() && first) {
      folder_.emplace(options.out);
      metrics_.emplace(folder_->file("metrics.jsonl"));
    }
    if (!options.trace.empty()) trace.emplace(options.trace, options.out, ranks, first);
  }

  std::optional<RunTrace> trace;
  int64_t done = 0, skipped = 0;  // steps

  // To be called on rank 0. A full disk ends the metrics but not the run.
  void append(const StepRecord& record) {
    done = record.step;
    skipped += record.skipped;
    last_ = record;
    if (!metrics_ || !metrics_->problem().empty()) return;
    metrics_->append(record);
    if (metrics_->problem().empty()) return;
    problem_ = metrics_->problem();
    std::fprintf(stderr, "zerolab: %s; training goes on without it\n", problem_.c_str());
  }

  // All steps were skipped, and not because a dynamic loss scale is still being found.
  bool untrained() const {
    const bool searching = last_.loss_scale && !static_scale_ && std::isfinite(last_.loss);
    return done > 0 && skipped == done && !searching;
  }

  // To be called on all ranks; rank 0 writes the file, completely or not at all.
  void save_weights(Trainer& training) {
    std::map<std::string, std::vector<float>> values;
    const bool saves = training.comm().rank() == 0 && !untrained();
    visit_weights(training.engine().stage(), [&](const Parameter& p, const Tensor& data) {
      if (interrupt_requested()) throw Interrupted();
      if (saves) values[p.name] = kernel::download_floats(data);
    });
    const auto value = [&](const std::string& name) {
      if (interrupt_requested()) throw Interrupted();
      return values.at(name);
    };
    if (saves) try {
        OutputFile file(folder_->file("model.safetensors"), "", false);
        file.write([&](const std::string& temporary) {
          save_safetensors_weights(temporary, gpt_of(training).config(), value);
        });
        file.commit();
        saved_ = true;
      } catch (const InputError& e) {
        problem_ = e.what();
      }
    (void)training.comm().all_gather_object("", "weights saved");  // the others wait for rank 0
  }

  std::vector<std::string> files() const {
    std::vector<std::string> all;
    if (metrics_) all.push_back(metrics_->path());
    if (saved_) all.push_back(folder_->file("model.safetensors"));
    return all;
  }

  // "runs/a/metrics.jsonl holds the steps so far, and no weights were written".
  std::string kept() const {
    if (!metrics_) return "nothing was written";
    if (done == 0) return "nothing was kept";
    if (saved_) return files()[0] + " and " + files()[1] + " are complete";
    return files()[0] + " holds the steps so far, and no weights were written";
  }

  // The first output that could not be written, in a sentence; "" if all were.
  std::string problem() const { return problem_.empty() && trace ? trace->problem() : problem_; }

 private:
  const bool static_scale_;  // of fp16
  std::optional<RunFolder> folder_;
  std::optional<Metrics> metrics_;
  StepRecord last_;
  bool saved_ = false;
  std::string problem_;
};

// Every rank generates the same tokens, because in stage 3 every pass needs all ranks.
void write_sample(Trainer& training, const RunSetup& setup, int64_t n, TextSample& sample) {
  Interruptible observer(training.engine().observer());
  const bool keeps = training.comm().rank() == 0;
  try {
    const auto tokens = generate(
        gpt_of(training), observer, training.memory(), sample.prompt, n,
        {.temperature = sample.temperature, .top_k = sample.top_k, .seed = setup.spec.engine.seed});
    if (keeps) sample.tokens = tokens;
  } catch (const InputError& e) {  // the weights are not finite
    if (keeps) sample.missing = e.what();
  }
}

// What to try depends on the stage, which the memory does not know.
[[noreturn]] void rethrow_with_advice(const OutOfMemory& e, StageKind stage) {
  const char* advice = e.pool == Pool::host ? ""
                       : stage == StageKind::zero3
                           ? " With more ranks each keeps a smaller shard."
                           : " A higher ZeRO stage keeps less on each rank.";
  throw OutOfMemory(e.what() + std::string(advice), e.rank, e.pool, e.phase, e.unit, e.asked);
}

// Prints the report first, so that it is not lost if a file could not be written.
int finish(const TrainOptions& options, const TrainReport& report, const Outputs& outputs) {
  std::fputs((options.json ? json_report(report) : text_report(report)).c_str(), stdout);
  std::fflush(stdout);
  if (outputs.untrained())
    std::fprintf(stderr,
                 "zerolab: all %lld steps were skipped because no gradient was finite, so nothing "
                 "was learned and no weights were saved; try a smaller learning rate, or check "
                 "--init-from and the data\n",
                 (long long)outputs.done);
  if (!outputs.problem().empty()) throw OutputError(outputs.problem());
  return outputs.untrained() ? kFailed : kFine;
}

int train(TrainOptions options) {
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);  // else the process of rank 0 writes and prints
  if (!first) hush(options);
  const RunSetup setup = set_up_run(options, kDefaultRanks, process);
  const StageKind stage = setup.spec.engine.stage;
  std::optional<TextSample> sample = plan_sample(options, setup);
  require_memory(setup.spec, setup, {stage});
  Outputs outputs(options, setup.spec.ranks, setup.config.loss_scale.static_scale > 0, first);
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace(standard_error(options.color), setup.spec.steps);
  RunReports reports(setup, progress ? &*progress : nullptr, first);
  if (!options.quiet) std::fputs(describe(setup).c_str(), stderr);
  const TrainingCallbacks callbacks{.at_start =
                                        [&](Trainer& training) {
                                          reports.at_start(training);
                                          if (outputs.trace) outputs.trace->at_start(training);
                                        },
                                    .on_step =
                                        [&](const StepRecord& record) {
                                          outputs.append(record);
                                          reports.on_step(record);
                                          if (progress) progress->step(record);
                                        },
                                    .at_end =
                                        [&](Trainer& training) {
                                          reports.at_end(training);
                                          if (outputs.trace) outputs.trace->at_end(training);
                                          if (!options.out.empty()) outputs.save_weights(training);
                                          if (sample)
                                            write_sample(training, setup, options.sample, *sample);
                                        }};
  try {
    const TrainingResult result = run_training(setup.spec, callbacks);
    if (!first) return kFine;
    progress.reset();
    reports.finish();
    if (outputs.trace && !options.quiet) std::fputs(outputs.trace->summary().c_str(), stderr);
    return finish(options, {setup, result, sample, outputs.files()}, outputs);
  } catch (const Interrupted&) {
    progress.reset();
    if (!first) return 128 + interrupt_signal();
    throw InterruptedRun(str(interrupted_by(interrupt_signal()), " after step ", outputs.done,
                             " of ", setup.spec.steps, "; ", outputs.kept()));
  } catch (const OutputError&) {
    throw;
  } catch (const std::exception& e) {
    progress.reset();
    if (first && outputs.done > 0 && !options.out.empty())
      std::fprintf(stderr, "note: %s; choose another --out to run again\n",
                   printable(outputs.kept()).c_str());
    if (const auto* memory = dynamic_cast<const OutOfMemory*>(&e))
      rethrow_with_advice(*memory, stage);
    throw;
  }
}

void add_sample_flags(Flags& flags, TrainOptions& options) {
  flags.group("Text sample at the end");
  flags.value("--sample", "N", "tokens to generate; 0: none (default 120)",
              [&](const auto& text) { options.sample = read_count(text, 0, 1'000'000); });
  flags.value("--prompt", "TEXT", "text to continue (default: a line break)",
              [&](const auto& text) {
                require_input(!text.empty(), "a prompt needs at least one byte");
                options.prompt = text;
              });
  flags.value("--temperature", "X", "0: always the most likely token (default 0.8)",
              [&](const auto& text) { options.temperature = read_real(text); });
  flags.value("--top-k", "K", "choose among the K most likely tokens only (default: all)",
              [&](const auto& text) { options.top_k = read_count(text, 1); });
}

constexpr const char* kFooter =
    R"(Settings without a flag are given by --config or --set, with DeepSpeed's names:
  train_micro_batch_size_per_gpu (B, default 4), gradient_accumulation_steps (A, default 1),
  gradient_clipping, optimizer, scheduler, fp16, bf16, communication_data_type, data_types,
  zero_optimization with offload_optimizer, and the block "zerolab".
'zerolab config explain' lists all of them, and 'zerolab config init' writes a file.
steps_per_print, wall_clock_breakdown, comms_logger and csv_monitor print and write as in
DeepSpeed.
A flag wins over --set, --set over the file, the file over the defaults: AdamW, lr 1e-3, betas 0.9
0.999, no weight decay, no clipping.
Numbers: counts such as 100, 5e8 or 500M; sizes such as 64MiB or 1.5GB.
--out DIR gets metrics.jsonl (one object per step) and model.safetensors (names of Hugging Face's
GPT-2).

Examples:
  zerolab train --model tiny --steps 20
  zerolab train --stage zero2 --ranks 4 --out runs/a --eval-every 50
  zerolab train --init-from runs/a/model.safetensors --data notes.txt

Exit codes: 0 fine, 1 all steps were skipped or no loss scale is small enough,
            2 usage or configuration, 3 out of memory, 4 communication, 70 unforeseen,
            74 an output could not be written, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP)";

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
  flags.name("--out", "DIR", "folder for metrics and weights; must not hold a run (default: none)",
             options.out);
  flags.name("--trace", "FILE",
             "new file for a timeline of all ranks, for ui.perfetto.dev (default: none)",
             options.trace);
  add_output_flags(flags, options);
  flags.footer(kFooter);
}

}  // namespace zl::cli
