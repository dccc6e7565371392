// The reports that DeepSpeed's keys ask for: steps_per_print, comms_logger,
// csv_monitor, tensorboard. They are made from event streams and step records
// and change nothing in a run. Rank 0 prints lines to stderr.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/flight_recorder.h"
#include "dist/trace/call_times.h"
#include "stages/train/trainer.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/monitors/monitor_files.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

class RunReports {
 public:
  // Opens the files; throws InputError if that fails. With a null `progress`
  // (-q) steps_per_print prints nothing. Both arguments must outlive the run;
  // finish() does not use `progress`. If not `first`, rank 0 is in another
  // process, and nothing is printed or written here.
  RunReports(const RunSetup& setup, Progress* progress, bool first)
      : spec_(setup.spec),
        config_(setup.config),
        progress_(progress),
        ranks_(size_t(setup.spec.ranks)) {
    listen_to_calls(first);
    if (!first) return;
    for (const auto& [key, monitor] :
         {std::pair("csv_monitor", config_.csv_monitor), {"tensorboard", config_.tensorboard}})
      if (monitor.enabled)
        require_apart(key, monitor.output_path + "/" + monitor.job_name, spec_.checkpoint.folder);
    if (config_.tensorboard.enabled) tensorboard_.emplace(config_.tensorboard);
    if (!config_.csv_monitor.enabled) return;
    StepRecord any;
    if (spec_.eval_every > 0) any.eval_loss = 0;
    std::vector<std::string> names;
    for (const auto& [name, value] : values(any, 0, 0)) names.push_back(name);
    csv_.emplace(config_.csv_monitor, names);
  }
  RunReports(const RunReports&) = delete;  // the ranks' listeners hold its address
  RunReports& operator=(const RunReports&) = delete;

  // To be called on each rank before the first step, on rank 0 after each, on
  // each after the last.
  void at_start(Trainer& training) {
    Readers& of_rank = ranks_[size_t(training.comm().rank())];
    if (training.comm().rank() == 0) {
      rank0_ = &training;
      skipped_ = training.steps() - training.engine().updates();  // before a resume
    }
    if (!of_rank.calls) return;
    Backend& device = training.memory().backend();
    training.comm().events().listen([&of_rank, &device](const Event& event) {
      if (!of_rank.counting) return;  // the text sample after the last step
      Event seen = event;
      const bool bounds_time =
          event.kind == EventKind::collective_begin || event.kind == EventKind::collective_end;
      if (!device.host_addressable() && bounds_time) {  // waits for the GPU, as DeepSpeed does
        device.synchronize();
        seen.nanoseconds = steady_nanoseconds();
      }
      if (event.phase != std::string_view("evaluate")) of_rank.calls->see(seen);
    });
  }
  void on_step(const StepRecord& record) {
    // DeepSpeed writes the learning rate after the scheduler's step: the next
    // step's.
    const double next_lr = rank0_->engine().learning_rate();
    skipped_ += record.skipped;
    if (progress_ && config_.steps_per_print && record.step % *config_.steps_per_print == 0)
      print(deepspeed_line(record.step, next_lr));
    const int64_t samples =
        record.step * config_.micro_batch * config_.accumulation * readers(config_, spec_.ranks);
    const auto write = [&](auto& files) {
      if (files) try {
          for (const auto& [value, number] : values(record, next_lr, rank0_->engine().loss_scale()))
            files->add(value, samples, number);
        } catch (const OutputError& e) {
          files.reset();
          if (problem_.empty()) problem_ = e.what();
          print(str("zerolab: ", printable(e.what()), "; training goes on without it"));
        }
    };
    write(csv_);
    write(tensorboard_);
  }
  void at_end(Trainer& training) {
    Readers& of_rank = ranks_[size_t(training.comm().rank())];
    of_rank.counting = false;
    if (!of_rank.calls) return;
    for (const std::string& bytes :
         training.comm().all_gather_object(encode(of_rank.calls->calls()), "comms_logger"))
      if (training.comm().rank() == 0) calls_.push_back(decode_call_times(bytes));
  }
  // To be called when all ranks have ended; prints the table of comms_logger.
  void finish() const {
    if (config_.comms_logger.enabled) std::fputs(call_table(calls_).c_str(), stderr);
  }

  // The first file that could not be written to the end, in a sentence; "" if
  // all were. A full disk ends the file but not the run.
  const std::string& problem() const { return problem_; }
  std::vector<std::string> files() const {  // of the monitors, after the last step
    std::vector<std::string> all;
    if (csv_) all = csv_->paths();
    if (tensorboard_) all.push_back(tensorboard_->path());
    return all;
  }

 private:
  // Of one rank; used by its thread only until all have ended.
  struct Readers {
    std::optional<CallTimes> calls;
    bool counting = true;  // until the last step has ended
  };

  void print(const std::string& text) const {
    if (progress_) return progress_->line(text);
    std::fputs((text + "\n").c_str(), stderr);
  }

  void listen_to_calls(bool first) {
    const CommsLogger& logger = config_.comms_logger;
    if (!logger.enabled) return;
    std::set<std::string> chosen;
    if (logger.prof_all) chosen = collective_names();
    for (const std::string& op : logger.prof_ops) {
      const std::string ours = our_collective(op);
      if (!logger.prof_all) chosen.insert(ours);
      if (first && ours.empty())
        print("note: comms_logger.prof_ops: no collective of zerolab is called " + op);
    }
    CallTimes::Ended ended;
    if (logger.verbose)
      ended = [this](const CallSpan& call) {
        print(call_line(call, spec_.ranks, config_.comms_logger.debug));
      };
    for (Readers& of_rank : ranks_)
      of_rank.calls.emplace(chosen, &of_rank == &ranks_[0] ? ended : nullptr);
  }

  // "step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", in DeepSpeed's
  // format.
  std::string deepspeed_line(int64_t step, double lr) const {
    const OptimizerConfig& o = config_.optimizer;
    const std::string momentum =
        o.kind == OptimizerKind::sgd
            ? python_number(o.momentum)
            : str("(", python_number(o.beta1), ", ", python_number(o.beta2), ")");
    return str("step=", step, ", skipped=", skipped_, ", lr=[", python_number(lr), "], mom=[",
               momentum, "]");
  }

  // What monitors write. DeepSpeed's pipeline engine writes train_loss and
  // eval_loss, all its engines the others.
  std::vector<std::pair<std::string, double>> values(const StepRecord& record, double next_lr,
                                                     double next_scale) const {
    std::vector<std::pair<std::string, double>> all{{"lr", next_lr}, {"train_loss", record.loss}};
    if (config_.precision == Dtype::f16) all.emplace_back("loss_scale", next_scale);
    if (record.eval_loss) all.emplace_back("eval_loss", *record.eval_loss);
    return all;
  }

  const GptTrainingSpec& spec_;
  const Config& config_;
  Progress* progress_;
  std::vector<Readers> ranks_;
  std::vector<CallTimes::Calls> calls_;  // of all ranks, on rank 0, after the last step
  std::optional<CsvFiles> csv_;
  std::optional<TensorboardFile> tensorboard_;
  std::string problem_;
  Trainer* rank0_ = nullptr;
  int64_t skipped_ = 0;
};

}  // namespace zl::cli
