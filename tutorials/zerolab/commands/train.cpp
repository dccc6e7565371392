// zerolab train: one model, one stage, any number of ranks.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

#include "nn/data/sampler.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/report/run_page.h"
#include "tutorials/zerolab/report/train_report.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_reports.h"

namespace zl::cli {
namespace {

constexpr int kTrainRanks = 1;

struct TrainOptions : RunOptions {
  bool dry_run = false;
  std::optional<int64_t> sample;  // tokens
  TextSample text{.prompt = {'\n'}, .temperature = 0.8};
};

std::vector<int32_t> read_prompt(const std::string& text) {
  const std::string prompt = read_name(text);
  const std::vector<uint8_t> bytes(prompt.begin(), prompt.end());
  return {bytes.begin(), bytes.end()};
}

// The text sample at the end, checked before any time is spent; nothing if none is wanted, or if
// the data are token ids, which are not turned into text.
std::optional<TextSample> plan_sample(const TrainOptions& options, const RunSetup& setup) {
  const bool text = setup.windows->data().file_format(0) == std::string_view("text");
  const TextSample usual = TrainOptions().text;
  const bool asked = options.text.prompt != usual.prompt || options.text.top_k != usual.top_k ||
                     options.text.temperature != usual.temperature;
  require_input(
      text ? options.sample != 0 || !asked : options.sample.value_or(0) == 0 && !asked,
      text ? "--sample 0 writes no text, so " : "the data are token ids, not text, so --sample, ",
      "--prompt, --temperature and --top-k have no effect; leave them out");
  if (options.sample == 0 || !text) return std::nullopt;
  const int64_t vocab = setup.spec.model.vocab;
  require_input(options.text.top_k <= vocab, "--top-k ", options.text.top_k,
                " is more than the vocabulary of ", vocab);
  for (const int32_t token : options.text.prompt)
    require_input(token < vocab, "--prompt has a byte ", token,
                  ", which is outside the vocabulary of ", vocab);
  return options.text;
}

// Every rank generates the same tokens, because in stage 3 every pass needs all ranks.
void write_sample(Trainer& training, int64_t n, TextSample& sample) {
  const SampleOptions how{.temperature = sample.temperature,
                          .top_k = sample.top_k,
                          .seed = training.spec().engine.seed,
                          .poll = end_if_interrupted};
  const bool keeps = training.comm().rank() == 0;
  try {
    const auto tokens = generate(static_cast<Gpt&>(training.model()), training.engine().observer(),
                                 training.memory(), sample.prompt, n, how);
    if (keeps) sample.tokens = tokens;
  } catch (const InputError& e) {  // the weights are not finite
    if (keeps) sample.missing = e.what();
  }
}

// A run with all that listens to it. The ranks are threads: what they share is rank 0's, or atomic.
// Only the process of rank 0, the `first`, has files open.
class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, const RunSetup& setup, bool first)
      : options_(options),
        setup_(setup),
        spec_(setup.spec),
        first_(first),
        in_place_(resumes_in_place(options)),
        dry_(require_memory(setup.spec, setup, {setup.spec.engine.stage})),
        sample_(plan_sample(options, setup)),
        page_(setup, "train", describe(setup), {options.out, first}) {
    require_host_limit(spec_, dry_);
    if (!options.out.empty() && first) {
      folder_.emplace(options.out, in_place_ ? RunFolder::For::resume : RunFolder::For::train);
      metrics_.emplace(folder_->file("metrics.jsonl"), in_place_);
    }
    if (!options.quiet) progress_.emplace(spec_.steps);
    if (first) monitors_ = open_monitors(setup);
    if (!options.trace.empty()) trace_.emplace(options.trace, options.out, spec_.ranks, first);
  }

  // Returns the exit code.
  int run() {
    try {
      const TrainingResult result = run_training(
          spec_, {.resumed = [this](const LoadedCheckpoint& loaded) { resumed(loaded); },
                  .at_start = [this](Trainer& training) { at_start(training); },
                  .after_backward = [this](Trainer& t) { tell_of_interrupt(t.comm().rank()); },
                  .after_step = [this](Trainer& t) { try_to([&] { page_.after_step(t); }); },
                  .on_step = [this](const StepRecord& record) { on_step(record); },
                  .saved = [this](const CheckpointRecord& record) { saved(record); },
                  .at_end = [this](Trainer& training) { at_end(training); }});
      progress_.reset();
      return !first_ ? int(kFine) : result.steps.empty() ? finish_without_steps() : finish(result);
    } catch (const std::exception& e) {
      progress_.reset();
      if (dynamic_cast<const OutputError*>(&e)) throw;
      const bool speaks = first_ && (made_ > 0 || dynamic_cast<const Interrupted*>(&e));
      return page_.end_early(e, str(" after step ", last_.step, " of ", spec_.steps),
                             speaks ? what_is_left() : "");
    }
  }

 private:
  void tell(const std::string& line) {
    if (progress_) progress_->line(printable(line));
  }
  void complain(const std::string& sentence) {  // also if --quiet
    if (progress_) progress_->clear();
    say(sentence);
  }

  // Calls `write`; an output that cannot be written ends, but the run goes on.
  bool try_to(const std::function<void()>& write) {
    try {
      write();
      return true;
    } catch (const InputError& e) {  // the run ends with the first one, and says others here
      const bool goes_on = last_.step < spec_.steps;
      if (goes_on || !problem_.empty())
        complain(str(e.what(), goes_on ? "; training goes on without it" : ""));
      if (problem_.empty()) problem_ = e.what();
      return false;
    }
  }

  void resumed(const LoadedCheckpoint& loaded) {
    resumed_ = loaded;
    tell(str("resumed from ", loaded.folder, ": step ", loaded.position.step, " of ", spec_.steps));
    for (const std::string& note : loaded.notes) tell("note: " + note);
    if (!options_.init_from.empty())
      tell("note: the weights are the checkpoint's, not those of --init-from");
    if (!spec_.checkpoint.saves() && loaded.position.step < spec_.steps)
      tell("note: this run saves no checkpoint; add --save-every K to go on from it later");
  }

  void at_start(Trainer& training) {
    const int64_t steps = training.steps();
    if (training.comm().rank() == 0) {
      rank0_ = &training;
      last_.step = steps;
      if (progress_) progress_->begin_after(steps);
      const int64_t kept = metrics_ && in_place_ ? metrics_->keep_until(steps) : steps;
      if (kept < steps)
        tell(str("note: ", metrics_->path(), " holds no steps from ", kept + 1, " to ", steps));
    }
    if (steps >= spec_.steps) finished_ = true;
    if (trace_) trace_->at_start(training);
    page_.at_start(training);
  }

  void tell_of_interrupt(int rank) {  // a signal's handler cannot print
    if (rank == 0 && spec_.checkpoint.saves() && interrupt_requested() &&
        !std::exchange(told_, true))
      tell("a checkpoint is written after this step; the same signal again ends at once");
  }

  void on_step(const StepRecord& record) {
    ++made_;
    skipped_ += record.skipped;
    last_ = record;
    if (metrics_) try_to([&] { metrics_->append(record); });
    page_.on_step(spec_.engine.stage, record);
    std::erase_if(monitors_, [&](MonitorFiles& files) {
      return !try_to([&] { add_step(files, setup_, rank0_->engine(), record); });
    });
    if (progress_) progress_->step(record);
  }

  void saved(const CheckpointRecord& record) {
    checkpoints_.push_back(record);
    if (metrics_) try_to([&] { metrics_->sync(); });
    tell(str("checkpoint ", record.folder, ": ", human_bytes(record.bytes), " in ",
             digits(record.seconds, 2), " s, of which training waited ", digits(record.stall, 2),
             " s"));
    if (!record.problem.empty()) complain(record.folder + " is complete, but " + record.problem);
  }

  void at_end(Trainer& training) {
    if (trace_) try_to([&] { trace_->at_end(training); });
    if (!options_.out.empty()) {
      const bool writes = training.comm().rank() == 0 && !untrained();
      const std::string path = writes ? folder_->file("model.safetensors") : "";
      try_to([&] {
        save_weights(training, path);
        if (writes) weights_ = path;
      });
      (void)training.comm().all_gather_object("", "weights saved");  // the others wait for rank 0
    }
    if (sample_ && !finished_) write_sample(training, options_.sample.value_or(120), *sample_);
  }

  // All steps made now were skipped, and not because a dynamic loss scale is still being found.
  bool untrained() const {
    const bool fixed = setup_.config.loss_scale.static_scale > 0,
               searching = last_.loss_scale && !fixed && std::isfinite(last_.loss);
    return made_ > 0 && skipped_ == made_ && !searching;
  }

  // How to go on, or which files are complete; "" if none was begun.
  std::string what_is_left() const {
    if (!metrics_ || last_.step == 0) return "";
    if (!weights_.empty()) return metrics_->path() + " and " + weights_ + " are complete";
    const auto all = list_checkpoints(options_.out);
    if (all.empty())
      return metrics_->path() +
             " holds the steps so far, and no weights were written; choose "
             "another --out to run again";
    return (options_.resume ? "--resume " + options_.out + " goes on from "
                            : "add --resume to go on from ") +
           all.back().path;
  }

  // The checkpoint was made at the last step or later.
  int finish_without_steps() const {
    const FinishedRun run{spec_.checkpoint.resume, last_.step, spec_.steps};
    std::fputs(finished_report(run, options_.json).c_str(), options_.json ? stdout : stderr);
    if (!problem_.empty()) throw OutputError(problem_);
    return kFine;
  }

  int finish(const TrainingResult& result) {
    if (trace_ && !options_.quiet) std::fputs(trace_->summary().c_str(), stderr);
    const auto dry = options_.dry_run ? std::optional(dry_) : std::nullopt;
    TrainReport report{setup_, result, dry, sample_, {}, resumed_, checkpoints_, page_.file()};
    if (metrics_) report.files.push_back(metrics_->path());
    if (!weights_.empty()) report.files.push_back(weights_);
    if (trace_ && trace_->written()) report.more_files.push_back(trace_->path());
    for (const MonitorFiles& files : monitors_)
      std::ranges::copy(files.paths(), std::back_inserter(report.more_files));
    if (untrained())
      complain(
          str("all ", made_,
              " steps were skipped because no gradient was finite, so no weights "
              "were saved; check the loss scale, the learning rate, --init-from and the data"));
    const std::string json = json_report(report);
    page_.end(options_.json ? json : text_report(report), json, {}, {problem_});
    return untrained() ? kFailed : kFine;
  }

  const TrainOptions& options_;
  const RunSetup& setup_;
  const GptTrainingSpec& spec_;
  const bool first_, in_place_;
  const RankReport dry_;
  std::optional<TextSample> sample_;
  RunPage page_;
  std::optional<RunFolder> folder_;
  std::optional<Metrics> metrics_;
  std::optional<Progress> progress_;
  std::vector<MonitorFiles> monitors_;
  std::optional<RunTrace> trace_;
  std::optional<LoadedCheckpoint> resumed_;
  std::vector<CheckpointRecord> checkpoints_;
  Trainer* rank0_ = nullptr;
  StepRecord last_;                     // the last step, also before a resume
  int64_t made_ = 0, skipped_ = 0;      // steps of this run
  std::string weights_, problem_;       // the file; the first output that could not be written
  std::atomic<bool> finished_ = false;  // there was no step left
  bool told_ = false;
};

int train(TrainOptions options) {
  complete_checkpoint_flags(options);
  const std::optional<LaunchedRank> process = launched_rank(options);
  const RunSetup setup = set_up_run(options, kTrainRanks, process);
  require_groups_used(options.source, {setup.spec.engine.stage});
  const std::string note = is_first(process) ? check_resume(options, setup.spec.steps) : "";
  TrainingRun run(options, setup, is_first(process));
  if (!options.quiet) std::fputs(describe(setup).c_str(), stderr);
  if (!options.quiet && !note.empty()) say(note, "note");
  try {
    return run.run();
  } catch (const OutOfMemory& e) {  // what to try depends on the stage, which memory does not know
    const char* advice = e.pool != Pool::device ? ""
                         : shards_parameter(setup.spec.engine.stage)
                             ? " With more ranks each keeps a smaller shard."
                             : " A higher ZeRO stage keeps less on each of several ranks.";
    throw OutOfMemory(e.what() + std::string(advice), e.rank, e.pool, e.phase, e.unit, e.asked);
  }
}

constexpr const char* kTrainFooter =
    R"(Examples:
  zerolab train --model tiny --steps 20
  zerolab train --stage zero2 --ranks 4 --out runs/a --save-every 100 --resume
  zerolab train --stage zero3 --ranks 3 --precision bf16 --set gradient_accumulation_steps=4

--out DIR gets metrics.jsonl (one object per step), model.safetensors and report.html.
Exit codes: 0 fine, 1 all steps were skipped, 2 usage, 3 out of memory, 4 communication)"
    "\f"
    R"(
Settings without a flag have DeepSpeed's names: 'zerolab config explain' lists all. A flag wins over
--set, --set over the file. Norms are those of the gradient before clipping. --steps is the step at
which training ends, so the same command with --resume finishes an interrupted run; stage, ranks,
micro-batch and accumulation may change then.

More examples:
  zerolab train --init-from runs/a/model.safetensors --data notes.txt
  zerolab train --stage zero2 --ranks 2 --link-bandwidth 100MB/s --trace slow-link.json

Other exit codes: 70 unforeseen, 74 an output could not be written, 130 Ctrl-C, 143 SIGTERM)";

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
  flags.toggle("--dry-run", "print what activations and workspace should take, too (in --json)",
               options.dry_run);
  flags.group("Text sample at the end", true);
  flags.add("--sample", "N", options.sample, count_within(0, 1'000'000),
            "bytes of text to generate; 0: none (default 120)");
  flags.add("--prompt", "TEXT", options.text.prompt, read_prompt,
            "text to continue (default: a line break)");
  flags.add("--temperature", "X", options.text.temperature, read_real,
            "0: always the most likely token (default 0.8)");
  flags.add("--top-k", "K", options.text.top_k, count_within(),
            "choose among the K most likely tokens only (default: all)");
  flags.group("Output");
  flags.name("--trace", "FILE",
             "new file for a timeline of all ranks, for ui.perfetto.dev (default: none)",
             options.trace);
  flags.footer(kTrainFooter);
}

}  // namespace zl::cli
