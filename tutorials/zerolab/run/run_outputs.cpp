#include "tutorials/zerolab/run/run_outputs.h"

#include <cmath>
#include <cstdio>
#include <map>

#include "nn/formats/weights.h"
#include "stages/checkpoint/checkpoint_folder.h"
#include "stages/weights.h"
#include "tensor/kernels.h"
#include "tutorials/zerolab/cli/interrupt.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/run/run_checkpoints.h"

namespace zl::cli {

RunOutputs::RunOutputs(const RunOptions& options, const RunSetup& setup, bool first)
    : options_(options),
      in_place_(resumes_in_place(options)),
      static_scale_(setup.config.loss_scale.static_scale > 0) {
  if (!options.out.empty() && first) {
    folder_.emplace(options.out, in_place_ ? RunFolder::For::resume : RunFolder::For::train);
    metrics_.emplace(folder_->file("metrics.jsonl"), in_place_);
  }
  if (!options.trace.empty()) trace.emplace(options.trace, options.out, setup.spec.ranks, first);
}

void RunOutputs::begin(int64_t steps) {
  step_ = steps;
  if (!metrics_ || !in_place_) return;
  const int64_t last = metrics_->keep_until(steps);
  if (last < steps && !options_.quiet)
    std::fprintf(stderr, "note: %s holds no steps from %lld to %lld\n",
                 printable(metrics_->path()).c_str(), (long long)last + 1, (long long)steps);
}

void RunOutputs::note_problem_of_metrics() {
  if (metrics_->problem().empty()) return;
  problem_ = metrics_->problem();
  std::fprintf(stderr, "zerolab: %s; training goes on without it\n", problem_.c_str());
}

void RunOutputs::append(const StepRecord& record) {
  step_ = record.step;
  ++made_;
  skipped_ += record.skipped;
  last_ = record;
  if (!metrics_ || !metrics_->problem().empty()) return;
  metrics_->append(record);
  note_problem_of_metrics();
}

void RunOutputs::saved(const CheckpointRecord& record) {
  checkpoints_.push_back(record);
  if (!metrics_ || !metrics_->problem().empty()) return;
  metrics_->sync();
  note_problem_of_metrics();
}

bool RunOutputs::untrained() const {
  const bool searching = last_.loss_scale && !static_scale_ && std::isfinite(last_.loss);
  return made_ > 0 && skipped_ == made_ && !searching;
}

void RunOutputs::save_weights(Trainer& training) {
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
      OutputFile file(folder_->file("model.safetensors"), "", in_place_);
      file.write([&](const std::string& temporary) {
        save_safetensors_weights(temporary, static_cast<Gpt&>(training.model()).config(), value);
      });
      file.commit();
      weights_saved_ = true;
    } catch (const InputError& e) {
      problem_ = e.what();
    }
  (void)training.comm().all_gather_object("", "weights saved");  // the others wait for rank 0
}

std::vector<std::string> RunOutputs::files() const {
  std::vector<std::string> all;
  if (metrics_) all.push_back(metrics_->path());
  if (weights_saved_) all.push_back(folder_->file("model.safetensors"));
  return all;
}

std::string RunOutputs::kept() const {
  if (!metrics_) return "nothing was written";
  if (step_ == 0) return "nothing was kept";
  if (weights_saved_) return files()[0] + " and " + files()[1] + " are complete";
  return files()[0] + " holds the steps so far, and no weights were written";
}

std::string RunOutputs::way_on() const {
  if (weights_saved_ || options_.out.empty()) return "";
  const std::vector<CheckpointPath> all = list_checkpoints(options_.out);
  if (all.empty()) return "";
  return (options_.checkpoint.resume ? "--resume " + options_.out : std::string("add --resume")) +
         (options_.checkpoint.resume ? " goes on" : " to go on") + " from " + all.back().path;
}

}  // namespace zl::cli
