// What DeepSpeed's keys csv_monitor and tensorboard ask for, from step records.
#pragma once

#include <utility>
#include <vector>

#include "tutorials/zerolab/monitors/monitor_files.h"
#include "tutorials/zerolab/run/run_folder.h"
#include "tutorials/zerolab/run/run_setup.h"

namespace zl::cli {

// The monitors that are enabled. Throws InputError if a folder cannot be written to, or is one that
// the run writes.
inline std::vector<MonitorFiles> open_monitors(const RunSetup& setup) {
  std::vector<MonitorFiles> all;
  for (const auto& [key, monitor] : {std::pair("csv_monitor", &setup.config.csv_monitor),
                                     {"tensorboard", &setup.config.tensorboard}}) {
    if (!monitor->enabled) continue;
    require_apart(key, monitor->output_path + "/" + monitor->job_name,
                  setup.spec.checkpoint.folder);
    all.emplace_back(key, *monitor);
  }
  return all;
}

// DeepSpeed writes the rate after the scheduler's step: the next step's. Its pipeline engine writes
// train_loss and eval_loss, all its engines the others.
inline void add_step(MonitorFiles& files, const RunSetup& setup, const Engine& engine,
                     const StepRecord& record) {
  const Config& config = setup.config;
  const int64_t samples = record.step * config.micro_batch * config.accumulation * setup.spec.ranks;
  files.add("lr", samples, engine.learning_rate());
  files.add("train_loss", samples, record.loss);
  if (config.precision == Dtype::f16) files.add("loss_scale", samples, engine.loss_scale());
  if (record.eval_loss) files.add("eval_loss", samples, *record.eval_loss);
}

}  // namespace zl::cli
