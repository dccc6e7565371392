// What DeepSpeed's keys csv_monitor and tensorboard ask for, from step records.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/progress.h"
#include "tutorials/zerolab/monitors/monitor_files.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

class RunReports {
 public:
  // Opens the files; throws InputError if that fails. `progress` may be null. Both arguments must
  // outlive the run. Only the process of rank 0, the `first`, has files.
  RunReports(const RunSetup& setup, Progress* progress, bool first)
      : spec_(setup.spec), config_(setup.config), progress_(progress) {
    StepRecord any;
    if (spec_.eval_every > 0) any.eval_loss = 0;
    std::vector<std::string> names;
    for (const auto& [name, value] : values(any, 0, 0)) names.push_back(name);
    for (const auto& [key, monitor] :
         {std::pair("csv_monitor", &config_.csv_monitor), {"tensorboard", &config_.tensorboard}})
      if (first && monitor->enabled) {
        require_apart(key, monitor->output_path + "/" + monitor->job_name, spec_.checkpoint.folder);
        monitors_.push_back(std::make_unique<MonitorFiles>(key, *monitor, names));
      }
  }

  // On rank 0, after each step.
  void on_step(const Engine& engine, const StepRecord& record) {
    const int64_t samples =
        record.step * config_.micro_batch * config_.accumulation * readers(config_, spec_.ranks);
    std::erase_if(monitors_, [&](const auto& files) {
      try {
        // DeepSpeed writes the rate after the scheduler's step: the next step's.
        for (const auto& [value, number] :
             values(record, engine.learning_rate(), engine.loss_scale()))
          files->add(value, samples, number);
        return false;
      } catch (const OutputError& e) {
        if (problem_.empty()) problem_ = e.what();
        const std::string line = str("zerolab: ", e.what(), "; training goes on without it");
        if (progress_) progress_->clear();
        std::fprintf(stderr, "%s\n", printable(line).c_str());
        return true;
      }
    });
  }

  // The first file that could not be written to the end, in a sentence; "" if all were. A full disk
  // ends the file but not the run.
  const std::string& problem() const { return problem_; }
  std::vector<std::string> files() const {  // after the last step
    std::vector<std::string> all;
    for (const auto& monitor : monitors_)
      for (const std::string& path : monitor->paths()) all.push_back(path);
    return all;
  }

 private:
  // DeepSpeed's pipeline engine writes train_loss and eval_loss, all its engines the others.
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
  std::vector<std::unique_ptr<MonitorFiles>> monitors_;
  std::string problem_;
};

}  // namespace zl::cli
