#include "tutorials/zerolab/run/run_reports.h"

#include <cstdio>
#include <string_view>

#include "dist/flight_recorder.h"
#include "tensor/error.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/run_folder.h"

namespace zl::cli {
namespace {

bool bounds_time(EventKind kind) {
  return kind == EventKind::phase || kind == EventKind::collective_begin ||
         kind == EventKind::collective_end;
}

}  // namespace

std::string deepspeed_line(int64_t step, int64_t skipped, double lr, const OptimizerConfig& o) {
  const std::string momentum = o.kind == OptimizerKind::sgd ? python_number(o.momentum)
                                                            : str("(", python_number(o.beta1), ", ",
                                                                  python_number(o.beta2), ")");
  return str("step=", step, ", skipped=", skipped, ", lr=[", python_number(lr), "], mom=[",
             momentum, "]");
}

RunReports::RunReports(const RunSetup& setup, Progress* progress, bool first)
    : spec_(setup.spec),
      config_(setup.config),
      progress_(progress),
      ranks_(size_t(setup.spec.ranks)),
      first_(first) {
  for (Readers& readers : ranks_) {
    if (config_.wall_clock_breakdown && &readers == &ranks_[0]) readers.phases.emplace();
    if (!config_.comms_logger.enabled) continue;
    CallTimes::Ended ended;
    if (config_.comms_logger.verbose && &readers == &ranks_[0])
      ended = [this](const CallSpan& call) {
        print(call_line(call, spec_.ranks, config_.comms_logger.debug));
      };
    readers.calls.emplace(chosen_collectives(), ended);
  }
  for (const std::string& op : config_.comms_logger.prof_ops) {
    if (first_ && config_.comms_logger.enabled && our_collective(op).empty())
      print("note: comms_logger.prof_ops: no collective of zerolab is called " + op);
  }
  if (!first_) return;
  for (const auto& [key, monitor] :
       {std::pair("csv_monitor", config_.csv_monitor), {"tensorboard", config_.tensorboard}})
    if (monitor.enabled)
      require_apart(key, monitor.output_path + "/" + monitor.job_name, spec_.checkpoint.folder);
  if (config_.tensorboard.enabled) tensorboard_.emplace(config_.tensorboard);
  if (!config_.csv_monitor.enabled) return;
  std::vector<std::string> values = {"lr", "train_loss"};
  if (config_.precision == Dtype::f16) values.push_back("loss_scale");
  if (spec_.eval_every > 0) values.push_back("eval_loss");
  if (config_.wall_clock_breakdown)
    for (const char* part : {"forward", "backward", "backward_inner", "backward_allreduce", "step"})
      values.push_back(str("elapsed_time_ms_", part));
  csv_.emplace(config_.csv_monitor, values);
}

void RunReports::print(const std::string& text) const {
  if (progress_ != nullptr) return progress_->line(text);
  std::fputs((text + "\n").c_str(), stderr);
}

std::set<std::string> RunReports::chosen_collectives() const {
  if (config_.comms_logger.prof_all) return collective_names();
  std::set<std::string> names;
  for (const std::string& op : config_.comms_logger.prof_ops) names.insert(our_collective(op));
  return names;
}

void RunReports::at_start(Trainer& training) {
  Readers& readers = ranks_[size_t(training.comm().rank())];
  if (training.comm().rank() == 0) {
    rank0_ = &training;
    skipped_ = training.steps() - training.engine().updates();  // before a resume
  }
  if (!readers.phases && !readers.calls) return;
  Backend& device = training.memory().backend();
  training.comm().events().listen([&readers, &device](const Event& event) {
    if (!readers.counting) return;  // the text sample after the last step
    Event seen = event;
    if (!device.host_addressable() &&
        bounds_time(event.kind)) {  // waits for the GPU, as DeepSpeed's timers do
      device.synchronize();
      seen.nanoseconds = steady_nanoseconds();
    }
    if (readers.phases) readers.phases->see(seen);
    if (readers.calls && std::string_view(event.phase) != "evaluate") readers.calls->see(seen);
  });
}

void RunReports::on_step(const StepRecord& record) {
  skipped_ += record.skipped;
  const double next_lr = rank0_->engine().learning_rate();
  std::optional<StepTimes> times;
  if (ranks_[0].phases) times = ranks_[0].phases->take();
  if (progress_ != nullptr && config_.steps_per_print &&
      record.step % *config_.steps_per_print == 0)
    print(deepspeed_line(record.step, skipped_, next_lr, config_.optimizer));
  if (times) print(time_line(*times));
  if (csv_ || tensorboard_) monitor(record, next_lr, times);
}

// DeepSpeed writes the learning rate after the scheduler's step, so the row of a step has the rate
// of the next one. Its pipeline engine writes train_loss and eval_loss, all its engines the others.
void RunReports::monitor(const StepRecord& record, double next_lr,
                         const std::optional<StepTimes>& times) {
  std::vector<std::pair<std::string, double>> values = {{"train_loss", record.loss},
                                                        {"lr", next_lr}};
  if (config_.precision == Dtype::f16)
    values.emplace_back("loss_scale", rank0_->engine().loss_scale());
  if (record.eval_loss) values.emplace_back("eval_loss", *record.eval_loss);
  if (times)
    values.insert(values.end(), {{"elapsed_time_ms_forward", times->forward},
                                 {"elapsed_time_ms_backward", times->backward()},
                                 {"elapsed_time_ms_backward_inner", times->backward_inner},
                                 {"elapsed_time_ms_backward_allreduce", times->backward_allreduce},
                                 {"elapsed_time_ms_step", times->step}});
  const int64_t samples =
      record.step * config_.micro_batch * config_.accumulation * readers(config_, spec_.ranks);
  const auto write = [&](auto& files) {
    if (files) try {
        for (const auto& [value, number] : values) files->add(value, samples, number);
      } catch (const OutputError& e) {
        files.reset();
        if (problem_.empty()) problem_ = e.what();
        print(str("zerolab: ", printable(e.what()), "; training goes on without it"));
      }
  };
  write(csv_);
  write(tensorboard_);
}

void RunReports::at_end(Trainer& training) {
  Readers& readers = ranks_[size_t(training.comm().rank())];
  readers.counting = false;
  if (!readers.calls) return;
  const std::vector<std::string> all =
      training.comm().all_gather_object(encode(readers.calls->calls()), "comms_logger");
  if (training.comm().rank() != 0) return;
  for (const std::string& bytes : all) calls_.push_back(decode_call_times(bytes));
}

std::vector<std::string> RunReports::files() const {
  std::vector<std::string> all;
  if (csv_) all = csv_->paths();
  if (tensorboard_) all.push_back(tensorboard_->path());
  return all;
}

void RunReports::finish() {
  if (!config_.comms_logger.enabled) return;
  std::fputs(call_table(calls_).c_str(), stderr);
}

}  // namespace zl::cli
