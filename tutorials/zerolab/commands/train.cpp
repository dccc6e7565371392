// zerolab train: one model, one stage, any number of ranks.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <iterator>

#include "nn/sampler.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/report/train_report.h"
#include "tutorials/zerolab/run/preflight.h"
#include "tutorials/zerolab/run/run_checkpoints.h"
#include "tutorials/zerolab/run/run_outputs.h"
#include "tutorials/zerolab/run/run_reports.h"

namespace zl::cli {
namespace {

constexpr int kTrainRanks = 1;

struct TrainOptions : RunOptions {
  bool dry_run = false;
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
  const char* advice = e.pool == Pool::host      ? ""
                       : shards_parameter(stage) ? " With more ranks each keeps a smaller shard."
                                                 : " A higher ZeRO stage keeps less on each rank.";
  throw OutOfMemory(e.what() + std::string(advice), e.rank, e.pool, e.phase, e.unit, e.asked);
}

// A run with all that listens to it. The ranks are threads: what they share is rank 0's, or atomic.
class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, const RunSetup& setup, bool first,
              std::optional<RankReport> dry)
      : options_(options),
        setup_(setup),
        dry_(std::move(dry)),
        sample_(plan_sample(options, setup)),
        outputs_(options, setup, first),
        page_(setup, "train", describe(setup),
              {.folder = options.out,
               .writes = first,
               .existing = resumes_in_place(options) ? Existing::replace : Existing::keep}),
        first_(first) {
    if (!options.quiet) progress_.emplace(standard_error(options.color), setup.spec.steps);
    reports_.emplace(setup, progress_ ? &*progress_ : nullptr, first);
    if (outputs_.trace) outputs_.trace->require_new();  // a monitor may have taken a name
  }

  // Returns the exit code.
  int run() {
    const CheckpointOptions& checkpoint = setup_.spec.checkpoint;
    if (checkpoint.saves()) leave_time_to_save();
    const TrainingResult result = run_training(setup_.spec, callbacks());
    progress_.reset();
    if (!first_) return kFine;
    if (result.steps.empty()) return finish_without_steps();
    reports_->finish();
    if (outputs_.trace && !options_.quiet) std::fputs(outputs_.trace->summary().c_str(), stderr);
    return finish(result);
  }

  [[noreturn]] void rethrow_interrupt() {
    progress_.reset();
    const std::string way_on = outputs_.way_on();
    const std::string what = str(interrupted_by(interrupt_signal()), " after step ",
                                 outputs_.step(), " of ", setup_.spec.steps);
    const bool written = page_.write_failure(what, RunEnd::interrupted);
    throw InterruptedRun(what + "; " + (way_on.empty() ? outputs_.kept() : way_on) +
                         (written ? "; " + page_.file() + " shows the steps so far" : ""));
  }

  // Writes the page that shows how far the run came, and on stderr what to do about the failure.
  void note_kept_files(const std::exception& failure) {
    progress_.reset();
    const bool signal = is_interrupt(failure, interrupt_signal());
    if (page_.write_failure(failure.what(), signal ? RunEnd::interrupted : RunEnd::failed))
      std::fprintf(stderr, "note: %s shows the steps so far\n", printable(page_.file()).c_str());
    if (!first_ || outputs_.made() == 0 || options_.out.empty()) return;
    const std::string way_on = outputs_.way_on();
    const std::string note =
        way_on.empty() ? outputs_.kept() + "; choose another --out to run again" : way_on;
    std::fprintf(stderr, "note: %s\n", printable(note).c_str());
  }

 private:
  TrainingCallbacks callbacks() {
    TrainingCallbacks all{.resumed = [this](const LoadedCheckpoint& loaded) { resumed(loaded); },
                          .at_start = [this](Trainer& training) { at_start(training); },
                          .after_step = [this](Trainer& training) { page_.after_step(training); },
                          .on_step = [this](const StepRecord& record) { on_step(record); },
                          .saved = [this](const CheckpointRecord& record) { saved(record); },
                          .at_end = [this](Trainer& training) { at_end(training); }};
    if (setup_.spec.checkpoint.saves())
      all.after_backward = [this](Trainer& training) { tell_of_interrupt(training); };
    return all;
  }

  void tell(const std::string& line) {
    if (progress_) progress_->line(printable(line));
  }

  void resumed(const LoadedCheckpoint& loaded) {
    resumed_ = loaded;
    tell(str("resumed from ", loaded.folder, ": step ", loaded.position.step, " of ",
             setup_.spec.steps));
    for (const std::string& note : loaded.notes) tell("note: " + note);
    if (!options_.init_from.empty())
      tell("note: the weights are the checkpoint's, not those of --init-from");
  }

  void at_start(Trainer& training) {
    if (training.comm().rank() == 0) {
      outputs_.begin(training.steps());
      if (progress_) progress_->begin_after(training.steps());
    }
    if (training.steps() >= setup_.spec.steps) finished_ = true;
    reports_->at_start(training);
    if (outputs_.trace) outputs_.trace->at_start(training);
    page_.at_start(training);
  }

  // Once, on rank 0: the signal's handler cannot print.
  void tell_of_interrupt(Trainer& training) {
    if (training.comm().rank() != 0 || told_ || !interrupt_requested()) return;
    told_ = true;
    const bool ctrl_c = interrupt_signal() == SIGINT;
    const std::string name = ctrl_c ? "Ctrl-C" : str("SIG", sigabbrev_np(interrupt_signal()));
    tell(str(ctrl_c ? "interrupted" : name, ": a checkpoint is written after this step; ", name,
             " again ends at once"));
  }

  void on_step(const StepRecord& record) {
    outputs_.append(record);
    page_.on_step(setup_.spec.engine.stage, record);
    reports_->on_step(record);
    if (progress_) progress_->step(record);
  }

  void saved(const CheckpointRecord& record) {
    outputs_.saved(record);
    const bool waited = setup_.spec.checkpoint.writes == CheckpointWrites::wait;
    const auto rate = int64_t(double(record.bytes) / std::max(record.seconds, 1e-6));
    tell(str("checkpoint ", record.folder, ": ", human_bytes(record.bytes), " in ",
             digits(record.seconds, 2), " s",
             waited ? str(" (", human_bytes(rate), "/s)")
                    : str(", of which training waited ", digits(record.stall, 2), " s")));
    if (!record.problem.empty())
      std::fprintf(stderr, "zerolab: %s is complete, but %s\n", printable(record.folder).c_str(),
                   printable(record.problem).c_str());
  }

  void at_end(Trainer& training) {
    reports_->at_end(training);
    if (outputs_.trace) outputs_.trace->at_end(training);
    if (!options_.out.empty()) outputs_.save_weights(training);
    if (sample_ && !finished_) write_sample(training, setup_, options_.sample, *sample_);
  }

  // The checkpoint was made at the last step or later.
  int finish_without_steps() const {
    const CheckpointOptions& checkpoint = setup_.spec.checkpoint;
    const FinishedRun run{checkpoint.resume, outputs_.step(), setup_.spec.steps};
    std::fputs((options_.json ? json_report(run) : "").c_str(), stdout);
    std::fputs((options_.json ? "" : printable(text_report(run))).c_str(), stderr);
    if (!outputs_.problem().empty()) throw OutputError(outputs_.problem());
    return kFine;
  }

  // Prints the report first and then writes the page, so that neither is lost if another file could
  // not be written.
  int finish(const TrainingResult& result) {
    TrainReport report{
        setup_,      result, dry_, sample_, outputs_.files(), resumed_, outputs_.checkpoints(),
        page_.file()};
    if (outputs_.trace) report.more_files = outputs_.trace->written();
    std::ranges::copy(reports_->files(), std::back_inserter(report.more_files));
    const std::string json = json_report(report);
    std::fputs((options_.json ? json : text_report(report)).c_str(), stdout);
    std::fflush(stdout);
    const double scale = setup_.config.loss_scale.static_scale;
    if (outputs_.untrained())
      std::fprintf(
          stderr,
          "zerolab: all %lld steps were skipped because no gradient was finite, so nothing "
          "was learned and no weights were saved; try %sa smaller learning rate, or check "
          "--init-from and the data\n",
          (long long)outputs_.made(),
          scale > 0 ? str("a smaller fp16.loss_scale than the fixed ", scale, ", ").c_str() : "");
    std::string problem_of_page;
    try {
      page_.write(json);
    } catch (const OutputError& e) {
      problem_of_page = e.what();
    }
    for (const std::string& problem : {outputs_.problem(), reports_->problem(), problem_of_page})
      if (!problem.empty()) throw OutputError(problem);
    return outputs_.untrained() ? kFailed : kFine;
  }

  const TrainOptions& options_;
  const RunSetup& setup_;
  const std::optional<RankReport> dry_;
  std::optional<TextSample> sample_;
  RunOutputs outputs_;
  RunPage page_;
  const bool first_;
  std::optional<Progress> progress_;
  std::optional<RunReports> reports_;
  std::optional<LoadedCheckpoint> resumed_;
  std::atomic<bool> finished_ = false;  // there was no step left
  bool told_ = false;
};

int train(TrainOptions options) {
  complete_checkpoint_flags(options);
  const std::optional<LaunchedRank> process = launched_rank(options);
  const bool first = is_first(process);  // else the process of rank 0 writes and prints
  if (!first) hush(options);
  const RunSetup setup = set_up_run(options, kTrainRanks, process);
  require_groups_used(options.source, {setup.spec.engine.stage});
  const StageKind stage = setup.spec.engine.stage;
  const std::string note = first ? check_resume(options, setup.spec.steps) : "";
  TrainingRun run(options, setup, first, require_memory(setup, options.dry_run));
  if (!options.quiet) std::fputs(describe(setup).c_str(), stderr);
  if (!options.quiet && !note.empty()) std::fprintf(stderr, "note: %s\n", printable(note).c_str());
  try {
    return run.run();
  } catch (const Interrupted&) {
    interrupted_elsewhere();
    if (!first) return failure_of(std::current_exception(), interrupt_signal()).code;
    run.rethrow_interrupt();
  } catch (const OutputError&) {
    throw;
  } catch (const std::exception& e) {
    run.note_kept_files(e);
    if (const auto* memory = dynamic_cast<const OutOfMemory*>(&e))
      rethrow_with_advice(*memory, stage);
    throw;
  }
}

std::string read_prompt(const std::string& text) {
  require_input(!text.empty(), "a prompt needs at least one byte");
  return text;
}

constexpr const char* kTrainFooter =
    R"(Examples:
  zerolab train --model tiny --steps 20
  zerolab train --stage zero2 --ranks 4 --out runs/a --save-every 100
  zerolab train --stage zero2 --ranks 4 --out runs/a --save-every 100 --resume
  zerolab train --stage zero3 --ranks 3 --precision bf16 --set gradient_accumulation_steps=4

--out DIR gets metrics.jsonl (one object per step), model.safetensors and report.html.
Exit codes: 0 fine, 1 no step was made, 2 usage, 3 out of memory, 4 communication)"
    "\f"
    R"(
Settings without a flag are given by --config or --set, with DeepSpeed's names:
  train_micro_batch_size_per_gpu (B, default 4), gradient_accumulation_steps (A, default 1),
  gradient_clipping, optimizer, scheduler, fp16, bf16, communication_data_type, data_types,
  zero_optimization with offload_optimizer and offload_param, and the block "zerolab".
'zerolab config explain' lists all of them, and 'zerolab config init' writes a file.
steps_per_print, wall_clock_breakdown, comms_logger, csv_monitor and tensorboard print and write as
in DeepSpeed.
A flag wins over --set, --set over the file, the file over the defaults: AdamW, lr 1e-3, betas 0.9
0.999, no weight decay, no clipping.
Numbers: counts such as 100, 5e8 or 500M; sizes such as 64MiB or 1.5GB; rates such as 100MB/s; times
such as 50us.
The norm of a step, printed and in metrics.jsonl, is that of its gradient before clipping.
model.safetensors has the names of Hugging Face's GPT-2. report.html is a page that plays one step,
with its data report.json. 'zerolab report DIR' makes the page again, also of a run that was killed.
With --save-every, SIGTERM and Ctrl-C write a checkpoint after the running step. --steps is the step
at which training ends, so the same command with --resume finishes an interrupted run. Stage,
ranks, micro-batch and accumulation may change then; model and optimizer may not, data only with
--new-data.

More examples:
  zerolab train --init-from runs/a/model.safetensors --data notes.txt
  zerolab train --stage zero2 --ranks 2 --link-bandwidth 100MB/s --trace slow-link.json

Exit code 1: all steps were skipped (0 while a dynamic loss scale is being lowered), or no loss
scale is small enough. Others: 70 unforeseen, 74 an output could not be written, 130 Ctrl-C,
143 SIGTERM, 129 SIGHUP)";

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  static TrainOptions options;
  Flags flags(app, invocation, "train", "train a GPT under one stage",
              [] { return train(options); });
  flags.group("Run");
  flags.add("--stage", "STAGE", options.source.stage, read_stage,
            "ddp, zero1, zero2 or zero3, or 0 to 3 (default ddp)" + variants_help());
  add_shared_flags(flags, options);
  flags.group("Ranks", true);
  flags.toggle("--dry-run", "first predict the full peak, with activations, and check that it fits",
               options.dry_run);
  flags.group("Text sample at the end", true);
  flags.add(
      "--sample", "N", options.sample,
      [](const std::string& text) { return read_count(text, 0, 1'000'000); },
      "tokens to generate; 0: none (default 120)");
  flags.add("--prompt", "TEXT", options.prompt, read_prompt,
            "text to continue (default: a line break)");
  flags.add("--temperature", "X", options.temperature, read_real,
            "0: always the most likely token (default 0.8)");
  flags.add(
      "--top-k", "K", options.top_k, [](const std::string& text) { return read_count(text, 1); },
      "choose among the K most likely tokens only (default: all)");
  flags.group("Output");
  flags.name("--out", "DIR",
             "folder for metrics, weights, report.html and checkpoints (default: none)\f"
             "It must not hold a run, except that of --resume",
             options.out);
  flags.name("--trace", "FILE",
             "new file for a timeline of all ranks, for ui.perfetto.dev (default: none)",
             options.trace);
  flags.footer(kTrainFooter);
}

}  // namespace zl::cli
